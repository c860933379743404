"""Standby agents: single cases, and rule 1 on a simulated node."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from autarky.control.agents.decide import PATIENCE_SECONDS, SETTLED_SECONDS, Decision, Memory, Seen, decide

LOOK = 2.0


def looked(seen: Seen, seconds: float) -> list[Decision]:
    decisions: list[Decision] = []
    memory = Memory()
    for number in range(int(seconds / LOOK) + 2):
        decisions.append(decide(seen, memory, LOOK * number))
        memory = decisions[-1].memory
    return decisions


def test_a_new_revision_is_put_in_place_beside_the_old_one() -> None:
    decision = decide(Seen("new", {"old.json": "old"}, frozenset({"old.json"})), Memory(), 0.0)
    assert decision.place
    assert not decision.remove


def test_the_old_one_goes_when_the_new_one_has_run_for_a_while() -> None:
    seen = Seen("new", {"old.json": "old", "new.json": "new"}, frozenset({"old.json", "new.json"}))
    *before, last = looked(seen, SETTLED_SECONDS)
    assert not any(decision.remove for decision in before[:-1])
    assert last.remove == {"old.json"}


def test_the_current_one_alone_is_left_alone() -> None:
    decisions = looked(Seen("new", {"new.json": "new"}, frozenset({"new.json"})), 1000)
    assert not any(decision.place or decision.remove for decision in decisions)
    assert decisions[-1].settled


def test_one_that_does_not_come_to_run_goes_and_is_not_tried_again() -> None:
    seen = Seen("new", {"old.json": "old", "new.json": "new"}, frozenset({"old.json"}))
    last = next(decision for decision in looked(seen, PATIENCE_SECONDS) if decision.remove)
    assert last.remove == {"new.json"}
    after = Seen("new", {"old.json": "old"}, frozenset({"old.json"}))
    assert not decide(after, last.memory, 1000.0).place
    assert decide(replace(after, current="newer"), last.memory, 1000.0).place


def test_where_nothing_runs_another_activation_is_tried() -> None:
    """A kubelet rejected it, and there is nothing to go back to."""
    decisions = looked(Seen("new", {"new.json": "new"}, frozenset()), 3 * PATIENCE_SECONDS)
    assert sum(decision.place for decision in decisions) == 3
    assert all(decision.place for decision in decisions if decision.remove)


class Node(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.made = 0
        self.current = "0"
        self.in_place = {"0.json": "0"}
        self.running = {"0.json"}
        self.memory = Memory()
        self.ever_ran = True

    @rule()
    def the_hosted_agent_changes(self) -> None:
        self.made += 1
        self.current = str(self.made)

    @rule()
    def it_changes_back(self) -> None:
        self.current = "0"

    @rule()
    def the_kubelet_starts_what_is_there(self) -> None:
        self.running = set(self.in_place)

    @rule()
    def a_container_ends(self) -> None:
        if self.running:
            self.running.discard(max(self.running))

    @rule()
    def the_agent_is_killed(self) -> None:
        self.memory = Memory()

    @rule(seconds=st.sampled_from([2.0, 5.0, 10.0, 60.0]), blind=st.sampled_from(["", "", "", "running", "in_place"]))
    def the_agent_looks(self, seconds: float, blind: str) -> None:
        self.now += seconds
        seen = Seen(self.current, dict(self.in_place), frozenset(self.running))
        decision = decide(replace(seen, **{blind: None}) if blind else seen, self.memory, self.now)
        self.memory = decision.memory
        if decision.remove:
            assert not blind, "rule 2"
            assert decision.place or self.running - decision.remove, "rule 1: what stays is known to run"
            assert not decision.place or not self.running & decision.remove, "rule 1"
        if decision.place:
            self.made += 1
            self.in_place[f"{self.made}.json"] = self.current
        for name in decision.remove:
            del self.in_place[name]
            self.running.discard(name)

    @invariant()
    def one_is_always_in_place(self) -> None:
        assert self.in_place


Node.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestParkedAgents = Node.TestCase
