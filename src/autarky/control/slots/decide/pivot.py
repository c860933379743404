"""Which slot of a component should run on a node: the first pivot after `up`, and every one after it.

Contract: `decide(wanted, seen, memory, now)` is pure. It returns the actions to carry out now, what to
remember until the next call, and one sentence that says what was seen and why.

The rules it keeps, in whatever order observations, failures and crashes come:
- nothing is torn down before its replacement has answered (rule 1): the standby is withdrawn only after the
  hosted slot answered on its own port and through the load balancer, without a break, for SETTLE seconds;
- unknown is not down (rule 2): an observation that failed, or that is too old, changes nothing;
- etcd is left out, and the clock stops while it is down (rule 9);
- the hosted slot itself is never stopped from here (rule 10).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

SETTLE_SECONDS = 1.0
"""How long the hosted slot must have answered without a break before the standby is withdrawn: three intervals
(0.3 s each) at which the load balancer checks a server of its own node that is down. The load balancers of other nodes
check once a second; the standby's drain is for them."""
WATCH_SECONDS = 10.0
"""The same once the node has pivoted: a hosted server that crashes soon after its start still has its standby."""


class Slot(Enum):
    HOSTED = "hosted"
    STANDBY = "standby"


class Health(Enum):
    """What is known about one slot. UNKNOWN: it could not be observed, which is never the same as ABSENT."""

    UNKNOWN = "unknown"
    ABSENT = "absent"
    NOT_READY = "not ready"
    TERMINATING = "terminating"
    READY = "ready"


class Action(Enum):
    ACTIVATE_STANDBY = "activate the standby"
    WITHDRAW_STANDBY = "withdraw the standby"


@dataclass(frozen=True, slots=True)
class Seen:
    """One node's observation of one component.

    hosted:   the hosted slot by its own port, never by a shared one.
    balanced: whether the load balancer sends new connections to the hosted slot; None where that does not apply
              (level 3 has no load balancer) or is not known yet: `balancer_applies` says which of the two.
    balancer_applies: whether clients reach this component through the load balancer.
    standby_active: whether the standby's manifest is in place; None when that could not be read.
    etcd_up:  False while etcd is known to be down.
    covered:  whether another node serves in place of this one, whose hosted slot has not served yet: a standby on
              each would cost as much processor as what starts there.
    """

    hosted: Health
    standby_active: bool | None
    balanced: bool | None = None
    balancer_applies: bool = False
    etcd_up: bool = True
    covered: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """What one call passes to the next: since when (monotonic seconds) the hosted slot has answered without a break."""

    answering_since: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    actions: tuple[Action, ...]
    memory: Memory
    sentence: str
    settled: bool
    """True when only the wanted slot runs and nothing is left to do."""


def settle_seconds(*, first: bool) -> float:
    """How long a hosted slot must have answered before its standby is withdrawn. first: it is the temporary control
    plane of `up`, and was not withdrawn before. Then both slots are of the same content, and `up` waits."""
    return SETTLE_SECONDS if first else WATCH_SECONDS


def decide(wanted: Slot, seen: Seen, memory: Memory, now: float, *, settle: float = SETTLE_SECONDS) -> Decision:
    """See the module's contract. `settle`: seconds for which the hosted slot must have answered, at least
    SETTLE_SECONDS."""
    if not seen.etcd_up:
        # The clock starts from zero when etcd is back: what was proven before does not count.
        return Decision((), Memory(), "etcd is down: nothing is judged", settled=False)
    if seen.standby_active is None or seen.hosted is Health.UNKNOWN:
        sentence = f"unknown: the hosted slot ({seen.hosted.value}) or the standby could not be observed"
        return Decision((), memory, sentence, settled=False)
    if wanted is Slot.STANDBY:
        return _want_standby(seen)
    if seen.hosted is not Health.READY:
        return _hosted_does_not_serve(seen)
    return _hosted_serves(seen, memory, now, max(settle, SETTLE_SECONDS))


def _want_standby(seen: Seen) -> Decision:
    """The hosted slot is not observed meanwhile: what it has proven does not count when it is wanted again."""
    if seen.standby_active:
        return Decision((), Memory(), "this level is not hosted: its standby is in place", settled=True)
    return Decision((Action.ACTIVATE_STANDBY,), Memory(), "this level is not hosted: its standby runs", settled=False)


def _hosted_does_not_serve(seen: Seen) -> Decision:
    sentence = f"the hosted slot is {seen.hosted.value}"
    if seen.standby_active:
        return Decision((), Memory(), f"{sentence}, the standby stays", settled=False)
    if seen.covered:
        return Decision((), Memory(), f"{sentence}, another node serves", settled=False)
    return Decision((Action.ACTIVATE_STANDBY,), Memory(), f"{sentence}, so the standby takes over", settled=False)


def _hosted_serves(seen: Seen, memory: Memory, now: float, settle: float) -> Decision:
    if not seen.standby_active:
        return Decision((), memory, "the hosted slot serves, the standby is dormant", settled=True)
    if seen.balancer_applies and not seen.balanced:
        return Decision((), Memory(), "the hosted slot answers, but not through the load balancer yet", settled=False)
    since = memory.answering_since if memory.answering_since is not None else now
    if now - since < settle:
        return Decision((), Memory(since), f"the hosted slot has answered for {now - since:.1f} s", settled=False)
    return Decision(
        (Action.WITHDRAW_STANDBY,),
        Memory(since),
        f"the hosted slot has answered for {now - since:.1f} s, so the standby is withdrawn",
        settled=False,
    )
