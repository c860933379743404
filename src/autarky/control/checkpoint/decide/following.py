"""Whether a node's standby of level 3 becomes a copy of the last good revision, where no hosted pod shows it one.

Contract: `decide(seen, memory, now)` is pure; its actions are those of `checkpoint`, with the same promises. Where a
hosted pod is Ready its own checkpoint is made of it. Where none has been for FOLLOW_SECONDS, what the operator has
seen to lead elsewhere is as good: the very template, with the very content that it had then.

The rules it keeps (design §4): unknown is not down (rule 2): whatever cannot be seen changes nothing, and the clock
starts anew; only what is complete, with its images on the node, becomes the current revision; the current one, the one
before it and all that an active manifest uses are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from autarky.control.checkpoint.decide.revisions import Action, Disk, Verb, unlisted
from autarky.control.slots.decide.pivot import Health, Slot

FOLLOW_SECONDS = 60.0
"""As long as a pod must have been healthy to be a checkpoint: one that is away for a moment comes back."""


@dataclass(frozen=True, slots=True)
class Seen:
    """hosted: the component's pod on this node. candidate: the revision that the last good one would be here, None
    while it is not known; refusal: why it cannot be one, as a sentence, or "". images: whether all are on the node."""

    wanted: Slot
    hosted: Health
    disk: Disk | None
    candidate: str | None = None
    refusal: str = ""
    images: bool | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """since: when (monotonic seconds) no hosted pod was Ready any more."""

    since: float | None = None

    def is_due(self, now: float) -> bool:
        return self.since is not None and now - self.since >= FOLLOW_SECONDS


def watched(seen_wanted: Slot, hosted: Health, memory: Memory, now: float) -> Memory:
    """The clock, one look later."""
    if seen_wanted is Slot.STANDBY or hosted in (Health.READY, Health.UNKNOWN):
        return Memory()
    return memory if memory.since is not None else Memory(now)


def decide(seen: Seen, memory: Memory, now: float) -> tuple[tuple[Action, ...], str]:
    """What to do now, and what was seen and why. memory: as `watched` left it."""
    if not memory.is_due(now):
        return (), "the standby follows the hosted pod"
    if seen.refusal:
        return (), f"there is no hosted pod to follow, and {seen.refusal}: the standby stays as it is"
    if seen.disk is None or seen.candidate is None:
        return (), "unknown: what the last good revision would be here, or the disk, could not be read"
    if seen.candidate == seen.disk.current and seen.candidate in seen.disk.complete:
        old = unlisted(seen.disk)
        return tuple(Action(Verb.DELETE, one) for one in old), "the standby is of the last good revision"
    if not seen.images:
        what = "not all its images are on the node" if seen.images is False else "images could not be listed"
        return (), f"the last good revision is not taken: {what}"
    write = () if seen.candidate in seen.disk.complete else (Action(Verb.WRITE, seen.candidate),)
    sentence = f"no hosted pod is here, so the standby follows the last good revision: {seen.candidate}"
    return (*write, Action(Verb.SWITCH, seen.candidate)), sentence
