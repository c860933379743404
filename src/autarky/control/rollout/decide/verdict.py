"""Whether a rollout of a hosted component or of an add-on has succeeded, and when it is rolled back automatically.

Contract: `decide(observed, memory, record, policy, now)` is pure. `record` is stored permanently: the last revision
that was healthy, and the revisions that were rolled back. `memory` lives as long as the process and may be lost at any
moment: then every clock starts from zero, which rolls back later, never sooner.

The rules (docs/concepts.md, "Safety rules"):
- Only pods of the new revision on Ready nodes are judged (rule 2: what runs on a node that is not Ready says nothing
  about the revision). On each node the limit runs from when the previous pod started to terminate, where the two cannot
  run side by side; but the new pod gets at least OWN_SECONDS, or the limit where that is less. Where the last good
  revision was slow to start it gets longer, whatever the limit (`decide.limits`).
- Clocks stand still while etcd is down (rule 9) or while the observations may be stale (rule 2).
- DaemonSets (API servers, kube-proxy, the network) succeed when a pod has been Ready without interruption for
  PROVEN_SECONDS on every Ready node that needs one (for SETTLE_SECONDS while there is no last good revision). So does
  CoreDNS, a Deployment of which any node may have any number of pods: when as many pods as are wanted exist, and each
  one on a Ready node has been Ready for as long, at least one. Pods for which there is no node, or none that is Ready,
  say nothing: there may be too few nodes. With no pods wanted nothing is judged. Scheduler and
  controller-manager succeed when a pod of the new revision has led: their readiness proves nothing. A Ready pod of
  theirs is judged once the lease has been free for it to take for REACH_SECONDS: not while an old pod or a standby
  leads that has not given way. A pod that did not take a free lease is judged from then on, whoever leads.
- An API server that has served is not rolled back for a blip: only when it was not Ready for BLIP_SECONDS in total.
- What runs on workers is known only from their kubelets. A single worker neither causes a rollback nor prevents
  success: the node may be faulty, or belong to somebody who wants to block rollouts. Two workers, or one control node,
  are evidence against the revision. So are two workers that have lacked a DaemonSet's pod for OWN_SECONDS in all, since
  each is ended as soon as it is made: else they would hold up the rollout forever. It is not condemned, as the cause
  may be outside of it. Workers on which the previous pod does not finish terminating are no evidence, and prevent
  nothing, however many they are; those on which one of the revision does not are none for ENDING_SECONDS. Workers that
  are neither well nor evidence for so long in all that HELD_SECONDS are over prevent nothing, either. A Deployment that
  has pods on no other node fails there, and stays. A hosted kubelet's revision that may be in force on no control node,
  or on none that is Ready, is good once two workers have proven it; where it may be in force nowhere, it is not judged.
- A revision of which no pod is made at all for UNMADE_SECONDS is rolled back: admission refuses them, or a quota.
- A version that breaks the skew rules (rule 4) is rolled back at once.
- The target is the last revision that was healthy. A revision that was healthy once is never rolled back for later
  trouble, and without a target nothing is rolled back.
- A revision that was rolled back is rolled back at once when it is applied again, with a longer delay each time (GitOps
  loops); any other revision gets its full time. So does one of which no container ever ran (no image, no volume), since
  the cause may be outside of it; and any whose verdict has expired (`decide.failures`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from autarky.control.common.shapes import some
from autarky.control.rollout.decide.clocks import NO_CLOCK, Clock, Memory, advanced
from autarky.control.rollout.decide.failures import EXPIRES_SECONDS, Record
from autarky.control.rollout.decide.limits import UNMADE_SECONDS, Policy
from autarky.control.rollout.decide.observed import Leader, Observed, Pod

PROVEN_SECONDS = 40.0
"""How long an API server must have been Ready without interruption, as for a checkpoint: a revision that exits half a
minute after each start (by its liveness check, or a memory limit) must not replace one that ran for days."""
SETTLE_SECONDS = 10.0
"""The same while no revision is known to be good: as long as the node agents wait before they withdraw the standby."""
BLIP_SECONDS = 10.0
"""How long in total an API server that has served may be not Ready before it is proven."""
HELD_SECONDS = 450.0
"""How much longer than the limits workers that are well now and then may keep a revision on trial, all of them
together. By then those on which it fails have been blamed, also where its pods are slow to end."""
WITNESSES = 2
"""How many untrusted nodes must fail for the revision to be blamed."""


class Verdict(Enum):
    WAIT = "wait"
    HEALTHY = "healthy"
    KEEP_AS_GOOD = "keep as the last good revision"
    ROLL_BACK = "roll back"
    FAILED = "failed, and stays"


@dataclass(frozen=True, slots=True)
class Decision:
    """record: what must be stored before anything else is done; pod: the one that failed, if any.

    settled: nothing will change without a new observation. left: seconds in which it is decided at the latest, as long
    as the pods that there are now stay as they are; None where that is not known.
    """

    verdict: Verdict
    memory: Memory
    record: Record
    sentence: str
    pod: Pod | None = None
    settled: bool = False
    left: float | None = None


def decide(observed: Observed, memory: Memory, record: Record, policy: Policy, now: float) -> Decision:
    """See the module's contract. `now`: monotonic seconds."""
    policy = policy.after(record.start)
    memory = _met(observed.revision, memory, record, now)
    if memory.expired:
        record = record.without(observed.revision)
    if observed.revision == record.good:
        memory = Memory(observed.revision, now, gone=memory.gone)
        return Decision(Verdict.HEALTHY, memory, record, "this revision is the last good one", settled=True)
    if observed.replicas == 0:
        memory = replace(memory, looked=None)
        return Decision(Verdict.HEALTHY, memory, record, "no pods are wanted: nothing is judged", settled=True)
    if not observed.etcd_up or not observed.known:
        why = "what the operator sees may be stale" if observed.etcd_up else "etcd is down"
        return Decision(Verdict.WAIT, replace(memory, looked=None), record, f"{why}: nothing is judged")
    if observed.skew:
        return _failed(observed.skew, None, memory, record, policy, now, by_skew=True)
    settle = SETTLE_SECONDS if record.good is None else PROVEN_SECONDS
    return _judge(observed, advanced(observed, memory, settle, now), record, policy, now)


def _met(revision: str, memory: Memory, record: Record, now: float) -> Memory:
    """The memory for this revision: a new one where another revision was wanted before."""
    gone = {one.revision: memory.gone.get(one.revision, now) for one in record.failures if one.revision != revision}
    if memory.revision == revision:
        return replace(memory, gone=gone)
    expired = now - memory.gone.get(revision, now) >= EXPIRES_SECONDS
    return Memory(revision, since=now, gone=gone, expired=expired)


def _judge(observed: Observed, memory: Memory, record: Record, policy: Policy, now: float) -> Decision:
    if (but := _has_succeeded(observed, memory, policy)) is not None:
        where = f" (except on {but})" if but else ""
        sentence = f"revision {observed.revision} is healthy{where}: it is now the last good one"
        record = record.with_good(observed.revision, _slowest_start(memory))
        return Decision(Verdict.KEEP_AS_GOOD, memory, record, sentence)
    before = record.failure(observed.revision)
    # What workers alone have condemned is tried again where they no longer count.
    is_theirs = before is not None and before.by_workers and all(observed.trusts(node) for node in observed.nodes)
    if before is not None and before.condemns and not is_theirs:
        return _failed(before.sentence, None, memory, record, policy, now, by_workers=before.by_workers)
    memory = replace(memory, late=_not_proven_since(observed, memory, policy))
    late = _blamed(observed, _late(observed, memory, policy), memory)
    if late is not None:
        never_ran = _never_ran(observed, memory)
        theirs = not observed.trusts(late.node)
        return _failed(_blame(late, policy), late, memory, record, policy, now, never_ran=never_ran, by_workers=theirs)
    if sentence := _lacks_pods(observed, memory, policy):
        return _failed(sentence, None, memory, record, policy, now, never_ran=True, by_workers=not observed.due)
    if (alone := _fails_on_the_only_node(observed, memory, policy)) is not None:
        sentence = f"{_blame(alone, policy)}; a single worker causes no rollback, and no other node has a pod of it"
        return Decision(Verdict.FAILED, memory, record, sentence, alone)
    settled = not observed.pods and not observed.waiting and not observed.due
    said = _progress(observed, memory, policy)
    return Decision(Verdict.WAIT, memory, record, said, settled=settled, left=_left(observed, memory, policy))


def never_served(observed: Observed, memory: Memory) -> frozenset[str]:
    """The names of the pods that cannot be serving requests: their graceful termination need not be awaited."""
    return frozenset(
        pod.name for pod in observed.pods if not pod.ready and not memory.clocks.get(pod.key, NO_CLOCK).served
    )


# --- verdicts ----------------------------------------------------------------------------------------


def _has_succeeded(observed: Observed, memory: Memory, policy: Policy) -> str | None:
    """None: not yet. Else on which workers it has not succeeded, which do not count; "" where it has on all nodes."""
    if observed.lease is not None:
        # The lease was renewed while no other process could have done it.
        has_led = memory.new_leads_from is not None and observed.lease.version != memory.new_leads_from
        return "" if has_led else None
    if observed.made < (observed.replicas or 0):
        return None
    lacking = _unproven(observed, memory)
    proven = len(observed.places - lacking)
    if proven < (WITNESSES if observed.by_two else 1):
        return None
    others = [node for node in lacking if not _has_never_had_one(node, observed, memory, policy)]
    if memory.held >= HELD_SECONDS + policy.longest + policy.own:
        others = [node for node in others if observed.trusts(node)]
    if len(others) > 1 or any(observed.trusts(one) or not _lags(one, observed, memory, policy) for one in others):
        return None
    if len(lacking) > 1:
        return f"workers that hold it up: {', '.join(sorted(lacking))}"
    return "".join(f"{alone}, a single worker" for alone in lacking)


def _has_never_had_one(node: str, observed: Observed, memory: Memory, policy: Policy) -> bool:
    """Whether it is a worker whose previous pod does not finish terminating: that says nothing about the revision, on
    however many."""
    clock = memory.clocks.get(node, NO_CLOCK)
    stuck = node in observed.waiting & observed.ending and clock.waited >= policy.longest
    return stuck and not clock.has_had_one and not observed.trusts(node)


def _unproven(observed: Observed, memory: Memory) -> frozenset[str]:
    """The nodes where the revision has yet to prove itself; a worker whose pod is not Ready now, or not there, has not,
    whatever it was."""
    unready = {pod.node for pod in observed.pods if not pod.ready}
    down = {node for node in observed.waiting | unready if not observed.trusts(node)}
    if observed.replicas is None:
        never = {node for node in observed.nodes if not memory.clocks.get(node, NO_CLOCK).proven}
    else:
        never = {pod.node for pod in observed.pods if not memory.clocks.get(pod.key, NO_CLOCK).proven}
    return frozenset(never | (down & observed.places))


def _slowest_start(memory: Memory) -> float | None:
    return max((clock.start for clock in memory.clocks.values() if clock.start is not None), default=None)


def _lags(node: str, observed: Observed, memory: Memory, policy: Policy) -> bool:
    """Whether the revision's time there is up: also where the previous pod does not finish terminating, or each one is
    ended as soon as it is made; and on a worker whose pod is unready for a moment, again and again."""
    if any(pod.node == node for pod in _late(observed, memory, policy)):
        return True
    if observed.replicas is not None:  # a worker may have its pod replaced again and again, and none is ever late
        return memory.watched >= policy.longest
    clock = memory.clocks.get(node, NO_CLOCK)
    is_held_up = node in observed.ending | observed.bare or not observed.trusts(node)
    return is_held_up and clock.waited + clock.judged >= policy.longest


def _late(observed: Observed, memory: Memory, policy: Policy) -> list[Pod]:
    """The pods whose time is up."""
    late = []
    for pod in observed.pods:
        clock = memory.clocks.get(pod.key, NO_CLOCK)
        settles = observed.lease is None and _settles(pod, clock, trusted=observed.trusts(pod.node))
        had_its_time = clock.judged >= policy.own and clock.waited + clock.judged >= policy.longest
        if had_its_time and not settles and _may_be_blamed(pod, observed, memory):
            late.append(pod)
    return late


def _where_none_stays(observed: Observed, memory: Memory, policy: Policy) -> frozenset[str]:
    """The workers whose time is up though no pod is there to be late: each one is ended as soon as it is made. (Not
    those that lack one for a moment, as when pods are deleted while their controller begins again.)"""
    clocks = {node: memory.clocks.get(node, NO_CLOCK) for node in observed.waiting if not observed.trusts(node)}
    return frozenset(
        node
        for node, clock in clocks.items()
        if clock.lacked >= policy.own and clock.waited + clock.judged >= policy.longest
    )


def _not_proven_since(observed: Observed, memory: Memory, policy: Policy) -> frozenset[str]:
    """Where the time of a pod is up, or was, or that of a worker on which none stays."""
    now = {pod.node for pod in _late(observed, memory, policy)} | _where_none_stays(observed, memory, policy)
    return (memory.late | now) & _unproven(observed, memory)


def _blamed(observed: Observed, late: Sequence[Pod], memory: Memory) -> Pod | None:
    """The pod because of which the revision is rolled back."""
    trusted = [pod for pod in late if observed.trusts(pod.node)]
    enough = trusted or (late if len(memory.late) >= WITNESSES else [])
    return enough[0] if enough else None


def _lacks_pods(observed: Observed, memory: Memory, policy: Policy) -> str:
    """How it has failed without a pod that could be blamed; empty where it has not."""
    if len(memory.late) >= WITNESSES and _where_none_stays(observed, memory, policy):
        where = ", ".join(sorted(memory.late))
        return f"it was not healthy on {where} within {policy.longest:.0f} s: no pod of it is made, or stays, there"
    if memory.unmade >= max(UNMADE_SECONDS, policy.longest):
        return f"no pod of it was made within {memory.unmade:.0f} s: events of its controller say why"
    return ""


def _fails_on_the_only_node(observed: Observed, memory: Memory, policy: Policy) -> Pod | None:
    """A pod of a Deployment of which no other node has any, so that no other node will decide."""
    late = _late(observed, memory, policy) if observed.replicas is not None else []
    return late[0] if late and len(observed.places) == 1 else None


def _may_be_blamed(pod: Pod, observed: Observed, memory: Memory) -> bool:
    """A Ready pod of scheduler or controller-manager only when it did not take a free lease."""
    return not pod.ready or observed.lease is None or pod.name in memory.missed


def _never_ran(observed: Observed, memory: Memory) -> bool:
    """Whether no unhealthy pod has ever run, so that they say nothing about the revision."""
    ill = [pod for pod in observed.pods if not pod.ready]
    served = any(memory.clocks.get(pod.key, NO_CLOCK).served for pod in ill)
    return bool(ill) and all(pod.never_ran for pod in ill) and not served


def _settles(pod: Pod, clock: Clock, *, trusted: bool) -> bool:
    """Whether an API server may yet prove itself, or has: it is Ready, or was and is briefly not Ready. What a worker
    has proven counts while it lasts."""
    return pod.ready or (trusted and clock.proven) or (clock.served and clock.away < BLIP_SECONDS)


def _blame(pod: Pod, policy: Policy) -> str:
    where = f"pod {pod.name} on {pod.node}"
    if pod.ready:
        return f"{where} is Ready, but no pod of this revision has led within {policy.longest:.0f} s"
    trouble = f": {pod.trouble}" if pod.trouble else ""
    return f"{where} was not healthy within {policy.longest:.0f} s{trouble}"


def _failed(
    sentence: str,
    pod: Pod | None,
    memory: Memory,
    record: Record,
    policy: Policy,
    now: float,
    *,
    by_skew: bool = False,
    never_ran: bool = False,
    by_workers: bool = False,
) -> Decision:
    if not policy.enabled:
        return Decision(Verdict.FAILED, memory, record, f"{sentence}; rolling back is switched off", pod, settled=True)
    if record.good is None or memory.revision is None:
        message = f"{sentence}; there is no last good revision to roll back to"
        return Decision(Verdict.FAILED, memory, record, message, pod)
    before = record.failure(memory.revision)
    if before is not None and now - memory.since < before.delay:
        message = f"applied again after {before.count} rollbacks, is about to be rolled back again: {sentence}"
        return Decision(Verdict.WAIT, memory, record, message, pod)
    after = record.with_failure(memory.revision, sentence, by_skew=by_skew, never_ran=never_ran, by_workers=by_workers)
    message = sentence if before is None else f"applied again although it was rolled back before: {sentence}"
    return Decision(Verdict.ROLL_BACK, memory, after, message, pod)


def _left(observed: Observed, memory: Memory, policy: Policy) -> float | None:
    """Until each pod is proven, or its time is up."""

    def of(pod: Pod) -> float:
        clock = memory.clocks.get(pod.key, NO_CLOCK)
        if pod.ready and observed.lease is None:
            return 0.0 if clock.proven else PROVEN_SECONDS - clock.ready
        return max(policy.own - clock.judged, policy.longest - clock.waited - clock.judged)

    return max((max(0.0, of(pod)) for pod in observed.pods), default=None)


def _progress(observed: Observed, memory: Memory, policy: Policy) -> str:
    if observed.idle and all(pod.ready for pod in observed.pods):
        return f"its pod on {', '.join(sorted(observed.idle))} waits for its turn"
    if observed.refused and observed.by_two:
        where = some(observed.refused)
        return (
            f"it may not be in force on {where}, nor is it tried on a control node: two workers would have to prove it"
        )
    if not observed.pods:
        what = "was made" if observed.due else "is on a Ready node"
        return f"no pod of this revision {what} yet"
    if observed.lease is not None and observed.lease.leader is Leader.STANDBY and not memory.missed:
        return "a standby leads: Ready pods of this revision are not judged until it has given way"
    if late := _late(observed, memory, policy):
        return f"{_blame(late[0], policy)}; a single worker causes no rollback: the other nodes decide"
    clocks = [memory.clocks.get(pod.key, NO_CLOCK) for pod in observed.pods]
    slowest = max(clock.waited + clock.judged for clock in clocks)
    what = "to lead" if observed.lease is not None else "to be healthy"
    return f"waiting for this revision {what}: {slowest:.0f} s of {policy.longest:.0f} s"
