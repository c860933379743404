"""Whether a node's standby of level 3 becomes a copy of the last good revision, where the node has no hosted pod.

Contract: `decide(seen, memory, now)` is pure; its actions are those of `revisions`, with the same guarantees. Where a
hosted pod is Ready, the checkpoint is made from it. Where none has been Ready for FOLLOW_SECONDS, what the operator has
seen lead elsewhere is as good: that very template, with the very content that it had then.

The rules it keeps: unknown is not down (rule 2), so whatever cannot be observed changes nothing, and the clock starts
from zero; only what is complete, with its images on the node, becomes the current revision; the current one, the one
before it and all that an active manifest uses are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from autarky.control.checkpoint.decide.revisions import Action, Disk, Verb, unlisted
from autarky.control.slots.decide.pivot import Health, Slot

FOLLOW_SECONDS = 60.0
"""Longer than a pod must have been healthy to become a checkpoint: a pod that is briefly absent comes back."""


@dataclass(frozen=True, slots=True)
class Seen:
    """hosted: the health of the component's pod on this node. candidate: the standby revision that the last good one
    would give here, None while unknown; refusal: why it cannot be one, as a sentence, or "". images: whether all of its
    images are on the node."""

    wanted: Slot
    hosted: Health
    disk: Disk | None
    candidate: str | None = None
    refusal: str = ""
    images: bool | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """since: since when (monotonic seconds) no hosted pod has been Ready."""

    since: float | None = None

    def is_due(self, now: float) -> bool:
        return self.since is not None and now - self.since >= FOLLOW_SECONDS


def watched(seen_wanted: Slot, hosted: Health, memory: Memory, now: float) -> Memory:
    """The clock, one observation later."""
    if seen_wanted is Slot.STANDBY or hosted in (Health.READY, Health.UNKNOWN):
        return Memory()
    return memory if memory.since is not None else Memory(now)


def decide(seen: Seen, memory: Memory, now: float) -> tuple[tuple[Action, ...], str]:
    """What to do now, and a sentence on what was seen and why. memory: as `watched` returned it."""
    if not memory.is_due(now):
        return (), "the standby follows the hosted pod"
    if seen.refusal:
        return (), f"there is no hosted pod to follow, and {seen.refusal}: the standby stays as it is"
    if seen.disk is None or seen.candidate is None:
        return (), "unknown: the last good revision or the disk could not be read"
    if seen.candidate == seen.disk.current and seen.candidate in seen.disk.complete:
        old = unlisted(seen.disk)
        return tuple(Action(Verb.DELETE, one) for one in old), "the standby is of the last good revision"
    if not seen.images:
        what = "not all its images are on the node" if seen.images is False else "images could not be listed"
        return (), f"the last good revision is not taken: {what}"
    write = () if seen.candidate in seen.disk.complete else (Action(Verb.WRITE, seen.candidate),)
    sentence = f"this node has no hosted pod, so the standby follows the last good revision: {seen.candidate}"
    return (*write, Action(Verb.SWITCH, seen.candidate)), sentence
