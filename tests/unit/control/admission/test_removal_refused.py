"""Which removals are refused, by the names of the safety rules."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from autarky.control.admission.decide.removal import (
    LAST_CONTROL_NODE,
    QUORUM,
    SERVES,
    UNKNOWN_IS_NOT_DOWN,
    Seen,
    majority,
    refuse,
    refuse_unserved,
)

THREE = frozenset({"n1", "n2", "n3"})
ALL_WELL = dict.fromkeys(THREE, True)


def rule(**changes: Any) -> str | None:
    seen = {"node": "n3", "control_nodes": THREE, "members": ALL_WELL, "answers": True, **changes}
    refusal = refuse(Seen(**seen))
    return None if refusal is None else refusal.rule


def test_a_healthy_control_node_of_three_may_go():
    assert rule() is None


def test_a_worker_may_go_whatever_etcd_does():
    assert rule(node="w1", members=dict.fromkeys(THREE, False)) is None


def test_the_last_control_node_stays():
    assert rule(control_nodes=frozenset({"n3"}), members={"n3": True}) == LAST_CONTROL_NODE


def test_a_healthy_member_stays_while_another_is_down():
    assert rule(members={"n1": True, "n2": False, "n3": True}) == QUORUM


def test_the_member_that_is_down_may_go():
    assert rule(members={"n1": True, "n2": True, "n3": False}, answers=False, dead=True) is None


def test_without_a_quorum_no_member_can_be_removed():
    assert rule(members={"n1": True, "n2": False, "n3": False}, answers=False, dead=True) == QUORUM


def test_of_two_members_the_dead_one_cannot_be_removed():
    two = frozenset({"n1", "n3"})
    assert rule(control_nodes=two, members={"n1": True, "n3": False}, answers=False, dead=True) == QUORUM


def test_a_host_that_does_not_answer_is_not_taken_for_gone():
    assert rule(answers=False) == UNKNOWN_IS_NOT_DOWN


def test_what_answers_is_not_dead():
    assert rule(dead=True) == UNKNOWN_IS_NOT_DOWN


def test_whoever_renews_a_workers_lease_does_not_keep_it():
    assert rule(node="w1", answers=False, dead=True, renewed=True, worker=True) is None


def test_a_worker_whose_machine_answers_is_not_dead():
    assert rule(node="w1", dead=True, worker=True) == UNKNOWN_IS_NOT_DOWN


def test_a_lease_that_is_renewed_keeps_what_may_be_a_control_node():
    for node, worker in (("n3", False), ("w1", False), ("n3", True)):
        assert rule(node=node, answers=False, dead=True, renewed=True, worker=worker) == UNKNOWN_IS_NOT_DOWN


NAMES = ("n1", "n2", "n3", "n4", "n5")


@given(
    members=st.dictionaries(st.sampled_from(NAMES), st.booleans(), min_size=1),
    others=st.sets(st.sampled_from(NAMES)),
    node=st.sampled_from(NAMES),
    answers=st.booleans(),
    dead=st.booleans(),
    renewed=st.booleans(),
    worker=st.booleans(),
)
def test_after_what_is_not_refused_there_is_a_control_node_and_a_quorum(
    members, others, node, answers, dead, renewed, worker
):
    controls = frozenset({*members, *others})
    if refuse(Seen(node, controls, members, answers, dead, renewed, worker)) is not None:
        return
    assert not (dead and renewed and node in controls)
    assert controls - {node}
    left = {name: well for name, well in members.items() if name != node}
    if node in members:
        assert sum(left.values()) >= majority(len(left))
    assert dead != answers


@given(members=st.dictionaries(st.sampled_from(NAMES), st.booleans(), min_size=1), node=st.sampled_from(NAMES))
def test_a_refusal_names_what_was_seen_and_what_goes_on(members, node):
    refusal = refuse(Seen(node, frozenset(members), members, answers=True))
    if refusal is not None:
        assert node in refusal.seen
        assert refusal.go_on


@given(st.dictionaries(st.sampled_from(NAMES), st.none() | st.just("port 7443: connection refused")))
def test_a_control_node_goes_only_while_another_was_seen_to_serve(others):
    refusal = refuse_unserved("n9", others)
    assert (refusal is None) == any(obstacle is None for obstacle in others.values())
    if refusal is not None:
        assert refusal.rule == SERVES
        assert all(f"{name}: port 7443: connection refused" in refusal.seen for name in others)
