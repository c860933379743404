"""What is done next for a Backup: by examples, and by a machine in which pods, nodes and people do what they like."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from autarky.control.backup.decide.step import (
    AGAIN_SECONDS,
    MOST_ATTEMPTS,
    STARTS_SECONDS,
    Asked,
    DropPod,
    Forget,
    Nodes,
    Phase,
    Record,
    Start,
    Verb,
    Wait,
    Worker,
    step,
)

THREE = Nodes(able=["n1", "n2", "n3"], there={"n1", "n2", "n3"})
RUNNING = Asked("b", Phase.RUNNING, node="n1", attempt=1)
COMPLETE = Asked("b", Phase.COMPLETE, node="n1", attempt=1)
POD = Worker(Verb.MAKE, "n1", running=True)


def decide(asked, pod=None, nodes=THREE, *, busy=False, ahead=False):
    return step(asked, pod, nodes, busy=busy, ahead=ahead)


def test_it_begins_on_the_best_node_or_on_the_one_that_is_named():
    assert decide(Asked("b")) == Start(Verb.MAKE, "n1", 1)
    assert decide(Asked("b", on="n2")) == Start(Verb.MAKE, "n2", 1)
    assert decide(Asked("b", on="n9")) == Wait("waiting for node n9")
    assert "waiting for a control node" in decide(Asked("b"), nodes=Nodes()).why


def test_one_at_a_time():
    assert decide(Asked("b"), busy=True) == Wait("another backup is being worked on")
    assert decide(replace(COMPLETE, kept=False), busy=True) == Wait("another backup is being worked on")


def test_what_the_pod_says_is_recorded_before_it_is_deleted():
    ended = replace(POD, ended=True, running=False, said={"file": "f"})
    assert decide(RUNNING, ended) == Record(Phase.COMPLETE, "", {"file": "f"})
    assert decide(COMPLETE, ended) == DropPod("its work is recorded")
    lacks = {"file": "f", "message": "a file is in no backup"}
    assert decide(RUNNING, replace(ended, said=lacks)) == Record(Phase.COMPLETE, "a file is in no backup", lacks)
    failed = replace(ended, said={"error": "no space"})
    assert decide(RUNNING, failed) == Record(Phase.FAILED, "no space")


def test_a_pod_that_ended_without_a_word_is_followed_by_one_elsewhere():
    assert decide(RUNNING, replace(POD, ended=True, running=False)) == DropPod("it ended without a word")
    assert decide(RUNNING) == Start(Verb.MAKE, "n2", 2)
    assert decide(replace(RUNNING, attempt=MOST_ATTEMPTS)) == Record(
        Phase.FAILED, f"given up after {MOST_ATTEMPTS} attempts: its pod is gone"
    )


def test_one_that_was_not_done_within_its_time_is_not_followed_by_another():
    """Its target hangs, and would for the next one: three of them took a day in which no other backup was made."""
    overlong = replace(POD, ended=True, running=False, overlong=True)
    for said in (None, {"error": "it was told to stop"}):
        found = decide(RUNNING, replace(overlong, said=said))
        assert (found.phase, "not done after 6 h" in found.message) == (Phase.FAILED, True)
    removing = replace(COMPLETE, phase=Phase.REMOVING, kept=False)
    assert decide(removing, replace(overlong, verb=Verb.REMOVE)).phase is Phase.NOT_REMOVED
    assert decide(removing, overlong) == DropPod("it is of something else")


def test_after_an_attempt_that_failed_whoever_waits_goes_first():
    assert decide(RUNNING, ahead=True) == Wait("another backup goes first")
    assert decide(Asked("b"), ahead=True) == Start(Verb.MAKE, "n1", 1)
    assert decide(replace(RUNNING, attempt=MOST_ATTEMPTS), ahead=True).phase is Phase.FAILED


def test_a_node_that_says_that_it_is_its_own_fault_is_followed_by_each_of_the_others():
    """Its member of etcd is cut off, say."""
    for first in THREE.able:
        asked, tried = replace(RUNNING, node=first), [first]
        for attempt in (2, 3):
            pod = replace(POD, node=asked.node, ended=True, running=False, said={"error": "cut off", "elsewhere": True})
            assert decide(asked, pod) == DropPod("another node is tried: cut off")
            begun = decide(asked)
            assert (begun.verb, begun.attempt) == (Verb.MAKE, attempt)
            tried.append(begun.node)
            asked = replace(asked, node=begun.node, attempt=attempt)
        assert sorted(tried) == ["n1", "n2", "n3"]
        pod = replace(pod, node=asked.node)
        assert decide(asked, pod) == Record(Phase.FAILED, "cut off")


@pytest.mark.parametrize(
    ("asked", "nodes"), [(replace(RUNNING, on="n1"), THREE), (RUNNING, Nodes(able=["n1"], there={"n1"}))]
)
def test_where_there_is_no_other_node_its_words_are_recorded(asked, nodes):
    pod = replace(POD, ended=True, running=False, said={"error": "cut off", "elsewhere": True})
    assert decide(asked, pod, nodes) == Record(Phase.FAILED, "cut off")


@pytest.mark.parametrize("nodes", [replace(THREE, silent={"n1"}), Nodes(able=["n2"], there={"n2"})])
def test_a_pod_on_a_node_that_does_not_answer_is_given_up(nodes):
    assert decide(RUNNING, POD, nodes) == DropPod("node n1 does not answer")


def test_a_pod_that_does_not_start_is_given_time_and_then_named():
    waiting = replace(POD, running=False, age=STARTS_SECONDS - 1, stuck="CreateContainerConfigError")
    assert decide(RUNNING, waiting) == Wait()
    assert (
        "does not start: CreateContainerConfigError"
        in decide(RUNNING, replace(waiting, age=STARTS_SECONDS + 1)).message
    )


def test_an_archive_is_removed_where_it_lies():
    unwanted = replace(COMPLETE, kept=False, node="n2")
    assert decide(unwanted) == Start(Verb.REMOVE, "n2", 1)
    assert decide(replace(unwanted, local=False)) == Start(Verb.REMOVE, "n1", 1)
    off = replace(THREE, able=["n1", "n3"])
    assert decide(unwanted, nodes=off) == Wait("waiting for node n2")
    gone = Nodes(able=["n1", "n3"], there={"n1", "n3"})
    assert isinstance(decide(unwanted, nodes=gone), Forget)


def test_an_archive_that_is_gone_with_its_node_is_forgotten_in_the_middle_of_its_removal():
    removing = replace(COMPLETE, phase=Phase.REMOVING, kept=False, node="n2")
    assert isinstance(decide(removing, nodes=Nodes(able=["n1"], there={"n1"})), Forget)
    assert decide(removing, nodes=Nodes(able=["n1"], there={"n1", "n2"})) == Wait("waiting for node n2")


def test_a_backup_without_an_archive_is_simply_forgotten():
    for phase in (Phase.PENDING, Phase.FAILED):
        assert decide(Asked("b", phase, kept=False)) == Forget("it has no archive")


def test_a_removal_that_failed_is_said_and_tried_again_later():
    removing = replace(COMPLETE, phase=Phase.REMOVING, kept=False)
    failed = Worker(Verb.REMOVE, "n1", ended=True, said={"error": "the server is away"})
    assert decide(removing, failed) == Record(Phase.NOT_REMOVED, "the server is away")
    left = replace(COMPLETE, phase=Phase.NOT_REMOVED, kept=False, idle=AGAIN_SECONDS - 1)
    assert decide(left) == Wait()
    assert decide(replace(left, idle=AGAIN_SECONDS)) == Start(Verb.REMOVE, "n1", 1)
    assert decide(replace(left, kept=True)) == Record(Phase.COMPLETE)


class Machine(RuleBasedStateMachine):
    """The operator may be killed between any two writes: each rule is one write, or something that happens."""

    def __init__(self):
        super().__init__()
        self.asked = Asked("b")
        self.pod: Worker | None = None
        self.archive = False
        self.gone = False
        self.able = ["n1", "n2"]
        self.wanted_removed = False

    @precondition(lambda self: not self.gone)
    @rule(crash=st.booleans())
    def operator(self, crash):
        found = step(self.asked, self.pod, Nodes(self.able, set(), {"n1", "n2"}), busy=False)
        match found:
            case Start(verb, node, attempt):
                assert self.pod is None
                assert node in self.able
                assert verb is Verb.MAKE or not self.asked.kept or self.asked.phase is Phase.REMOVING
                phase = Phase.RUNNING if verb is Verb.MAKE else Phase.REMOVING
                where = node if verb is Verb.MAKE else self.asked.node
                self.asked = replace(self.asked, phase=phase, node=where, attempt=attempt, idle=0.0)
                if not crash:
                    self.pod = Worker(verb, node)
            case Record(phase, _, result):
                if phase is Phase.COMPLETE and result:
                    assert self.archive
                self.asked = replace(self.asked, phase=phase)
                if not crash:
                    self.pod = None
            case DropPod():
                self.pod = None
            case Forget():
                assert not self.asked.kept or self.asked.phase is Phase.REMOVING
                assert not self.archive
                self.gone, self.pod = True, None

    @precondition(lambda self: self.pod is not None and not self.pod.ended)
    @rule(how=st.sampled_from(["well", "error", "elsewhere", "died"]))
    def pod_ends(self, how):
        assert self.pod is not None
        if how == "well":
            self.archive = self.pod.verb is Verb.MAKE
        said: dict[str, dict[str, Any] | None] = {
            "well": {"file": "f"},
            "error": {"error": "e"},
            "elsewhere": {"error": "e", "elsewhere": True},
            "died": None,
        }
        self.pod = replace(self.pod, ended=True, running=False, said=said[how])

    @rule(names=st.sampled_from([["n1", "n2"], ["n2"], ["n2", "n1"], []]))
    def nodes_change(self, names):
        self.able = names

    @rule(kept=st.booleans())
    def person(self, kept):
        self.asked = replace(self.asked, kept=kept)
        self.wanted_removed |= not kept

    @rule()
    def time_passes(self):
        self.asked = replace(self.asked, idle=self.asked.idle + AGAIN_SECONDS)

    @invariant()
    def an_archive_that_nobody_gave_up_stays(self):
        if self.asked.phase is Phase.COMPLETE and not self.wanted_removed:
            assert self.archive

    def teardown(self):
        """With nodes that are well and pods that work it comes to an end."""
        self.able = ["n1", "n2"]
        for _ in range(40):
            if self.gone or (self.asked.phase in (Phase.COMPLETE, Phase.FAILED) and self.asked.kept and not self.pod):
                return
            self.time_passes()
            self.operator(crash=False)
            if self.pod is not None and not self.pod.ended:
                self.pod_ends(how="well")
        raise AssertionError(f"it does not come to an end: {self.asked}, {self.pod}")


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=300, stateful_step_count=25, deadline=None)
