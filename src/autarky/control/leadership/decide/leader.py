"""Which slot of a level 3 component should run on a node, judged by whether its lease is held and renewed.

Contract: pure, like `slots.decide.pivot`. Readiness says little at level 3: a scheduler newer than its API servers
stays Ready and never leads. So the standby is activated when nobody renews the lease although somebody could hold it,
and withdrawn when somebody leads and a hosted pod is Ready that has not failed to lead before. One that has failed is
tried again, more and more rarely: a pod that was only late (its machine was busy, or its process was killed and had to
wait for its own lease to expire) must not keep the standby active permanently.

A standby that leads gives way to such a hosted pod on any node: it is withdrawn, releases the lease, and the pod takes
it within 1.8 s. The operator reports which pods of other nodes are Ready (`candidates`): a kubelet can see only its own
node's pods, and must not be trusted about another node's. A pod that could have taken the lease and did not is not
trusted for a while, wherever it runs: so a bad candidate costs a gap of about ten seconds, more and more rarely.

The rules: unknown is not down (rule 2). Without an API, or while etcd is down (rule 9), nobody can renew a lease, so
nothing is concluded and the clock starts from zero; pods that lost the API have exited meanwhile, and need time to
reach it again. The standby is dispensable only when a hosted pod of this node has been Ready for SETTLE seconds or,
where the node has none that is trusted, when another node has led for as long (rule 1).

Danger: both slots of a node use the same host name as their identity, so the holder's name identifies the node
and never the slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from autarky.control.slots.decide.pivot import WATCH_SECONDS, Action, Decision, Health, Memory, Slot

EXPIRY_MARGIN = 2.0
"""Seconds beyond the lease's own duration: a candidate takes it within 1.8 s of its expiry (2.2 retry periods)."""
CANDIDATE_SECONDS = 3.0
"""Additional seconds where a hosted pod is Ready, here or elsewhere: on a busy machine it takes the lease late when the
leader's node is gone, and that must not count as a failure."""
RELEASED_SECONDS = 5.0
"""A released lease is taken by another candidate within 1.8 s; one that starts just then needs 3 s more."""
AFTER_OUTAGE_SECONDS = 30.0
"""Additional seconds after an outage, where a hosted pod exists: it gave up its lease after 10 s and restarted, its
hanging requests time out after 5 s each, its API server retries etcd up to 10 s after an outage of a minute, and it
waits for the lease's duration from when it first *sees* the lease."""
SETTLE_SECONDS = WATCH_SECONDS
TRUSTED_AGAIN_SECONDS = 120.0
"""Until a hosted pod that did not lead gets another chance; twice as long each time. A standby that is withdrawn
releases the lease: a chance that is not taken costs about ten seconds without a leader."""
RENEWED_SECONDS = 5.0
"""A leader renews its lease every second or two: the holder of one that has not changed for longer may be dead."""
DOUBT_SECONDS = 50.0
"""Additional seconds for a pod of another node that was Ready at the first observation: the API may show it as it was
before a power cut, and a node that does not come back becomes NotReady only after about 40 s."""
KEPT_FAILURES = 16
NONE_SINCE: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease as it is now. holder: "" when it was released. duration: seconds."""

    holder: str
    renewed: str
    duration: float


@dataclass(frozen=True, slots=True)
class Seen:
    """hosted_pod: uid of this node's hosted pod, when there is one. lease: None when it is absent.

    readable: False while the API does not answer or etcd is down: then nobody can renew either. elsewhere: whether
    the lease's holder is another node. candidates: uids of Ready hosted pods on other Ready control nodes.
    """

    hosted: Health
    hosted_pod: str | None
    standby_active: bool | None
    lease: Lease | None
    readable: bool
    elsewhere: bool = False
    candidates: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Failure:
    """pod: uid of a hosted pod that was Ready and did not lead when nobody else did. at: monotonic seconds."""

    pod: str
    times: int
    at: float

    def is_held_against(self, pod: str | None, now: float) -> bool:
        return pod == self.pod and now - self.at < TRUSTED_AGAIN_SECONDS * 2 ** (self.times - 1)


@dataclass(frozen=True, slots=True)
class LeaseMemory:
    """lease, since: the lease as last observed, and since when (monotonic seconds) it has not changed.

    ready_since: since when the hosted pod has been Ready without a break. led_elsewhere_since: since when another
    node has renewed the lease without a break.
    failed: the last failure of the current hosted pod. candidates: since when each pod of another node has been a
    candidate without a break; one that may be outdated counts from DOUBT_SECONDS later. failed_elsewhere: the last
    failure of each pod of another node, the newest last.
    outage: nobody has renewed the lease since it could not be observed.
    """

    lease: Lease | None = None
    since: float | None = None
    ready_since: float | None = None
    led_elsewhere_since: float | None = None
    failed: Failure | None = None
    candidates: Mapping[str, float] = field(default_factory=lambda: NONE_SINCE)
    failed_elsewhere: tuple[Failure, ...] = ()
    outage: bool = False

    def trusted_elsewhere(self, now: float) -> dict[str, float]:
        """The pods of other nodes that can lead as far as is known, and since when each has been Ready."""
        distrusted = {one.pod for one in self.failed_elsewhere if one.is_held_against(one.pod, now)}
        return {pod: since for pod, since in self.candidates.items() if pod not in distrusted and since <= now}


@dataclass(frozen=True, slots=True)
class LeaseDecision:
    decision: Decision
    memory: LeaseMemory


def lease_of(obj: Mapping[str, Any]) -> Lease:
    """As on the wire."""
    spec = obj.get("spec", {})
    return Lease(
        spec.get("holderIdentity") or "", spec.get("renewTime") or "", float(spec.get("leaseDurationSeconds") or 0)
    )


def is_held_elsewhere(lease: Lease | None, hostname: str) -> bool:
    """Whether a process of another host has it: identities are the host's name, "_" and an id."""
    host, separator, _ = ("" if lease is None else lease.holder).rpartition("_")
    return bool(separator) and host != hostname


def decide(
    wanted: Slot, seen: Seen, memory: LeaseMemory, now: float, *, settle: float = SETTLE_SECONDS
) -> LeaseDecision:
    """See the module's contract. `settle`: seconds for which a hosted pod must have been Ready, or another node must
    have led, before the standby is withdrawn."""
    if not seen.readable or seen.standby_active is None or seen.hosted is Health.UNKNOWN:
        return _quiet("what runs or who leads cannot be observed: nothing is judged", after_outage(memory))
    memory = _watched(seen, memory, now)
    if wanted is Slot.STANDBY:
        if seen.standby_active:
            return _quiet("this level is not hosted: its standby is in place", memory, settled=True)
        return _act(Action.ACTIVATE_STANDBY, "this level is not hosted: its standby runs", memory)
    idle = _idle_seconds(memory, now, _patience(seen, memory, now))
    if not seen.standby_active:
        return _standby_away(seen, memory, idle, now)
    return _standby_there(seen, memory, idle, now, settle)


def after_outage(memory: LeaseMemory) -> LeaseMemory:
    """What is kept of it after the API did not answer."""
    return LeaseMemory(failed=memory.failed, failed_elsewhere=memory.failed_elsewhere, outage=True)


def _patience(seen: Seen, memory: LeaseMemory, now: float) -> float:
    """How many seconds to wait for a hosted pod, beyond the lease's own duration."""
    if memory.outage and seen.hosted in (Health.READY, Health.NOT_READY):
        return AFTER_OUTAGE_SECONDS
    somebody_may = seen.hosted is Health.READY or bool(seen.candidates & memory.trusted_elsewhere(now).keys())
    return CANDIDATE_SECONDS if somebody_may and not seen.standby_active else 0.0


def _watched(seen: Seen, memory: LeaseMemory, now: float) -> LeaseMemory:
    unchanged = memory.since is not None and seen.lease == memory.lease
    since = memory.since if unchanged else now
    ready_since = (memory.ready_since or now) if seen.hosted is Health.READY else None
    failed = memory.failed if memory.failed is not None and memory.failed.pod == seen.hosted_pod else None
    outage = memory.outage and (memory.since is None or unchanged)
    led = seen.elsewhere and since is not None and now - since < RENEWED_SECONDS
    led_since = (now if memory.led_elsewhere_since is None else memory.led_elsewhere_since) if led else None
    counts_from = now + DOUBT_SECONDS if memory.since is None else now
    # One that stops being Ready just when it should lead could have taken the lease like those that are Ready.
    is_free = seen.lease is None or not seen.lease.holder
    kept = seen.candidates | (memory.candidates.keys() if unchanged or is_free else frozenset())
    candidates = {pod: memory.candidates.get(pod, counts_from) for pod in kept}
    return LeaseMemory(seen.lease, since, ready_since, led_since, failed, candidates, memory.failed_elsewhere, outage)


def _idle_seconds(memory: LeaseMemory, now: float, patience: float) -> float | None:
    """For how long nobody has taken the lease although it was free; None while somebody holds it, or may be
    about to take it. patience: additional seconds."""
    assert memory.since is not None  # noqa: S101 # `_watched` has set it
    unchanged = now - memory.since
    if memory.lease is None or not memory.lease.holder:
        return unchanged if unchanged > RELEASED_SECONDS + patience else None
    return unchanged if unchanged > memory.lease.duration + EXPIRY_MARGIN + patience else None


def _standby_away(seen: Seen, memory: LeaseMemory, idle: float | None, now: float) -> LeaseDecision:
    if idle is None:
        return _quiet("the lease is held, the standby is dormant", memory, settled=True)
    if not memory.outage:  # after an outage they may just be late
        memory = _with_failures(seen, memory, idle, now)
    sentence = f"nobody has renewed the lease for {idle:.0f} s (the hosted pod is {seen.hosted.value})"
    return _act(Action.ACTIVATE_STANDBY, f"{sentence}, so the standby takes over", memory)


def _with_failures(seen: Seen, memory: LeaseMemory, idle: float, now: float) -> LeaseMemory:
    """Record a failure of every pod that could have taken the lease and did not. idle: seconds."""
    failed = memory.failed
    if seen.hosted is Health.READY and seen.hosted_pod is not None:
        failed = _failed_again(failed, seen.hosted_pod, now)
    within_reach = idle - (memory.lease.duration if memory.lease is not None and memory.lease.holder else 0.0)
    before = {one.pod: one for one in memory.failed_elsewhere}
    for pod, since in memory.candidates.items():
        if min(within_reach, now - since) >= RELEASED_SECONDS:
            again = _failed_again(before.pop(pod, None), pod, now)
            before[pod] = again  # the newest last
    return replace(memory, failed=failed, failed_elsewhere=tuple(before.values())[-KEPT_FAILURES:])


def _failed_again(before: Failure | None, pod: str, now: float) -> Failure:
    """Repeated observations until the standby is active count as one failure."""
    if before is None:
        return Failure(pod, 1, now)
    return before if now - before.at < TRUSTED_AGAIN_SECONDS else Failure(pod, before.times + 1, now)


def _standby_there(seen: Seen, memory: LeaseMemory, idle: float | None, now: float, settle: float) -> LeaseDecision:
    distrusted = memory.failed is not None and memory.failed.is_held_against(seen.hosted_pod, now)
    found = _for_another_node(seen, memory, idle, now, settle, distrusted=distrusted)
    if found is not None:
        return found
    if seen.hosted is not Health.READY or memory.ready_since is None:
        return _quiet(f"the hosted pod is {seen.hosted.value}, the standby stays", memory)
    if distrusted:
        return _quiet("the hosted pod is Ready, yet it did not lead when it could: the standby stays", memory)
    if idle is not None:
        return _quiet(f"nobody has renewed the lease for {idle:.0f} s: the standby stays", memory)
    ready = now - memory.ready_since
    if ready < settle:
        return _quiet(f"the hosted pod has been Ready for {ready:.1f} s", memory)
    return _act(
        Action.WITHDRAW_STANDBY, f"the hosted pod has been Ready for {ready:.1f} s, so the standby is withdrawn", memory
    )


def _for_another_node(
    seen: Seen, memory: LeaseMemory, idle: float | None, now: float, settle: float, *, distrusted: bool
) -> LeaseDecision | None:
    """The decision that follows from other nodes, where no pod of this node is about to lead; None: there is none."""
    if seen.hosted is Health.READY and not distrusted:
        return None
    no_use_to_wait = seen.hosted in (Health.ABSENT, Health.READY)
    if no_use_to_wait and memory.led_elsewhere_since is not None:
        return _led_elsewhere(memory, now - memory.led_elsewhere_since, settle)
    ready_elsewhere = max((now - since for since in memory.trusted_elsewhere(now).values()), default=None)
    if ready_elsewhere is not None and _leads_itself(seen, idle):
        return _gives_way(memory, ready_elsewhere, settle)
    return None


def _leads_itself(seen: Seen, idle: float | None) -> bool:
    """Whether this host, which has no trusted hosted pod, renews the lease."""
    return idle is None and not seen.elsewhere and seen.lease is not None and bool(seen.lease.holder)


def _gives_way(memory: LeaseMemory, seconds: float, settle: float) -> LeaseDecision:
    """Otherwise a Ready pod might never get the lease from a standby that leads."""
    sentence = f"the standby leads, and a hosted pod of another node has been Ready for {seconds:.1f} s"
    if seconds < settle:
        return _quiet(sentence, memory)
    return _act(Action.WITHDRAW_STANDBY, f"{sentence}, so the standby gives way to it", memory)


def _led_elsewhere(memory: LeaseMemory, seconds: float, settle: float) -> LeaseDecision:
    """This node has no hosted pod to wait for, or none that is trusted."""
    sentence = f"another node has led for {seconds:.1f} s"
    if seconds < settle:
        return _quiet(sentence, memory)
    return _act(Action.WITHDRAW_STANDBY, f"{sentence}, so the standby is withdrawn", memory)


def _quiet(sentence: str, memory: LeaseMemory, *, settled: bool = False) -> LeaseDecision:
    return LeaseDecision(Decision((), Memory(), sentence, settled), memory)


def _act(action: Action, sentence: str, memory: LeaseMemory) -> LeaseDecision:
    return LeaseDecision(Decision((action,), Memory(), sentence, settled=False), memory)
