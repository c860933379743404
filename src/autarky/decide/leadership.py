"""Which slot of a level 3 component should run on a node, judged by its lease: held and renewed, or not.

Contract: pure, like `slots`. Readiness of level 3 lies: a scheduler newer than its API servers is Ready for
good and never leads. So the standby is activated when nobody renews the lease although it could be held,
and taken away when somebody leads and a hosted pod is Ready that has not failed to lead before. One that has is
tried again, ever more rarely: a pod that was only late (its machine had too much to do, or its process was killed and
had to wait for its own lease to end) shall not keep the standby for good.

The rules (design §4): unknown is not down (rule 2): without an API, or while etcd is down (rule 9), nobody
can renew a lease, so nothing is concluded and the clock starts anew; and pods that were cut off have ended
meanwhile, and need their time to find the API again. The standby is dispensable only while a hosted pod of
this node is Ready for SETTLE seconds, or, where the node has none that is trusted, while another node is seen to lead
for as long (rule 1).

Danger: both slots of a node give the same host name as their identity, so the holder's name tells the node
and never the slot.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from autarky.decide.slots import Action, Decision, Health, Memory, Slot

EXPIRY_MARGIN = 2.0
"""Seconds beyond the lease's own duration: a candidate takes it within 1.8 s of its end (2.2 retry periods)."""
CANDIDATE_SECONDS = 3.0
"""Seconds more where a hosted pod is Ready and alone: on a busy machine it takes the lease late, when the leader's node
is gone, and would be blamed for it."""
RELEASED_SECONDS = 5.0
"""A released lease is taken by another candidate within 1.8 s; one that starts just then needs 3 s more."""
AFTER_OUTAGE_SECONDS = 30.0
"""Seconds more after an outage, for a hosted pod that is there: it gave up its lease after 10 s and started anew,
its requests that hang give up after 5 s each, its API server looks for etcd up to 10 s after an outage of a
minute, and it waits for the lease's duration from when it first *sees* the lease."""
SETTLE_SECONDS = 10.0
TRUSTED_AGAIN_SECONDS = 120.0
"""Until a hosted pod that did not lead gets another chance; twice as long each time. A standby that goes releases the
lease: a chance that is not taken costs some ten seconds without a leader."""
RENEWED_SECONDS = 5.0
"""A lease that is led is renewed every second or two: one that has not changed for longer may be a dead one's."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease as it is now. holder: "" when it was released. duration: seconds."""

    holder: str
    renewed: str
    duration: float


@dataclass(frozen=True, slots=True)
class Seen:
    """hosted_pod: uid of this node's hosted pod, when there is one. lease: None when it is absent.

    readable: False while the API cannot be asked or etcd is down: then nobody can renew either. elsewhere: whether
    the lease's holder is another node.
    """

    hosted: Health
    hosted_pod: str | None
    standby_active: bool | None
    lease: Lease | None
    readable: bool
    elsewhere: bool = False


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
    """lease, since: what was seen last, and since when (monotonic seconds) it has not changed.

    ready_since: since when the hosted pod has been Ready without a break. led_elsewhere_since: since when another
    node has renewed the lease without a break.
    failed: the last failure of the hosted pod that is there.
    outage: nobody has renewed the lease since it could not be seen.
    """

    lease: Lease | None = None
    since: float | None = None
    ready_since: float | None = None
    led_elsewhere_since: float | None = None
    failed: Failure | None = None
    outage: bool = False


@dataclass(frozen=True, slots=True)
class LeaseDecision:
    decision: Decision
    memory: LeaseMemory


def decide(wanted: Slot, seen: Seen, memory: LeaseMemory, now: float) -> LeaseDecision:
    """See the module's contract."""
    if not seen.readable or seen.standby_active is None or seen.hosted is Health.UNKNOWN:
        return _quiet("what runs or leads cannot be seen: nothing is judged", after_outage(memory))
    memory = _watched(seen, memory, now)
    if wanted is Slot.STANDBY:
        if seen.standby_active:
            return _quiet("the standby is in place, as wanted for good", memory, settled=True)
        return _act(Action.ACTIVATE_STANDBY, "this level is not hosted: its standby runs", memory)
    idle = _idle_seconds(memory, now, _patience(seen, memory))
    if not seen.standby_active:
        return _standby_away(seen, memory, idle, now)
    return _standby_there(seen, memory, idle, now)


def after_outage(memory: LeaseMemory) -> LeaseMemory:
    """What is left of it when the API could not be asked."""
    return LeaseMemory(failed=memory.failed, outage=True)


def _patience(seen: Seen, memory: LeaseMemory) -> float:
    """Seconds for which this node's hosted pod is waited for, beyond what the lease says."""
    if memory.outage and seen.hosted in (Health.READY, Health.NOT_READY):
        return AFTER_OUTAGE_SECONDS
    return CANDIDATE_SECONDS if seen.hosted is Health.READY and not seen.standby_active else 0.0


def _watched(seen: Seen, memory: LeaseMemory, now: float) -> LeaseMemory:
    unchanged = memory.since is not None and seen.lease == memory.lease
    since = memory.since if unchanged else now
    ready_since = (memory.ready_since or now) if seen.hosted is Health.READY else None
    failed = memory.failed if memory.failed is not None and memory.failed.pod == seen.hosted_pod else None
    outage = memory.outage and (memory.since is None or unchanged)
    led = seen.elsewhere and since is not None and now - since < RENEWED_SECONDS
    led_since = (now if memory.led_elsewhere_since is None else memory.led_elsewhere_since) if led else None
    return LeaseMemory(seen.lease, since, ready_since, led_since, failed, outage)


def _idle_seconds(memory: LeaseMemory, now: float, patience: float) -> float | None:
    """For how long the lease has been free to be taken and was not; None while somebody holds it, or may be
    about to take it. patience: seconds more than usual."""
    assert memory.since is not None  # noqa: S101 # `_watched` has set it
    unchanged = now - memory.since
    if memory.lease is None or not memory.lease.holder:
        return unchanged if unchanged > RELEASED_SECONDS + patience else None
    return unchanged if unchanged > memory.lease.duration + EXPIRY_MARGIN + patience else None


def _standby_away(seen: Seen, memory: LeaseMemory, idle: float | None, now: float) -> LeaseDecision:
    if idle is None:
        return _quiet("the lease is held, the standby is dormant", memory, settled=True)
    failed = memory.failed
    if seen.hosted is Health.READY and seen.hosted_pod is not None and not memory.outage:
        failed = _failed_again(failed, seen.hosted_pod, now)  # after an outage it may merely be late
    sentence = f"nobody has renewed the lease for {idle:.0f} s (the hosted pod is {seen.hosted.value})"
    return _act(Action.ACTIVATE_STANDBY, f"{sentence}, so the standby takes over", replace(memory, failed=failed))


def _failed_again(before: Failure | None, pod: str, now: float) -> Failure:
    """Looks until the standby is there are one failure."""
    if before is None:
        return Failure(pod, 1, now)
    return before if now - before.at < TRUSTED_AGAIN_SECONDS else Failure(pod, before.times + 1, now)


def _standby_there(seen: Seen, memory: LeaseMemory, idle: float | None, now: float) -> LeaseDecision:
    distrusted = memory.failed is not None and memory.failed.is_held_against(seen.hosted_pod, now)
    no_use_to_wait = seen.hosted is Health.ABSENT or (seen.hosted is Health.READY and distrusted)
    if no_use_to_wait and memory.led_elsewhere_since is not None:
        return _led_elsewhere(memory, now - memory.led_elsewhere_since)
    if seen.hosted is not Health.READY or memory.ready_since is None:
        return _quiet(f"the hosted pod is {seen.hosted.value}, the standby stays", memory)
    if distrusted:
        return _quiet("the hosted pod is Ready, yet it did not lead when it could: the standby stays", memory)
    if idle is not None:
        return _quiet(f"nobody has renewed the lease for {idle:.0f} s: the standby stays", memory)
    ready = now - memory.ready_since
    if ready < SETTLE_SECONDS:
        return _quiet(f"the hosted pod is Ready since {ready:.1f} s", memory)
    return _act(
        Action.WITHDRAW_STANDBY, f"the hosted pod is Ready since {ready:.1f} s, so the standby is withdrawn", memory
    )


def _led_elsewhere(memory: LeaseMemory, seconds: float) -> LeaseDecision:
    """There is no hosted pod of this node to wait for, or none that is trusted."""
    sentence = f"another node leads since {seconds:.1f} s"
    if seconds < SETTLE_SECONDS:
        return _quiet(sentence, memory)
    return _act(Action.WITHDRAW_STANDBY, f"{sentence}, so the standby is withdrawn", memory)


def _quiet(sentence: str, memory: LeaseMemory, *, settled: bool = False) -> LeaseDecision:
    return LeaseDecision(Decision((), Memory(), sentence, settled), memory)


def _act(action: Action, sentence: str, memory: LeaseMemory) -> LeaseDecision:
    return LeaseDecision(Decision((action,), Memory(), sentence, settled=False), memory)
