"""The pivot's decision on a simulated node that fails in every way it can, step by step.

Every rule below is named after the safety rule (docs, «Safety rules») that it stands for.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from autarky.decide.slots import SETTLE_SECONDS, Action, Decision, Health, Memory, Seen, Slot, decide

LONG_AGO = Memory(answering_since=0.0)
"""The hosted slot has answered without a break for as long as one likes."""
NOW = 1000.0
LOOKS = st.sampled_from([0.2, 0.4, 0.6, 1.0])
"""Seconds between two looks."""


class Node(RuleBasedStateMachine):
    """One component on one node: what is true, what the agent remembers, and what it does.

    unbroken_since: since when every look has found the hosted slot serving, by the test's own book-keeping.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.hosted = Health.ABSENT
        self.balanced = False
        self.standby = True
        self.etcd_up = True
        self.memory = Memory()
        self.unbroken_since: float | None = None

    @initialize(balancer_applies=st.booleans())
    def starts(self, balancer_applies: bool) -> None:
        self.balancer_applies = balancer_applies

    # --- what happens to it ---

    @rule(health=st.sampled_from([Health.READY] * 5 + [Health.ABSENT, Health.NOT_READY, Health.TERMINATING]))
    def the_hosted_slot_changes(self, health: Health) -> None:
        self.hosted = health
        self.balanced = health is Health.READY

    @rule(balanced=st.booleans())
    def the_balancer_checks(self, balanced: bool) -> None:
        self.balanced = balanced and self.hosted is Health.READY

    @rule(up=st.sampled_from([True, True, False]))
    def etcd_comes_or_goes(self, up: bool) -> None:
        self.etcd_up = up

    @rule(seconds=LOOKS)
    def etcd_is_down_for_one_look(self, seconds: float) -> None:
        self.carry_out(self.observe(replace(self.view(), etcd_up=False), seconds))

    @rule()
    def the_agent_is_killed(self) -> None:
        self.memory, self.unbroken_since = Memory(), None

    # --- what the agent does ---

    @rule(seconds=LOOKS)
    def the_agent_looks_and_acts(self, seconds: float) -> None:
        self.carry_out(self.observe(self.view(), seconds))

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
        return Seen(self.hosted, self.standby, self.balanced, self.balancer_applies, self.etcd_up)

    def observe(self, seen: Seen, seconds: float) -> Decision:
        """Look `seconds` after the last time, decide, and keep the test's own books."""
        self.now += seconds
        decision = decide(Slot.HOSTED, seen, self.memory, self.now)
        self.memory = decision.memory
        answers = seen.hosted is Health.READY and (seen.balanced is True or not seen.balancer_applies)
        unknown = seen.hosted is Health.UNKNOWN or seen.standby_active is None
        if not seen.etcd_up or (not unknown and not answers):
            self.unbroken_since = None
        elif not unknown and self.unbroken_since is None:
            self.unbroken_since = self.now
        if Action.WITHDRAW_STANDBY in decision.actions:
            self.rule_1_nothing_is_torn_down_before_its_replacement_answered(seen)
        assert seen.etcd_up or not decision.actions, "rule 9: etcd is down"
        return decision

    def rule_1_nothing_is_torn_down_before_its_replacement_answered(self, seen: Seen) -> None:
        assert seen.hosted is Health.READY
        assert seen.balanced is True or not seen.balancer_applies
        assert self.unbroken_since is not None
        assert self.now - self.unbroken_since >= SETTLE_SECONDS

    def carry_out(self, decision: Decision) -> None:
        for action in decision.actions:
            self.standby = action is Action.ACTIVATE_STANDBY

    # --- what always holds ---

    @invariant()
    def rule_5_it_converges_as_soon_as_the_hosted_slot_stays_ready(self) -> None:
        """From wherever it is, with nothing more going wrong, within SETTLE_SECONDS and a few looks."""
        memory, standby, now, settled = self.memory, self.standby, self.now, False
        for _ in range(8):
            seen = Seen(Health.READY, standby, True, getattr(self, "balancer_applies", True))
            decision = decide(Slot.HOSTED, seen, memory, now)
            memory, settled = decision.memory, decision.settled
            for action in decision.actions:
                standby = action is Action.ACTIVATE_STANDBY
            now += SETTLE_SECONDS / 4
        assert settled
        assert not standby

    @invariant()
    def rule_1_a_hosted_slot_that_does_not_serve_gets_its_standby_at_the_next_look(self) -> None:
        if self.hosted is not Health.READY and self.etcd_up:
            decision = decide(Slot.HOSTED, Seen(self.hosted, self.standby, None, True), self.memory, self.now)
            assert self.standby or decision.actions == (Action.ACTIVATE_STANDBY,)


Node.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None, derandomize=True)
test_the_rules_hold_whatever_order_failures_and_crashes_come_in = Node.TestCase


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
            assert decision.actions == (Action.ACTIVATE_STANDBY,)


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


def test_one_look_that_finds_it_not_ready_starts_the_clock_anew():
    broken = decide(Slot.HOSTED, Seen(Health.NOT_READY, True, True, True), LONG_AGO, NOW)
    assert broken.memory == Memory()


@pytest.mark.parametrize("health", [Health.ABSENT, Health.NOT_READY, Health.TERMINATING])
def test_the_standby_takes_over_as_soon_as_the_hosted_slot_fails(health):
    decision = decide(Slot.HOSTED, Seen(health, standby_active=False), LONG_AGO, NOW)
    assert decision.actions == (Action.ACTIVATE_STANDBY,)
    assert decision.sentence == f"the hosted slot is {health.value}, so the standby takes over"


def test_a_settled_node_is_left_alone():
    """Rule 5: a second run on a healthy cluster changes nothing."""
    decision = decide(Slot.HOSTED, Seen(Health.READY, False, True, True), Memory(), NOW)
    assert (decision.actions, decision.settled) == ((), True)
    decision = decide(Slot.STANDBY, Seen(Health.ABSENT, True), Memory(), NOW)
    assert (decision.actions, decision.settled) == ((), True)
