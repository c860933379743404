"""The clocks by which one rollout is judged: what is remembered of it from one observation to the next. Pure.

Contract: `advanced` adds the time since the last observation, LONGEST_STEP at most, to the clocks of what is seen now.
A memory may be lost at any moment: then every clock starts from zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from autarky.control.rollout.decide.observed import Leader, Lease, Observed, Pod

LONGEST_STEP = 5.0
"""Seconds that one reconcile adds to a clock at most: an operator that was stopped for a while has not watched."""
BLINK_SECONDS = 1.0
"""What each time counts at least that a worker's pod ceases to be Ready: it may choose moments between two looks."""
LEASE_IS_OLD = 20.0
"""Seconds without a renewal after which a holder counts as gone: the leases of level 3 last for 15 s."""
ENDING_SECONDS = 300.0
"""How long in all a pod of the revision may terminate on a worker before that counts as lacking one. A runtime that
hangs makes its Node not Ready sooner than that, and then nothing is counted."""
REACH_SECONDS = 5.0
"""How long a lease must have been free before a Ready pod is blamed for not taking it: it tries at least every 1.8 s.
As long as the node agents wait before they activate a standby."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Of the revision on one node, or of one of its pods (`Pod.key`), in seconds: how long it has waited for the
    previous pod, been judged, been Ready without interruption, and been away (not Ready) since a pod of it was first
    Ready there. lacked: how long a worker had no pod of it in all, not even the previous one; ending: how long one that
    came after the previous one terminated there. served: whether one was Ready. start: how long that pod took until
    then."""

    waited: float = 0.0
    judged: float = 0.0
    ready: float = 0.0
    away: float = 0.0
    lacked: float = 0.0
    ending: float = 0.0
    proven: bool = False
    served: bool = False
    start: float | None = None

    @property
    def has_had_one(self) -> bool:
        """Whether there was a pod of the revision, or could have been."""
        return self.judged + self.lacked > 0


NO_CLOCK = Clock()
NO_CLOCKS: Mapping[str, Clock] = MappingProxyType({})
NO_TIMES: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Memory:
    """looked: when (monotonic seconds) everything was seen last; None: the clocks have stood still since.

    since: when the revision was first seen. watched: for how many seconds it has been judged since; unmade: for how
    many without a break no pod of it was made; held: for how many in all nothing but workers kept it on trial. (A
    worker's own clocks begin again whenever its Node is Ready again.)
    lease, renewed: the lease's version and when it last changed.
    new_leads_from: the lease's version from which on only pods of the new revision could hold it.
    reach: pod that has been Ready → seconds for which the lease has been free for it. missed: the pods that did not
    take it.
    late: the nodes where the time of a pod was up, or of a worker on which none stays, and none has proven itself
    since: two that are well by turns would else keep the revision on trial forever.
    gone: revision that was rolled back → since when it is not wanted. expired: the verdict on this one had expired when
    it was applied again.
    """

    revision: str | None = None
    since: float = 0.0
    looked: float | None = None
    watched: float = 0.0
    unmade: float = 0.0
    held: float = 0.0
    clocks: Mapping[str, Clock] = field(default_factory=lambda: NO_CLOCKS)
    lease: str | None = None
    renewed: float = 0.0
    new_leads_from: str | None = None
    reach: Mapping[str, float] = field(default_factory=lambda: NO_TIMES)
    missed: frozenset[str] = frozenset()
    late: frozenset[str] = frozenset()
    gone: Mapping[str, float] = field(default_factory=lambda: NO_TIMES)
    expired: bool = False


def advanced(observed: Observed, memory: Memory, settle: float, now: float) -> Memory:
    """The clocks of the nodes that count, advanced by the time since the last observation. `settle`: seconds of being
    Ready that prove a revision."""
    step = min(now - memory.looked, LONGEST_STEP) if memory.looked is not None else 0.0
    memory = _reach_counted(observed, _lease_followed(observed, memory, now), step, now)
    counts = observed.nodes if observed.replicas is None else {pod.key for pod in observed.pods}
    kept = {key: replace(clock, ready=0.0) for key, clock in memory.clocks.items() if key in counts}
    for node in observed.waiting:
        clock = memory.clocks.get(node, NO_CLOCK)
        ran_on = clock if observed.trusts(node) else _without_pod(clock, step, is_bare=node in observed.bare)
        kept[node] = replace(ran_on, ready=0.0, waited=clock.waited + step)
    for pod in observed.pods:
        if pod.node in observed.nodes:
            blinks = 0.0 if observed.trusts(pod.node) else BLINK_SECONDS
            clock = _run_on(memory.clocks.get(pod.key, NO_CLOCK), pod, step, settle, blinks)
            blameless = pod.ready and cannot_lead(pod, observed, memory, now)
            kept[pod.key] = clock if blameless else replace(clock, judged=clock.judged + step)
    unmade = memory.unmade + step if observed.due else 0.0
    held = memory.held + step if _depends_on_workers(observed, kept) else memory.held
    return replace(memory, looked=now, watched=memory.watched + step, unmade=unmade, held=held, clocks=kept)


def _depends_on_workers(observed: Observed, clocks: Mapping[str, Clock]) -> bool:
    """Whether it is, or is on its way, wherever it has to prove itself, and has done so on all control nodes there."""
    pods = {pod.key: pod.node for pod in observed.pods}
    places = {node: node for node in observed.nodes} if observed.replicas is None else pods
    found = [(clocks.get(key), node) for key, node in places.items()]
    return bool(found) and all(clock and (clock.proven or not observed.trusts(node)) for clock, node in found)


def _run_on(clock: Clock, pod: Pod, step: float, settle: float, blinks: float) -> Clock:
    """blinks: seconds that the first look at a pod which is not Ready any more counts at least."""
    if not pod.ready:
        away = max(step, blinks) if clock.ready else step
        return replace(clock, ready=0.0, away=clock.away + away if clock.served else 0.0)
    ready = clock.ready + step
    start = clock.start if clock.served else pod.start  # a pod that is Ready again after a blip has not started then
    return replace(clock, ready=ready, proven=clock.proven or ready >= settle, served=True, start=start)


def _without_pod(clock: Clock, step: float, *, is_bare: bool) -> Clock:
    """Of a worker that has no pod of the revision now. While the previous pod terminates it lacks none, nor while one
    that came after it does, up to a limit."""
    if not (is_bare or clock.has_had_one):
        return clock
    if not is_bare and clock.ending < ENDING_SECONDS:
        return replace(clock, ending=clock.ending + step)
    return replace(clock, lacked=clock.lacked + (max(step, BLINK_SECONDS) if clock.ready else step))


def _lease_followed(observed: Observed, memory: Memory, now: float) -> Memory:
    lease = observed.lease
    if lease is None:
        return memory
    if lease.version != memory.lease:
        memory = replace(memory, lease=lease.version, renewed=now)
    if lease.leader is not Leader.NEW:
        return replace(memory, new_leads_from=None)
    return memory if memory.new_leads_from is not None else replace(memory, new_leads_from=lease.version)


def _reach_counted(observed: Observed, memory: Memory, step: float, now: float) -> Memory:
    """For how long without interruption each pod that has been Ready could have taken the lease. (Some are Ready only
    while another one leads, and not when they should lead.)"""
    if observed.lease is None:
        return memory
    free = _is_free(observed.lease, memory, now)
    names = {pod.name for pod in observed.pods if pod.ready or pod.name in memory.reach}
    reach = {name: memory.reach.get(name, 0.0) + step if free else 0.0 for name in names}
    missed = {name for name, seconds in reach.items() if seconds >= REACH_SECONDS} | (memory.missed & names)
    return replace(memory, reach=reach, missed=frozenset(missed))


def _is_free(lease: Lease, memory: Memory, now: float) -> bool:
    return lease.free or now - memory.renewed > LEASE_IS_OLD


def cannot_lead(pod: Pod, observed: Observed, memory: Memory, now: float) -> bool:
    """Whether a Ready pod has had no chance to lead, so that it cannot be blamed for not leading."""
    if observed.lease is None or _is_free(observed.lease, memory, now):
        return False
    return observed.lease.leader is Leader.OLD or pod.name not in memory.missed
