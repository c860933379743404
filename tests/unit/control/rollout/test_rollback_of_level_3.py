"""Scheduler and controller-manager: a pod is blamed only for a lease that it could have taken."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from autarky.control.rollout.decide.clocks import LEASE_IS_OLD, REACH_SECONDS, Memory
from autarky.control.rollout.decide.failures import Record
from autarky.control.rollout.decide.limits import Policy
from autarky.control.rollout.decide.observed import Leader, Lease, Observed, Pod
from autarky.control.rollout.decide.verdict import Decision, Verdict, decide

LIMIT = 90


@dataclass
class Watch:
    """Looks once a second at one Ready pod of a new revision."""

    now: float = 1000.0
    memory: Memory = field(default_factory=Memory)
    renewals: int = 0

    def look(self, leader: Leader, *, free: bool = False, renewed: bool = True, ready: bool = True) -> Decision:
        self.now += 1
        self.renewals += renewed
        lease = Lease(leader, "released" if free else f"v{self.renewals}", free)
        pods = (Pod("new", "n1", ready),)
        seen = Observed("new", known=True, etcd_up=True, nodes=frozenset({"n1"}), pods=pods, lease=lease)
        found = decide(seen, self.memory, Record("good"), Policy(limit=LIMIT), self.now)
        self.memory = found.memory
        return found

    def verdicts(self, leader: Leader, seconds: int, *, free: bool = False, renewed: bool = True) -> list[Verdict]:
        return [self.look(leader, free=free, renewed=renewed).verdict for _ in range(seconds)]


def test_a_pod_is_not_blamed_while_a_standby_leads_that_does_not_give_way_to_it():
    """The standby of a node without a pod of its own stays as long as nobody tells it of another."""
    watch = Watch()
    assert set(watch.verdicts(Leader.STANDBY, 1000)) == {Verdict.WAIT}
    assert "a standby leads" in watch.look(Leader.STANDBY).sentence


def test_a_pod_that_takes_the_lease_when_the_standby_gives_way_is_good():
    watch = Watch()
    watch.verdicts(Leader.STANDBY, 300)
    watch.verdicts(Leader.OTHER, 2, free=True)
    assert watch.verdicts(Leader.NEW, 2)[-1] is Verdict.KEEP_AS_GOOD


def test_a_pod_that_let_the_released_lease_pass_is_blamed_although_the_standby_leads_again():
    watch = Watch()
    watch.verdicts(Leader.STANDBY, 300)
    watch.verdicts(Leader.OTHER, int(REACH_SECONDS) + 1, free=True)
    verdicts = watch.verdicts(Leader.STANDBY, LIMIT)
    assert Verdict.ROLL_BACK in verdicts
    assert verdicts.index(Verdict.ROLL_BACK) >= LIMIT - REACH_SECONDS - 2


def test_a_pod_that_is_not_ready_just_when_it_should_lead_is_blamed_too():
    """A scheduler that waits for what its API server does not have is Ready as long as another one leads."""
    watch = Watch()
    watch.verdicts(Leader.STANDBY, 60)
    for _ in range(int(REACH_SECONDS) + 1):
        watch.look(Leader.OTHER, free=True, ready=False)
    assert Verdict.ROLL_BACK in watch.verdicts(Leader.STANDBY, LIMIT)


def test_a_pod_that_has_just_started_is_not_blamed_for_a_lease_that_was_free_before():
    watch = Watch()
    for _ in range(20):
        watch.look(Leader.OTHER, free=True, ready=False)
    assert set(watch.verdicts(Leader.STANDBY, 300)) == {Verdict.WAIT}


def test_a_lease_that_was_released_for_a_moment_only_is_no_reason_to_blame():
    """Another candidate was faster, and that was a standby."""
    watch = Watch()
    for _ in range(50):
        watch.verdicts(Leader.OTHER, int(REACH_SECONDS) - 1, free=True)
        assert set(watch.verdicts(Leader.STANDBY, 30)) == {Verdict.WAIT}


def test_a_standby_that_fell_silent_excuses_nobody():
    watch = Watch()
    watch.verdicts(Leader.STANDBY, 10)
    verdicts = watch.verdicts(Leader.STANDBY, LIMIT + int(LEASE_IS_OLD) + 5, renewed=False)
    assert Verdict.ROLL_BACK in verdicts


def test_a_pod_that_crashes_is_blamed_although_a_standby_leads():
    watch = Watch()
    assert Verdict.ROLL_BACK in [watch.look(Leader.STANDBY, ready=False).verdict for _ in range(LIMIT + 2)]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([Leader.OLD, Leader.STANDBY, Leader.OTHER]), st.booleans(), st.integers(1, 40)),
        max_size=40,
    )
)
def test_no_ready_pod_goes_back_that_never_had_the_lease_within_reach(history):
    watch, within_reach, longest = Watch(), 0, 0
    for leader, released, seconds in history:
        free = released and leader is Leader.OTHER
        for _ in range(seconds):
            within_reach = within_reach + 1 if free else 0
            longest = max(longest, within_reach)
            if watch.look(leader, free=free).verdict is Verdict.ROLL_BACK:
                assert longest >= REACH_SECONDS
