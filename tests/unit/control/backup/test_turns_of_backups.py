"""Whose turn it is: by examples, and by a machine in which the target of one schedule never lets a backup end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from autarky.control.backup.decide.step import (
    AGAIN_SECONDS,
    Asked,
    DropPod,
    Nodes,
    Phase,
    Record,
    Start,
    Verb,
    Wait,
    Worker,
    step,
)
from autarky.control.backup.decide.turns import in_turn

NODES = Nodes(able=["n1", "n2"], there={"n1", "n2"})
NAMES = st.lists(st.sampled_from("abcdef"), unique=True)


def pending(name: str, attempt: int = 0) -> Asked:
    return Asked(name, attempt=attempt)


def test_who_has_waited_longest_goes_first_and_of_newcomers_those_that_had_no_turn():
    assert in_turn([], [pending("a"), pending("b")]) == ["a", "b"]
    assert in_turn(["b"], [pending("a"), pending("b")]) == ["b", "a"]
    assert in_turn([], [pending("a", 1), pending("b")]) == ["b", "a"]
    assert in_turn(["a"], [pending("a", 1), pending("b")]) == ["a", "b"]


def test_a_removal_that_has_failed_before_comes_after_all_others():
    """A server that hangs may have many archives to be removed, each of which is tried again each hour."""
    removal = Asked("a", Phase.NOT_REMOVED, kept=False, attempt=1)
    assert in_turn(["a"], [removal, pending("b", 1)]) == ["b", "a"]


@given(NAMES, NAMES)
def test_all_that_wait_have_a_place_and_nobody_else(before: list[str], waiting: list[str]):
    found = in_turn(before, [pending(name) for name in waiting])
    assert sorted(found) == sorted(waiting)
    assert [name for name in found if name in before] == [name for name in before if name in waiting]


class Hung(RuleBasedStateMachine):
    """a: backups of one schedule, of which no attempt ends well. b: of another one, which is well. The operator looks
    at all of them as its controller does, and may be another one at any time, which has seen no queue."""

    def __init__(self):
        super().__init__()
        self.backups: list[Asked] = []  # in the order in which they were created
        self.pod: tuple[str, Worker] | None = None
        self.waits: set[str] = set()
        self.queue: list[str] = []
        self.number = 0
        self.went_before: set[tuple[str, str]] = set()

    def _of(self, letter: str) -> list[Asked]:
        return [one for one in self.backups if one.name.startswith(letter)]

    def _ask(self, letter: str) -> None:
        if not any(one.phase in (Phase.PENDING, Phase.RUNNING) for one in self._of(letter)):
            self.number += 1
            self.backups.append(Asked(f"{letter}{self.number}", local=False))

    @rule()
    def a_is_due(self):
        self._ask("a")

    @rule()
    def b_is_due(self):
        self._ask("b")

    @rule()
    def an_archive_is_to_be_removed_from_the_server_that_hangs(self):
        self.number += 1
        self.backups.append(Asked(f"r{self.number}", Phase.COMPLETE, kept=False, local=False, node="n1", attempt=1))

    @rule()
    def another_operator(self):
        self.queue = []

    @rule()
    def time_passes(self):
        self.backups = [replace(one, idle=one.idle + AGAIN_SECONDS) for one in self.backups]

    @precondition(lambda self: self.pod is not None)
    @rule(how=st.sampled_from(["died", "overlong", "said"]))
    def its_pod_ends(self, how):
        name, pod = self.pod
        said = None if how == "died" else {"file": "f"} if name.startswith("b") else {"error": "it is too slow"}
        ended = replace(pod, ended=True, running=False, said=said, overlong=how == "overlong" and name[0] != "b")
        self.pod = (name, ended)

    @rule()
    def operator(self):
        workers = {one.name: self.pod[1] if self.pod and self.pod[0] == one.name else None for one in self.backups}
        waiting = [
            one
            for one in self.backups
            if workers[one.name] is None and isinstance(step(one, None, NODES, busy=False), Start)
        ]
        self.queue = in_turn(self.queue, waiting)
        busy = {self.pod[0]} if self.pod else set()
        at_work = (Phase.RUNNING, Phase.REMOVING)
        busy |= {one.name for one in self.backups if one.phase in at_work and one.name not in self.waits}
        turns = {name: turn for turn, name in enumerate(self.queue)}
        for one in sorted(self.backups, key=lambda one: turns.get(one.name, -1)):
            ahead = turns.get(one.name, 0) > 0
            found = step(one, workers[one.name], NODES, busy=bool(busy - {one.name}), ahead=ahead)
            self._do(one, found, busy)

    def _do(self, one: Asked, found, busy: set[str]) -> None:
        match found:
            case Start(verb, node, attempt):
                if busy - {one.name}:
                    return
                busy.add(one.name)
                self._begins(one, verb, node, attempt)
            case Record(phase):
                self._changes(one, phase=phase)
                self.pod = None
            case DropPod():
                self.pod = None
            case Wait(why):
                if why:
                    self.waits.add(one.name)

    def _begins(self, one: Asked, verb: Verb, node: str, attempt: int) -> None:
        assert self.pod is None
        self.pod = (one.name, Worker(verb, node, running=True))
        self.waits.discard(one.name)
        for other in self._of("b"):
            if other.phase is Phase.PENDING and other is not one:
                assert int(one.name[1:]) < int(other.name[1:]), "it was asked for later"
                assert (one.name, other.name) not in self.went_before, "it has had its turn"
                self.went_before.add((one.name, other.name))
        phase = Phase.RUNNING if verb is Verb.MAKE else Phase.REMOVING
        self._changes(one, phase=phase, node=node, attempt=attempt, idle=0.0)

    def _changes(self, one: Asked, **changes: Any) -> None:
        self.backups = [replace(other, **changes) if other.name == one.name else other for other in self.backups]

    def teardown(self):
        """B is made though each attempt of a takes until its pod is ended: after a bounded number of pods."""
        self._ask("b")
        for _ in range(4 * (len(self.backups) + 3)):
            if not any(one.phase in (Phase.PENDING, Phase.RUNNING) for one in self._of("b")):
                return
            self._ask("a")
            self.operator()
            if self.pod is not None and not self.pod[1].ended:
                self.its_pod_ends(how="died" if self.pod[0][0] == "a" else "said")
        raise AssertionError(f"b is not made: {self.backups}, {self.pod}")


TestHung = Hung.TestCase
TestHung.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
