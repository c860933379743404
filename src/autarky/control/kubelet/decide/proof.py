"""Whether a kubelet that was switched is as it has to be: the verdict that the host's script waits for. Pure.

Contract: GOOD once all of this has been seen without a break for PROVEN_SECONDS, of the kubelet that runs since the
switch: it is healthy (`hosts.decide.kubelet_restart`), its Node shows the wanted version, and no pod was harmed: each
sandbox that was ready before is still ready, unless its pod has ended or can do so by itself, or is on its way out, for
which nobody blames a kubelet. It writes that a pod has ended after its sandbox is gone: so one counts only when it has
been gone for EXCUSED_SECONDS, and until then nothing is proven. Nor may such a pod have failed since the kubelet would
not have it, or evicted it for want of something: of the latter the caller says whether it counts. Which pods can end by
themselves, the caller says as well (`control.kubelet.node.draining`). WAIT while the API does not answer: that says
nothing of the kubelet (rule 9), and the script's clock stands still. UNPROVEN otherwise: at its limit the script goes
back, and says what was missing. A kubelet that keeps exiting is seen by the script itself.

Danger: a kubelet that is silent must not look like an API that is. Whether the API answers is asked of the API.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from autarky.control.common.shapes import some
from autarky.control.hosts.decide import kubelet_restart
from autarky.model.versions import Version

PROVEN_SECONDS = 10.0
"""As long as a kubelet takes between two renewals of its lease."""
EXCUSED_SECONDS = 15.0
"""A kubelet that has stopped a pod's sandbox writes its last status after that, one after the other."""
LOOK_SECONDS = 7.0
"""The most between two looks without a break."""


class Verdict(StrEnum):
    """The values are the words in the script's file."""

    GOOD = "good"
    WAIT = "wait"
    UNPROVEN = "unproven"


@dataclass(frozen=True, slots=True)
class Before:
    """Noted right before the switch. ready: whether its Node was Ready. sandboxes: those that were ready, and are
    evidence → the uid of the pod, as the API has it. pods: that uid → the pod's namespace/name, by which it is found
    again."""

    ready: bool = True
    sandboxes: Mapping[str, str] = field(default_factory=dict)
    pods: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Seen:
    """answers: whether the API does, with etcd behind it. healthy, heartbeat, ready: as in kubelet_restart. version:
    that its Node shows. sandboxes: those that are ready; None where the runtime does not say. living: uids of the pods
    of before that exist, have not ended, cannot by themselves, and are not being deleted, at least of those whose
    sandbox is not ready; None where that is not known. rejected: of those that have failed since a kubelet would not
    have them; evicted: since the node was low on something, which is what new settings can do, and any tenant."""

    answers: bool
    healthy: bool | None
    heartbeat: bool
    ready: bool
    version: Version | None
    sandboxes: frozenset[str] | None
    living: frozenset[str] | None
    rejected: frozenset[str] = frozenset()
    evicted: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Memory:
    """since: when (monotonic seconds) nothing was missing any more; last: when that was seen last. missed: the pods, by
    their uids, whose sandbox is gone while they live → since when."""

    since: float | None = None
    last: float = 0.0
    missed: Mapping[str, float] = field(default_factory=dict)

    def well(self, now: float) -> Memory:
        """What nobody has looked at for a while may have been anything meanwhile."""
        begins = self.since is None or now - self.last > LOOK_SECONDS
        return replace(self, since=now if begins else self.since, last=now)


@dataclass(frozen=True, slots=True)
class Decision:
    memory: Memory
    verdict: Verdict
    sentence: str


def decide(seen: Seen, before: Before, wanted: Version, memory: Memory, now: float) -> Decision:
    """`now`: monotonic seconds."""
    if not seen.answers:
        return Decision(Memory(), Verdict.WAIT, "the API does not answer")
    missed = {uid: memory.missed.get(uid, now) for uid in _harmed(before, seen)}
    harmed = {uid for uid, since in missed.items() if now - since >= EXCUSED_SECONDS}
    if missing := _missing(seen, before, wanted, harmed):
        return Decision(Memory(missed=missed), Verdict.UNPROVEN, missing)
    memory = replace(memory, missed=missed).well(now)
    if missed:
        gone = _names(before, missed)
        return Decision(memory, Verdict.UNPROVEN, f"the sandbox of {gone} is gone: it may have ended by itself")
    if memory.since is None or now - memory.since < PROVEN_SECONDS:
        return Decision(memory, Verdict.UNPROVEN, f"it has not been well for {PROVEN_SECONDS:.0f} s yet")
    return Decision(memory, Verdict.GOOD, f"it runs {wanted}, and no pod was harmed")


def _missing(seen: Seen, before: Before, wanted: Version, harmed: Collection[str]) -> str:
    """What is not as it has to be, as clauses; empty where nothing is missing."""
    kubelet = kubelet_restart.Seen(True, 0, seen.healthy, seen.heartbeat, seen.ready)
    found = [kubelet_restart.judge(kubelet, was_ready=before.ready).missing]
    if seen.version != wanted:
        found.append(f"its Node shows {seen.version or 'no version'}, not {wanted}")
    if seen.sandboxes is None or seen.living is None:
        found.append("it is not known which pods run")
    elif harmed:
        found.append(f"the sandbox of {_names(before, harmed)} is gone")
    elif refused := (seen.rejected | seen.evicted).intersection(before.sandboxes.values()):
        found.append(f"it has no room for {_names(before, refused)}, which it had before")
    return " and ".join(one for one in found if one)


def _names(before: Before, uids: Iterable[str]) -> str:
    """Agents of 0.1 have noted none."""
    return some(before.pods.get(uid, uid) for uid in uids)


def _harmed(before: Before, seen: Seen) -> set[str]:
    """The pods, by their uids; none while that is not known."""
    ready, living = seen.sandboxes, seen.living or frozenset()
    gone = {uid for sandbox, uid in before.sandboxes.items() if ready is not None and sandbox not in ready}
    return gone & living
