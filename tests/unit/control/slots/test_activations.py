"""Activations that do not come to run: single cases, and the safety rules on a simulated node."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from autarky.control.slots.decide.activations import (
    FORGOTTEN_SECONDS,
    LONGEST_GAP_SECONDS,
    LONGEST_PATIENCE_SECONDS,
    PATIENCE_SECONDS,
    Decision,
    Memory,
    Seen,
    decide,
)

NOTHING: frozenset[str] = frozenset()
ONE = frozenset({"one"})
IDLE = Seen(in_place=ONE, running=NOTHING)
RUNS = Seen(in_place=ONE, running=ONE)
LOOK = 2.0


def looked(seen: Seen, seconds: float, memory: Memory | None = None, begin: float = 0.0) -> list[Decision]:
    """Decisions of looks every two seconds, for so long."""
    decisions = []
    memory = memory or Memory()
    now = begin
    while now <= begin + seconds:
        decisions.append(decide(seen, memory, now))
        memory = decisions[-1].memory
        now += LOOK
    return decisions


def test_an_activation_that_does_not_come_to_run_is_replaced() -> None:
    *before, last = looked(IDLE, PATIENCE_SECONDS + 1)
    assert not any(decision.renew for decision in before)
    assert last.renew


def test_one_that_runs_is_left_alone_and_nothing_more_is_waited_for() -> None:
    decisions = looked(RUNS, 10 * PATIENCE_SECONDS)
    assert not any(decision.renew or decision.stop for decision in decisions)
    assert all(decision.settled for decision in decisions)


def test_replacements_become_rarer_and_never_end() -> None:
    decisions = looked(IDLE, 3600)
    times = [LOOK * number for number, decision in enumerate(decisions) if decision.renew]
    gaps = [after - before for before, after in pairwise(times)]
    assert gaps == sorted(gaps)
    assert gaps[-1] == pytest.approx(LONGEST_PATIENCE_SECONDS, abs=LOOK)


@pytest.mark.parametrize(
    "blind",
    [
        replace(IDLE, running=None),
        replace(IDLE, in_place=None),
        replace(IDLE, kubelet_up=False),
        replace(IDLE, etcd_up=False),
    ],
)
def test_rules_2_and_9_what_nobody_could_see_proves_nothing(blind: Seen) -> None:
    decisions = looked(blind, 100 * PATIENCE_SECONDS)
    assert not any(decision.renew or decision.stop or decision.settled for decision in decisions)
    half = looked(IDLE, PATIENCE_SECONDS / 2)[-1].memory
    after = decide(blind, half, PATIENCE_SECONDS / 2)
    assert after.memory.idle == half.idle
    assert not decide(IDLE, after.memory, 100 * PATIENCE_SECONDS).renew


def test_time_in_which_nobody_looked_proves_nothing() -> None:
    memory = decide(IDLE, Memory(), 0.0).memory
    assert not decide(IDLE, memory, LONGEST_GAP_SECONDS + PATIENCE_SECONDS).renew


def test_time_in_which_it_may_have_run_proves_nothing() -> None:
    memory = decide(RUNS, Memory(), 0.0).memory
    assert decide(IDLE, memory, 30.0).memory.idle == 0.0


def test_a_forgotten_pod_is_ended_once_the_hosted_slot_serves() -> None:
    forgotten = Seen(in_place=NOTHING, running=ONE, hosted_serves=True)
    *before, last = looked(forgotten, FORGOTTEN_SECONDS + 1)
    assert not any(decision.stop for decision in before)
    assert last.stop == ONE


def test_rule_1_a_forgotten_pod_that_nothing_replaces_runs_on() -> None:
    for in_place in (NOTHING, frozenset({"two"})):
        alone = Seen(in_place=in_place, running=ONE, hosted_serves=False)
        assert not any(decision.stop for decision in looked(alone, 10 * FORGOTTEN_SECONDS))


class Node(RuleBasedStateMachine):
    """A kubelet that takes up, rejects, crashes and forgets; the test keeps its own clocks."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.made = 0
        self.in_place: set[str] = set()
        self.running: set[str] = set()
        self.hosted = False
        self.memory = Memory()
        self.idle_since: float | None = None
        self.last: Decision | None = None

    def new(self) -> str:
        self.made += 1
        return str(self.made)

    @rule()
    def the_standby_is_activated(self) -> None:
        if not self.in_place:
            self.in_place = {self.new()}
            self.idle_since = None

    @rule()
    def it_is_withdrawn_and_perhaps_forgotten(self) -> None:
        self.in_place = set()

    @rule()
    def the_kubelet_takes_it_up(self) -> None:
        self.running |= self.in_place

    @rule()
    def a_pod_ends(self) -> None:
        if self.running:
            self.running.discard(min(self.running))

    @rule(serves=st.booleans())
    def the_hosted_slot_comes_or_goes(self, serves: bool) -> None:
        self.hosted = serves

    @rule()
    def the_agent_is_killed(self) -> None:
        self.memory, self.idle_since = Memory(), None

    @rule(seconds=st.sampled_from([2.0, 5.0, 30.0, 60.0]), blind=st.sampled_from(["", "", "", "running", "in_place"]))
    def the_agent_looks(self, seconds: float, blind: str) -> None:
        self.now += seconds
        seen = Seen(frozenset(self.in_place), frozenset(self.running), hosted_serves=self.hosted)
        if blind:
            seen = replace(seen, **{blind: None})
        decision = decide(seen, self.memory, self.now)
        self.memory, self.last = decision.memory, decision
        if blind:
            assert not decision.renew, "rule 2"
            assert not decision.stop, "rule 2"
            return
        if self.in_place & self.running:
            self.idle_since = None
        elif self.idle_since is None:
            self.idle_since = self.now
        if decision.renew:
            self.rule_1_only_what_does_not_run_is_replaced()
        assert not decision.stop & self.in_place, "only what has no manifest is ended"
        assert not decision.stop or self.hosted or self.in_place & self.running, "rule 1"
        self.running -= decision.stop

    def rule_1_only_what_does_not_run_is_replaced(self) -> None:
        assert self.in_place
        assert not self.in_place & self.running
        assert self.idle_since is not None
        assert self.now - self.idle_since >= PATIENCE_SECONDS
        self.in_place = {self.new()}
        self.idle_since = None

    @invariant()
    def patience_is_bounded(self) -> None:
        assert self.memory.idle <= LONGEST_PATIENCE_SECONDS + LONGEST_GAP_SECONDS


Node.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestActivations = Node.TestCase
