"""Whether an activation of a standby has started to run, and what to do when it has not.

Contract: `decide(seen, memory, now)` is pure, for one component on one node; `now` and all times are
monotonic seconds. It returns what to do now, what to remember, and one sentence.

A kubelet admits a static pod once. It never retries one that it has rejected (no room, a wrong selector, shutting
down); one whose file changed while the API was unavailable waits for its predecessor permanently (k/k 105543); and one
that crashed while etcd was unavailable waits for up to five minutes. In all these cases the kubelet starts a new
activation, with a name and a uid of its own, at once. Conversely, a kubelet that was restarted without an API forgets
the pods whose manifests are removed: they keep running.

The rules it keeps, in whatever order observations come:
- an activation with a running container is never replaced (rule 1); a forgotten pod is stopped only when the
  hosted slot serves or another activation runs;
- unknown is not down (rule 2): time in which the runtime, the disk or the kubelet did not answer proves
  nothing, and neither does time between observations that are too far apart;
- the clocks stop while etcd is down (rule 9).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

PATIENCE_SECONDS = 45.0
"""How long no container of an activation has run before it is replaced. A kubelet whose API server hangs needs 40 s
to start a static pod (it waits for calls to the API first); one whose API server is down needs 1 s."""
LONGEST_PATIENCE_SECONDS = 300.0
"""The patience doubles with each replacement, up to this: what a new activation does not repair is tried rarely."""
PROVEN_SECONDS = 60.0
"""An activation that ran for so long worked: for the next one that fails, patience starts again at PATIENCE_SECONDS."""
FORGOTTEN_SECONDS = 150.0
"""How long a pod keeps running without its manifest before it counts as forgotten: more than twice the grace
period of a standby."""
LONGEST_GAP_SECONDS = 40.0
"""Two observations further apart than this prove nothing about the time between them."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One node's observation of one component's standby.

    in_place: the uids of the manifests in place; None when the disk could not be read.
    running: the uids of its pods with a running container; None when the runtime did not answer.
    kubelet_up: whether the kubelet answers; if not, nothing can start an activation.
    hosted_serves: whether the hosted slot is known to serve.
    """

    in_place: frozenset[str] | None
    running: frozenset[str] | None
    kubelet_up: bool = True
    etcd_up: bool = True
    hosted_serves: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """looked: when the last observation that counts was made. runs: whether it found any container of what is in
    place running.

    idle, ran: seconds for which none, or at least one, of these containers has run without a break. renewals:
    replacements since an activation last worked. forgotten: uid → seconds that it has run without a manifest.
    """

    looked: float | None = None
    in_place: frozenset[str] = frozenset()
    runs: bool = False
    idle: float = 0.0
    ran: float = 0.0
    renewals: int = 0
    forgotten: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """renew: replace the activations in place by a new one. stop: the uids of forgotten pods to stop.

    settled: there is nothing to wait for."""

    renew: bool
    stop: frozenset[str]
    memory: Memory
    sentence: str
    settled: bool


def decide(seen: Seen, memory: Memory, now: float) -> Decision:
    """See the module's contract."""
    unknown = _what_is_unknown(seen)
    if unknown or seen.in_place is None or seen.running is None:
        return Decision(False, frozenset(), replace(memory, looked=None), unknown, settled=False)
    between = _counts(memory, now)
    memory = _counted(seen.in_place, seen.running, replace(memory, looked=now), between)
    patience = min(PATIENCE_SECONDS * 2.0**memory.renewals, LONGEST_PATIENCE_SECONDS)
    renew = bool(seen.in_place) and memory.idle >= patience
    if renew:
        memory = replace(memory, idle=0.0, renewals=min(memory.renewals + 1, 8))
    stop = _forgotten(memory) if memory.runs or seen.hosted_serves else frozenset()
    settled = not memory.forgotten and (memory.runs or not seen.in_place)
    return Decision(renew, stop, memory, _sentence(seen, memory, renew=renew, stop=stop), settled)


def _what_is_unknown(seen: Seen) -> str:
    """Rules 2 and 9."""
    if not seen.etcd_up:
        return "etcd is down: nothing is judged"
    if seen.in_place is None:
        return "unknown: the manifests could not be read"
    if seen.running is None:
        return "unknown: the container runtime does not answer"
    return "" if seen.kubelet_up else "the kubelet does not answer: nothing can be started"


def _counts(memory: Memory, now: float) -> float:
    """The seconds since the last observation, if they prove anything."""
    between = 0.0 if memory.looked is None else now - memory.looked
    return between if 0 < between <= LONGEST_GAP_SECONDS else 0.0


def _counted(in_place: frozenset[str], running: frozenset[str], memory: Memory, between: float) -> Memory:
    """The clocks, one observation later. A pod's clock starts with the first observation of it."""
    known = memory.forgotten
    forgotten = {uid: known[uid] + between if uid in known else 0.0 for uid in sorted(running - in_place)}
    memory = replace(memory, forgotten=forgotten)
    runs = bool(in_place & running)
    if in_place != memory.in_place or runs != memory.runs:  # when it changed in between is unknown
        renewals = memory.renewals if in_place else 0
        return replace(memory, in_place=in_place, runs=runs, idle=0.0, ran=0.0, renewals=renewals)
    if runs:
        ran = memory.ran + between
        return replace(memory, ran=ran, renewals=0 if ran >= PROVEN_SECONDS else memory.renewals)
    return replace(memory, idle=memory.idle + between) if in_place else memory


def _forgotten(memory: Memory) -> frozenset[str]:
    return frozenset(uid for uid, seconds in memory.forgotten.items() if seconds >= FORGOTTEN_SECONDS)


def _sentence(seen: Seen, memory: Memory, *, renew: bool, stop: frozenset[str]) -> str:
    if renew:
        return "no container of the standby has started: it gets a new activation"
    if stop:
        return "a standby still runs long after its manifest was removed: it is stopped"
    if not seen.in_place:
        return "no standby is active"
    return "the standby runs" if memory.runs else f"no container of the standby has run for {memory.idle:.0f} s"
