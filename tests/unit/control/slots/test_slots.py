"""The pivot's decision on a simulated node that fails in every way it can, step by step.

Every rule below is named after the safety rule (docs, «Safety rules») that it stands for.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from autarky.control.slots.decide.pivot import SETTLE_SECONDS, Action, Decision, Health, Memory, Seen, Slot, decide
from unit.control.machines import run_until_all_ways_are_gone

LONG_AGO = Memory(answering_since=0.0)
"""The hosted slot has answered without a break for as long as one likes."""
NOW = 1000.0
LOOKS = st.sampled_from([0.2, 0.4, 0.6, 1.0])
"""Seconds between two looks."""
TAKES_OVER, LEFT_TO_ANOTHER = "the standby takes over", "another node serves, so no standby comes"
GOES, PERMANENTLY = "the standby goes", "the standby comes permanently"


class Node(RuleBasedStateMachine):
    """One component on one node: what is true, what the agent remembers, and what it does.

    unbroken_since: since when every look has found the hosted slot serving while it was wanted, by the test's own
    book-keeping.
    """

    ways: ClassVar[Counter[str]] = Counter()
    """How often the machine came to what it is there to show."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.wanted = Slot.HOSTED
        self.covered = False
        self.hosted = Health.ABSENT
        self.balanced = False
        self.standby = True
        self.etcd_up = True
        self.memory = Memory()
        self.unbroken_since: float | None = None

    @initialize(balancer_applies=st.booleans(), standby=st.booleans(), covered=st.booleans())
    def starts(self, balancer_applies: bool, standby: bool, covered: bool) -> None:
        self.balancer_applies, self.standby, self.covered = balancer_applies, standby, covered

    # --- what happens to it ---

    @rule(health=st.sampled_from([Health.READY] * 5 + [Health.ABSENT, Health.NOT_READY, Health.TERMINATING]))
    def the_hosted_slot_changes(self, health: Health) -> None:
        self.hosted = health
        self.balanced = health is Health.READY

    @rule(balanced=st.booleans())
    def the_balancer_checks(self, balanced: bool) -> None:
        self.balanced = balanced and self.hosted is Health.READY

    @rule(wanted=st.sampled_from([Slot.HOSTED, Slot.HOSTED, Slot.STANDBY]))
    def the_level_changes(self, wanted: Slot) -> None:
        self.wanted = wanted

    @rule(covered=st.booleans())
    def another_node_serves_or_not(self, covered: bool) -> None:
        self.covered = covered

    @rule(up=st.sampled_from([True, True, False]))
    def etcd_comes_or_goes(self, up: bool) -> None:
        self.etcd_up = up

    @rule(seconds=LOOKS)
    def etcd_is_down_for_one_look(self, seconds: float) -> None:
        self.carry_out(self.observe(replace(self.view(), etcd_up=False), seconds))

    @rule(seconds=LOOKS)
    def the_standby_is_wanted_for_good_for_one_look(self, seconds: float) -> None:
        wanted, self.wanted = self.wanted, Slot.STANDBY
        self.the_agent_looks_and_acts(seconds)
        self.wanted = wanted

    @rule()
    def the_agent_is_killed(self) -> None:
        self.memory, self.unbroken_since = Memory(), None

    # --- what the agent does ---

    @rule(seconds=LOOKS)
    def the_agent_looks_and_acts(self, seconds: float) -> None:
        self.carry_out(self.observe(self.view(), seconds))

    @rule(seconds=LOOKS)
    def all_goes_well_for_a_while(self, seconds: float) -> None:
        """What single steps hardly ever come to: the hosted slot answers for as long as its standby waits for."""
        self.etcd_up, self.hosted, self.balanced = True, Health.READY, True
        for _ in range(1 + round(SETTLE_SECONDS / seconds + 0.5)):
            self.the_agent_looks_and_acts(seconds)

    @rule(seconds=LOOKS)
    def the_agent_is_killed_between_the_decision_and_the_act(self, seconds: float) -> None:
        self.observe(self.view(), seconds)
        self.the_agent_is_killed()

    @rule(seconds=LOOKS)
    def the_agent_is_killed_right_after_the_act(self, seconds: float) -> None:
        self.the_agent_looks_and_acts(seconds)
        self.the_agent_is_killed()

    @rule(seconds=LOOKS, what=st.sampled_from(["hosted", "standby_active", "balanced"]))
    def the_agent_looks_but_something_does_not_answer(self, seconds: float, what: str) -> None:
        unknown: Any = {"hosted": Health.UNKNOWN}.get(what)
        before = self.memory
        decision = self.observe(replace(self.view(), **{what: unknown}), seconds)
        if what != "balanced":
            assert decision.actions == (), "rule 2: unknown is not down"
            assert self.memory == (before if self.etcd_up else Memory())
        self.carry_out(decision)

    def view(self) -> Seen:
        return Seen(self.hosted, self.standby, self.balanced, self.balancer_applies, self.etcd_up, self.covered)

    def observe(self, seen: Seen, seconds: float) -> Decision:
        """Look `seconds` after the last time, decide, and keep the test's own books."""
        self.now += seconds
        decision = decide(self.wanted, seen, self.memory, self.now)
        self.memory = decision.memory
        answers = seen.hosted is Health.READY and (seen.balanced is True or not seen.balancer_applies)
        unknown = seen.hosted is Health.UNKNOWN or seen.standby_active is None
        if not seen.etcd_up or (not unknown and (not answers or self.wanted is Slot.STANDBY)):
            self.unbroken_since = None
        elif not unknown and self.unbroken_since is None:
            self.unbroken_since = self.now
        if Action.WITHDRAW_STANDBY in decision.actions:
            self.rule_1_nothing_is_torn_down_before_its_replacement_answered(seen)
        assert seen.etcd_up or not decision.actions, "rule 9: etcd is down"
        if self.wanted is Slot.STANDBY:
            self.a_standby_that_is_wanted_for_good_never_goes(decision)
        elif seen.covered and seen.standby_active is False and seen.hosted is not Health.READY:
            self.what_another_node_serves_gets_no_standby(decision)
        self.ways[TAKES_OVER] += self.wanted is Slot.HOSTED and Action.ACTIVATE_STANDBY in decision.actions
        return decision

    def rule_1_nothing_is_torn_down_before_its_replacement_answered(self, seen: Seen) -> None:
        assert seen.hosted is Health.READY
        assert seen.balanced is True or not seen.balancer_applies
        assert self.unbroken_since is not None
        assert self.now - self.unbroken_since >= SETTLE_SECONDS
        self.ways[GOES] += 1

    def a_standby_that_is_wanted_for_good_never_goes(self, decision: Decision) -> None:
        assert Action.WITHDRAW_STANDBY not in decision.actions
        self.ways[PERMANENTLY] += Action.ACTIVATE_STANDBY in decision.actions

    def what_another_node_serves_gets_no_standby(self, decision: Decision) -> None:
        assert decision.actions == ()
        self.ways[LEFT_TO_ANOTHER] += "another node serves" in decision.sentence

    def carry_out(self, decision: Decision) -> None:
        for action in decision.actions:
            self.standby = action is Action.ACTIVATE_STANDBY

    # --- what always holds ---

    @invariant()
    def rule_5_it_converges_as_soon_as_the_hosted_slot_stays_ready(self) -> None:
        """From wherever it is, with nothing more going wrong, within SETTLE_SECONDS and a few looks."""
        seen = Seen(Health.READY, self.standby, True, getattr(self, "balancer_applies", True), covered=self.covered)
        assert self.comes_to_rest(Slot.HOSTED, seen) is False

    @invariant()
    def rule_5_it_converges_to_a_standby_that_is_wanted_for_good(self) -> None:
        """Whatever becomes of the hosted slot."""
        seen = Seen(self.hosted, self.standby, False, getattr(self, "balancer_applies", True), covered=self.covered)
        assert self.comes_to_rest(Slot.STANDBY, seen) is True

    def comes_to_rest(self, wanted: Slot, seen: Seen) -> bool | None:
        """Whether the standby is in place when nothing is left to do; the machine itself stays where it is."""
        memory, now, settled = self.memory, self.now, False
        for _ in range(8):
            decision = decide(wanted, seen, memory, now)
            memory, settled = decision.memory, decision.settled
            for action in decision.actions:
                seen = replace(seen, standby_active=action is Action.ACTIVATE_STANDBY)
            now += SETTLE_SECONDS / 4
        assert settled
        return seen.standby_active

    @invariant()
    def rule_1_a_hosted_slot_that_does_not_serve_gets_its_standby_at_the_next_look(self) -> None:
        """Unless another node serves: then the next look is not at a node without servers."""
        if self.hosted is not Health.READY and self.etcd_up:
            seen = Seen(self.hosted, self.standby, None, balancer_applies=True, covered=self.covered)
            decision = decide(self.wanted, seen, self.memory, self.now)
            left_to_another = self.covered and self.wanted is Slot.HOSTED
            assert self.standby or left_to_another or decision.actions == (Action.ACTIVATE_STANDBY,)


def test_the_rules_hold_whatever_order_failures_and_crashes_come_in(seed: str) -> None:
    usual = settings(max_examples=200, stateful_step_count=40, deadline=None)
    run_until_all_ways_are_gone(Node, Node.ways, (TAKES_OVER, LEFT_TO_ANOTHER, GOES, PERMANENTLY), usual, seed)


def all_views() -> list[Seen]:
    return [
        Seen(hosted, standby, balanced, applies, etcd_up)
        for hosted, standby, balanced, applies, etcd_up in product(
            Health, (True, False, None), (True, False, None), (True, False), (True, False)
        )
    ]


@pytest.mark.parametrize("wanted", Slot)
def test_unknown_is_not_down_it_changes_nothing(wanted):
    for seen in all_views():
        if seen.etcd_up and (seen.hosted is Health.UNKNOWN or seen.standby_active is None):
            decision = decide(wanted, seen, LONG_AGO, NOW)
            assert decision.actions == ()
            assert decision.memory == LONG_AGO
            assert not decision.settled


@pytest.mark.parametrize("wanted", Slot)
def test_while_etcd_is_down_nothing_is_done_and_nothing_stays_proven(wanted):
    for seen in all_views():
        if not seen.etcd_up:
            decision = decide(wanted, seen, LONG_AGO, NOW)
            assert (decision.actions, decision.memory, decision.settled) == ((), Memory(), False)


def test_a_standby_that_is_wanted_for_good_is_activated_and_never_withdrawn():
    for seen in all_views():
        decision = decide(Slot.STANDBY, seen, LONG_AGO, NOW)
        assert Action.WITHDRAW_STANDBY not in decision.actions
        if seen.etcd_up and seen.hosted is not Health.UNKNOWN and seen.standby_active is False:
            assert (decision.actions, decision.memory) == ((Action.ACTIVATE_STANDBY,), Memory())


def test_the_standby_is_not_withdrawn_before_the_hosted_slot_answers_through_the_balancer():
    for balanced in (False, None):
        decision = decide(Slot.HOSTED, Seen(Health.READY, True, balanced, balancer_applies=True), LONG_AGO, NOW)
        assert (decision.actions, decision.memory) == ((), Memory())


def test_level_three_has_no_balancer_to_wait_for():
    decision = decide(Slot.HOSTED, Seen(Health.READY, True, None, balancer_applies=False), LONG_AGO, NOW)
    assert decision.actions == (Action.WITHDRAW_STANDBY,)


def test_the_standby_goes_once_the_hosted_slot_has_answered_for_long_enough_and_not_before():
    seen = Seen(Health.READY, True, True, balancer_applies=True)
    first = decide(Slot.HOSTED, seen, Memory(), NOW)
    assert first.actions == ()
    almost = decide(Slot.HOSTED, seen, first.memory, NOW + SETTLE_SECONDS - 0.01)
    assert almost.actions == ()
    then = decide(Slot.HOSTED, seen, almost.memory, NOW + SETTLE_SECONDS)
    assert then.actions == (Action.WITHDRAW_STANDBY,)
    assert not then.settled


def test_one_look_that_finds_it_not_ready_restarts_the_clock():
    broken = decide(Slot.HOSTED, Seen(Health.NOT_READY, True, True, True), LONG_AGO, NOW)
    assert broken.memory == Memory()


@pytest.mark.parametrize("health", [Health.ABSENT, Health.NOT_READY, Health.TERMINATING])
def test_the_standby_takes_over_as_soon_as_the_hosted_slot_fails(health):
    decision = decide(Slot.HOSTED, Seen(health, standby_active=False), LONG_AGO, NOW)
    assert decision.actions == (Action.ACTIVATE_STANDBY,)
    assert decision.sentence == f"the hosted slot is {health.value}, so the standby takes over"


def test_what_a_hosted_slot_proved_before_it_was_not_wanted_counts_for_nothing_afterwards():
    seen = Seen(Health.READY, standby_active=True, balanced=True, balancer_applies=True)
    meanwhile = decide(Slot.STANDBY, replace(seen, hosted=Health.ABSENT), LONG_AGO, NOW)
    assert decide(Slot.HOSTED, seen, meanwhile.memory, NOW + 1).actions == ()


def test_a_settled_node_is_left_alone():
    """Rule 5: a second run on a healthy cluster changes nothing."""
    decision = decide(Slot.HOSTED, Seen(Health.READY, False, True, True), Memory(), NOW)
    assert (decision.actions, decision.settled) == ((), True)
    decision = decide(Slot.STANDBY, Seen(Health.ABSENT, True), Memory(), NOW)
    assert (decision.actions, decision.settled) == ((), True)
