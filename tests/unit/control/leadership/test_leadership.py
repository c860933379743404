"""Level 3 judged by its lease, on a simulated node: nobody is left without a leader, and nothing flaps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from autarky.control.leadership.decide.leader import (
    AFTER_OUTAGE_SECONDS,
    CANDIDATE_SECONDS,
    EXPIRY_MARGIN,
    RELEASED_SECONDS,
    RENEWED_SECONDS,
    SETTLE_SECONDS,
    TRUSTED_AGAIN_SECONDS,
    Lease,
    LeaseMemory,
    Seen,
    decide,
)
from autarky.control.slots.decide.pivot import Action, Health, Slot
from autarky.model import patience

DURATION = 15.0
HELD = Lease("n1_a", "0", DURATION)
SEEN = Seen(hosted=Health.READY, hosted_pod="pod", standby_active=False, lease=HELD, readable=True)


def after(seconds: float, seen: Seen, memory: LeaseMemory | None = None):
    """The second of two equal looks, so many seconds apart."""
    first = decide(Slot.HOSTED, seen, memory or LeaseMemory(), 100.0)
    return decide(Slot.HOSTED, seen, first.memory, 100.0 + seconds)


def test_a_lease_that_nobody_renews_activates_the_standby_after_its_duration():
    gone = replace(SEEN, hosted=Health.ABSENT, hosted_pod=None)
    for seen, late in ((SEEN, DURATION + EXPIRY_MARGIN + CANDIDATE_SECONDS), (gone, DURATION + EXPIRY_MARGIN)):
        assert after(late, seen).decision.actions == ()
        assert after(late + 0.1, seen).decision.actions == (Action.ACTIVATE_STANDBY,)


def test_a_released_lease_that_nobody_takes_activates_the_standby_soon():
    seen = replace(SEEN, lease=replace(HELD, holder=""), hosted=Health.ABSENT, hosted_pod=None)
    assert after(RELEASED_SECONDS, seen).decision.actions == ()
    assert after(RELEASED_SECONDS + 0.1, seen).decision.actions == (Action.ACTIVATE_STANDBY,)


THERE = replace(SEEN, standby_active=True)
FAILED_AT = 160.0
"""When the pod of `after(60, SEEN)` was found not to lead."""


def follow(seen: Seen, memory: LeaseMemory, begin: float, end: float):
    """Looks once a second at a lease that is renewed once a second: (when, action) of each action, and the memory."""
    actions = []
    for now in range(int(begin), int(end) + 1):
        found = decide(Slot.HOSTED, replace(seen, lease=replace(HELD, renewed=str(now))), memory, float(now))
        memory = found.memory
        actions += [(now, action) for action in found.decision.actions]
    return actions, memory


def test_a_pod_that_was_ready_and_did_not_lead_is_not_waited_for():
    """A scheduler newer than its API servers stays Ready permanently."""
    actions, memory = follow(THERE, after(60, SEEN).memory, FAILED_AT, FAILED_AT + TRUSTED_AGAIN_SECONDS - 1)
    assert actions == []
    assert "did not lead" in decide(Slot.HOSTED, THERE, memory, FAILED_AT + 1).decision.sentence
    other = replace(THERE, hosted_pod="another pod")
    assert after(SETTLE_SECONDS, other, memory).decision.actions == (Action.WITHDRAW_STANDBY,)


def test_a_pod_that_did_not_lead_gets_another_chance_ever_more_rarely():
    actions, memory = follow(THERE, after(60, SEEN).memory, FAILED_AT, FAILED_AT + TRUSTED_AGAIN_SECONDS)
    again = FAILED_AT + TRUSTED_AGAIN_SECONDS
    assert actions == [(again, Action.WITHDRAW_STANDBY)]
    released = replace(SEEN, lease=replace(HELD, holder=""))
    first = decide(Slot.HOSTED, released, memory, again + 1)
    second = decide(Slot.HOSTED, released, first.memory, again + 10)
    assert second.decision.actions == (Action.ACTIVATE_STANDBY,)
    third = decide(Slot.HOSTED, released, second.memory, again + 11)  # the standby is not there yet
    actions, _ = follow(THERE, third.memory, again + 12, again + 10 + 2 * TRUSTED_AGAIN_SECONDS)
    assert actions == [(again + 10 + 2 * TRUSTED_AGAIN_SECONDS, Action.WITHDRAW_STANDBY)]


def test_the_standby_beside_a_pod_that_did_not_lead_goes_when_another_node_leads():
    """On a starved machine a candidate may be late, and another node takes the lease."""
    actions, _ = follow(replace(THERE, elsewhere=True), after(60, SEEN).memory, FAILED_AT, FAILED_AT + 60)
    assert actions[0] == (FAILED_AT + SETTLE_SECONDS, Action.WITHDRAW_STANDBY)


def test_that_a_pod_did_not_lead_is_remembered_for_as_long_as_it_is_there():
    """Also while another node leads: its standby must not become a copy of it."""
    end = FAILED_AT + 3 * TRUSTED_AGAIN_SECONDS
    _, memory = follow(replace(THERE, elsewhere=True), after(60, SEEN).memory, FAILED_AT, end)
    assert memory.failed.pod == "pod"
    _, memory = follow(replace(THERE, elsewhere=True, hosted_pod="another pod"), memory, end, end + 1)
    assert memory.failed is None


def test_without_an_api_the_clock_restarts():
    first = decide(Slot.HOSTED, SEEN, LeaseMemory(), 0.0)
    blind = decide(Slot.HOSTED, replace(SEEN, readable=False), first.memory, 1000.0)
    assert blind.decision.actions == ()
    assert decide(Slot.HOSTED, SEEN, blind.memory, 1001.0).decision.actions == ()


def test_after_an_outage_a_hosted_pod_has_time_to_find_the_api_again():
    """Rule 9: it ended when it could not renew, and waits for the lease's duration from when it sees it again."""
    blind = decide(Slot.HOSTED, replace(SEEN, readable=False), LeaseMemory(), 0.0).memory
    late = DURATION + EXPIRY_MARGIN + AFTER_OUTAGE_SECONDS
    assert after(late, SEEN, blind).decision.actions == ()
    found = after(late + 0.1, SEEN, blind)
    assert found.decision.actions == (Action.ACTIVATE_STANDBY,)
    assert found.memory.failed is None
    gone = replace(SEEN, hosted=Health.ABSENT, hosted_pod=None)
    assert after(DURATION + EXPIRY_MARGIN + 0.1, gone, blind).decision.actions == (Action.ACTIVATE_STANDBY,)


def test_once_the_lease_is_renewed_the_outage_is_over():
    blind = decide(Slot.HOSTED, replace(SEEN, readable=False), LeaseMemory(), 0.0).memory
    first = decide(Slot.HOSTED, SEEN, blind, 1.0).memory
    renewed = replace(SEEN, lease=replace(HELD, renewed="1"))
    late = DURATION + EXPIRY_MARGIN + CANDIDATE_SECONDS
    assert after(late + 0.1, renewed, first).decision.actions == (Action.ACTIVATE_STANDBY,)


def test_a_standby_stays_until_somebody_leads():
    """Rule 1: that a pod is Ready does not mean that it leads."""
    there = replace(SEEN, standby_active=True)
    assert after(DURATION + EXPIRY_MARGIN + 0.1, there).decision.actions == ()
    assert after(SETTLE_SECONDS, there).decision.actions == (Action.WITHDRAW_STANDBY,)


@given(st.sampled_from(Health), st.booleans(), st.none() | st.just(HELD))
def test_unknown_is_not_down(hosted, standby_active, lease):
    """Rule 2: what cannot be seen changes nothing, however long it lasts."""
    seen = Seen(hosted, "pod", standby_active, lease, readable=False)
    assert after(10_000, seen).decision.actions == ()
    assert after(10_000, replace(seen, readable=True, standby_active=None)).decision.actions == ()


@given(st.sampled_from([health for health in Health if health is not Health.READY]), st.floats(0, 10_000))
def test_a_standby_is_never_withdrawn_while_no_hosted_pod_is_ready(hosted, seconds):
    """Rule 1."""
    seen = replace(SEEN, hosted=hosted, standby_active=True)
    assert Action.WITHDRAW_STANDBY not in after(seconds, seen).decision.actions


def test_a_level_that_is_not_hosted_keeps_its_standby():
    seen = replace(SEEN, hosted=Health.ABSENT, hosted_pod=None)
    assert decide(Slot.STANDBY, seen, LeaseMemory(), 0.0).decision.actions == (Action.ACTIVATE_STANDBY,)
    assert decide(Slot.STANDBY, replace(seen, standby_active=True), LeaseMemory(), 0.0).decision.settled


class Node(RuleBasedStateMachine):
    """Whoever is able to lead renews the lease at every look; the pods come, go, and may be unable to lead. Another
    node may lead for a while, and the agent may be killed, which forgets everything. Before a standby is activated the
    API is asked once more, and its answer may be slow: the memory stays as it was until then."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.renewals = 0
        self.hosted = Health.READY
        self.pod = 0
        self.able = True
        self.api = True
        self.looks_to_answer = 0
        self.asked: int | None = None
        self.standby = False
        self.memory = LeaseMemory()
        self.lease = Lease("n1_hosted", "0", DURATION)
        self.leaderless_since: float | None = None
        self.withdrawals: dict[int, int] = {}
        self.cut_off = False
        self.outages: dict[int, int] = {}
        self.other_leads = False
        self.other_led: float | None = None

    @rule(health=st.sampled_from(Health), able=st.booleans())
    def a_new_pod_comes(self, health: Health, able: bool) -> None:
        self.pod += 1
        self.hosted, self.able = health, able

    @rule(health=st.sampled_from(Health))
    def the_pod_changes(self, health: Health) -> None:
        self.hosted = health

    @rule(leads=st.booleans())
    def another_node_leads_or_not(self, leads: bool) -> None:
        self.other_leads = leads

    @rule()
    def the_agent_is_killed(self) -> None:
        self.memory, self.asked = LeaseMemory(), None
        self.outages[self.pod] = self.outages.get(self.pod, 0) + 1
        if self.leaderless_since is not None:
            self.leaderless_since = self.now

    @rule(up=st.sampled_from([True, True, False]))
    def the_api_comes_or_goes(self, up: bool) -> None:
        self.api = up

    @rule(looks=st.integers(0, int(patience.LEASE_LOOK / 0.5)))
    def the_api_answers_after(self, looks: int) -> None:
        self.looks_to_answer = looks

    @rule(looks=st.integers(1, 80))
    def time_passes(self, looks: int) -> None:
        for _ in range(looks):
            self.one_look()

    def one_look(self) -> None:
        self.now += 0.5
        leads = self.other_leads or self.standby or (self.hosted is Health.READY and self.able)
        if leads and self.api:
            self.renewals += 1
            self.lease = Lease("n2_x" if self.other_leads else "n1_x", str(self.renewals), DURATION)
            self.other_led = self.now if self.other_leads else self.other_led
        judged = self.api and self.hosted is not Health.UNKNOWN
        if not self.api and not self.cut_off:
            self.outages[self.pod] = self.outages.get(self.pod, 0) + 1
        self.cut_off = not judged or (self.cut_off and not leads)
        self.leaderless_since = None if leads or not judged else (self.leaderless_since or self.now)
        elsewhere = self.lease.holder == "n2_x"
        seen = Seen(self.hosted, str(self.pod), self.standby, self.lease, self.api, elsewhere)
        found = decide(Slot.HOSTED, seen, self.memory, self.now)
        if not self.is_confirmed(found.decision.actions):
            return
        self.memory = found.memory
        for action in found.decision.actions:
            self.standby = action is Action.ACTIVATE_STANDBY
            if not self.standby:
                self.judge_withdrawal()

    def is_confirmed(self, actions: tuple[Action, ...]) -> bool:
        if Action.ACTIVATE_STANDBY not in actions:
            self.asked = None
            return True
        left = self.looks_to_answer if self.asked is None else self.asked
        self.asked = left - 1 if left else None
        return left == 0

    def judge_withdrawal(self) -> None:
        """Rule 1, as far as it can be seen: what takes its place is Ready here, or leads elsewhere."""
        led_elsewhere = self.other_led is not None and self.now - self.other_led < RENEWED_SECONDS
        assert self.hosted is Health.READY or led_elsewhere
        if not led_elsewhere:
            self.withdrawals[self.pod] = self.withdrawals.get(self.pod, 0) + 1

    @invariant()
    def somebody_leads_soon_when_it_can_be_seen_that_nobody_does(self) -> None:
        waited = self.now - self.leaderless_since if self.leaderless_since is not None else 0.0
        patient = AFTER_OUTAGE_SECONDS if self.cut_off else 0.0
        assert waited <= DURATION + EXPIRY_MARGIN + max(patient, CANDIDATE_SECONDS) + patience.LEASE_LOOK + 1.0

    @invariant()
    def a_pod_that_cannot_lead_is_tried_rarely(self) -> None:
        if not self.able:
            chances = int(self.now / TRUSTED_AGAIN_SECONDS)
            assert self.withdrawals.get(self.pod, 0) <= 1 + chances + self.outages.get(self.pod, 0)


Node.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestNode = Node.TestCase


# --- a node without a hosted pod of its own, among others -------------------------------------------------

STANDBY_ONLY = Seen(Health.ABSENT, None, standby_active=True, lease=HELD, readable=True, elsewhere=True)


def renewing(seconds: int, seen: Seen = STANDBY_ONLY, *, until: int = 1000):
    """A look each second at a lease that is renewed each second, until it is not any more."""
    memory, actions = LeaseMemory(), list[Any]()
    for second in range(seconds + 1):
        lease = replace(HELD, renewed=str(min(second, until)))
        found = decide(Slot.HOSTED, replace(seen, lease=lease), memory, float(second))
        memory = found.memory
        actions += found.decision.actions
    return actions


def test_where_no_hosted_pod_is_the_standby_goes_when_another_node_has_led_for_a_while():
    assert renewing(int(SETTLE_SECONDS) - 1) == []
    assert renewing(int(SETTLE_SECONDS)) == [Action.WITHDRAW_STANDBY]


def test_a_lease_of_another_node_that_nobody_renews_any_more_is_no_reason_to_go():
    assert renewing(60, until=2) == []


def test_a_standby_that_leads_itself_stays_where_no_hosted_pod_is():
    assert renewing(60, replace(STANDBY_ONLY, elsewhere=False)) == []
