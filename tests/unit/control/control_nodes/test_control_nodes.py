"""Which nodes become control nodes and which stop being ones, case by case."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autarky.control.control_nodes.decide.observed import (
    JOINING,
    LEAVE,
    READY,
    Member,
    Node,
    OwnNode,
    Record,
    State,
    labels_and_report,
)
from autarky.control.control_nodes.decide.procedure import Decision, OwnStep, Step
from autarky.control.control_nodes.decide.roles import asked_whether_they_serve, decide, forgotten, own_row

REPORTED = f"{READY}0123456789"


def control(name: str = "n1", **changes: Any) -> Node:
    """One that was seen to serve."""
    serving = Node(name, f"uid-{name}", True, True, REPORTED, recorded=Record(f"uid-{name}"), obstacle=None)
    return replace(serving, **changes)


def worker(name: str = "n2", **changes: Any) -> Node:
    return replace(Node(name, f"uid-{name}", False, False), **changes)


def of(node: Node, *others: Node, unfit: str = "") -> Decision:
    return decide([node, *others], unfit=unfit)[node.name]


# --- becoming ----------------------------------------------------------------------------------------


def test_a_control_node_as_up_made_it_is_recorded_and_left_alone():
    assert of(control(recorded=None, reported=None)).step is Step.REMEMBER
    assert of(control(reported=None)).step is Step.NOTHING
    assert of(control()).step is Step.NOTHING


def test_a_worker_without_the_requested_label_is_left_alone():
    assert of(worker(), control()).step is Step.NOTHING


def test_the_requested_label_lets_the_agent_read_and_its_report_sets_the_active_label():
    asks = worker(requested=True)
    assert of(asks, control()).step is Step.GRANT
    joining = replace(
        asks, recorded=Record(asks.uid, State.JOINING), reported=f"{JOINING}the image x is not on the node"
    )
    assert of(joining, control()) == Decision(Step.GRANT, "its agent reports: the image x is not on the node")
    assert of(replace(joining, reported=REPORTED), control()).step is Step.MARK


def test_two_that_are_labelled_at_once_both_become_control_nodes():
    found = decide([control(), worker("n2", requested=True), worker("n3", requested=True, reported=REPORTED)])
    assert [found[name].step for name in ("n2", "n3")] == [Step.GRANT, Step.MARK]


@pytest.mark.parametrize(("fits", "step"), [(None, Step.WAIT), (False, Step.REFUSE)])
def test_an_address_that_is_unknown_waits_and_a_foreign_one_is_refused(fits: bool | None, step: Step):
    assert of(worker(requested=True, fits=fits, reported=REPORTED), control()).step is step


def test_what_is_not_hosted_cannot_be_copied():
    assert of(worker(requested=True), control(), unfit="kube-apiserver is not hosted").step is Step.REFUSE


def test_a_control_node_gets_its_labels_back_though_it_could_not_be_made_now():
    """With `selfHosted` 4, or where somebody has deleted a hosted workload: nothing is copied for it."""
    unfit = "kube-apiserver is not hosted"
    assert of(control(active=False), control("n2"), unfit=unfit).step is Step.MARK
    created = worker(uid="another", recorded=Record("uid-n2"))
    assert of(created, control(), unfit=unfit).step is Step.RESTORE
    restored = replace(created, requested=True)
    assert of(replace(restored, reported=REPORTED), control(), unfit=unfit).step is Step.MARK
    assert of(replace(restored, reported=None), control(), unfit=unfit).step is Step.REFUSE


@pytest.mark.parametrize("recorded", [None, Record("uid-n2", State.JOINING), Record("uid-n2", State.DISMISSED)])
def test_a_report_alone_makes_no_control_node_where_none_can_be_made(recorded: Record | None):
    asks = worker(requested=True, reported=REPORTED, recorded=recorded)
    assert of(asks, control(), unfit="kube-apiserver is not hosted").step is Step.REFUSE


@pytest.mark.parametrize(("fits", "step"), [(None, Step.WAIT), (False, Step.REFUSE)])
def test_a_control_node_with_another_address_does_not_get_its_label_back(fits: bool | None, step: Step):
    assert of(control(active=False, fits=fits), control("n2")).step is step


def test_a_control_node_that_has_lost_its_parts_may_read_again():
    assert of(control(reported=f"{JOINING}failed, retrying")).step is Step.GRANT


# --- ceasing -----------------------------------------------------------------------------------------


def test_without_the_requested_label_its_member_goes_first_and_then_the_active_label():
    leaves = control("n2", requested=False, member=Member.THERE)
    assert of(leaves, control()).step is Step.REMOVE_MEMBER
    assert of(replace(leaves, member=Member.UNKNOWN), control()).step is Step.WAIT
    assert of(replace(leaves, member=Member.UNMANAGED), control()).step is Step.REFUSE
    assert of(replace(leaves, member=Member.NONE), control()).step is Step.DISMISS
    gone = replace(leaves, member=Member.NONE, active=False, reported=LEAVE, recorded=Record("uid-n2", State.DISMISSED))
    assert of(gone, control()).step is Step.WAIT
    assert of(replace(gone, reported=None), control()).step is Step.FORGET


def test_silence_before_the_agent_was_told_to_leave_is_no_answer():
    assert of(control("n2", requested=False, active=False, reported=None), control()).step is Step.DISMISS


def test_the_last_control_node_stays_one():
    assert of(control(requested=False)).step is Step.REFUSE
    assert of(control(requested=False), worker()).step is Step.REFUSE


def test_two_that_would_leave_together_with_nobody_left_both_stay():
    found = decide([control("n1", requested=False), control("n2", requested=False)])
    assert {one.step for one in found.values()} == {Step.REFUSE}


def test_one_leaves_at_a_time():
    found = decide([control("n1"), control("n2", requested=False), control("n3", requested=False)])
    assert [found[name].step for name in ("n2", "n3")] == [Step.DISMISS, Step.WAIT]


def test_one_whose_etcd_member_nobody_manages_keeps_no_other_one_waiting():
    leave = {name: control(name, requested=False, member=Member.UNMANAGED) for name in ("n2", "n3")}
    found = decide([control("n1"), *leave.values()])
    assert [found[name].step for name in leave] == [Step.REFUSE, Step.REFUSE]


@pytest.mark.parametrize("ready", [None, False])
def test_nobody_leaves_while_no_other_is_known_to_be_ready(ready: bool | None):
    assert of(control("n2", requested=False), control(ready=ready)).step is Step.WAIT


def test_nobody_leaves_while_no_other_was_seen_to_serve_and_what_was_seen_is_said():
    """Ready is not serving: a Node stays Ready through other nodes' API servers."""
    leaves = control("n2", requested=False, member=Member.THERE)
    found = of(leaves, control(obstacle="port 7443: connection refused"), control("n3", ready=None))
    assert found.step is Step.WAIT
    assert "n1: port 7443: connection refused; n3: its Node is not known to be Ready" in found.sentence
    assert of(leaves, control(obstacle="port 7443: connection refused"), control("n3")).step is Step.REMOVE_MEMBER


def test_unless_somebody_asked_nobody_counts_as_serving():
    asked = control()
    unasked = Node(asked.name, asked.uid, True, True, REPORTED, recorded=asked.recorded)
    assert of(control("n2", requested=False), unasked).step is Step.WAIT


def test_those_that_stay_are_asked_whether_they_serve_only_while_another_is_to_go():
    assert asked_whether_they_serve([control(), control("n2"), worker("n4")]) == frozenset()
    nodes = [
        control(),
        control("n2", requested=False),
        control("n3", ready=None),
        worker("n4"),
        control("n5", reported=None),
    ]
    assert asked_whether_they_serve(nodes) == {"n1"}


def test_of_several_that_are_to_go_one_without_a_member_is_first_and_then_one_that_is_down():
    leaving = {name: control(name, requested=False, member=Member.THERE) for name in ("n2", "n3", "n4")}
    leaving["n3"] = replace(leaving["n3"], ready=None)
    found = decide([control(), *leaving.values()])
    assert [found[name].step for name in leaving] == [Step.WAIT, Step.REMOVE_MEMBER, Step.WAIT]
    leaving["n4"] = replace(leaving["n4"], member=Member.NONE)
    found = decide([control(), *leaving.values()])
    assert [found[name].step for name in leaving] == [Step.WAIT, Step.WAIT, Step.DISMISS]


def test_one_whose_agent_has_said_nothing_is_not_relied_on():
    assert of(control("n2", requested=False), control(reported=None)).step is Step.REFUSE


def test_an_active_label_that_nobody_recorded_is_left_alone():
    assert of(control("n2", requested=False, recorded=None), control()).step is Step.NOTHING


def test_a_request_that_is_withdrawn_on_the_way_takes_everything_away_again():
    joining = worker(recorded=Record("uid-n2", State.JOINING), reported=f"{JOINING}waiting for the operator")
    assert of(joining, control()).step is Step.DISMISS
    assert of(replace(joining, reported=None), control()).step is Step.DISMISS
    assert of(joining, control(reported=None)).step is Step.DISMISS


def test_a_request_that_comes_back_on_the_way_out_is_heard():
    assert (
        of(worker(requested=True, recorded=Record("uid-n2", State.DISMISSED), reported=LEAVE), control()).step
        is Step.GRANT
    )


# --- Nodes that are deleted and created again ---------------------------------------------------------


def test_a_node_that_was_deleted_and_created_again_gets_its_labels_back():
    created = worker(uid="another", recorded=Record("uid-n2"))
    assert of(created, control()).step is Step.RESTORE
    assert of(replace(created, requested=True, reported=REPORTED), control()).step is Step.MARK
    dismissed = replace(created, recorded=Record("uid-n2", State.DISMISSED))
    assert of(dismissed, control()).step is Step.DISMISS


def test_labels_that_somebody_takes_off_the_last_control_node_are_restored():
    assert of(control(requested=False, active=False)).step is Step.RESTORE
    assert of(control(active=False)).step is Step.MARK


def test_only_nodes_that_may_not_join_again_are_forgotten():
    assert forgotten({"n1", "n2", "n3"}, {"n1"}, {"n2"}) == {"n3"}


# --- the agent's side --------------------------------------------------------------------------------


def test_only_the_operators_word_takes_anything_away():
    for reported in (None, REPORTED, f"{JOINING}x"):
        assert (
            own_row(OwnNode(requested=False, active=False, reported=reported, ready=REPORTED)).step is not OwnStep.CEASE
        )
    assert own_row(OwnNode(requested=False, active=False, reported=LEAVE, ready=REPORTED)).step is OwnStep.CEASE
    assert own_row(OwnNode(requested=True, active=False, reported=LEAVE, ready=REPORTED)).step is OwnStep.ANNOUNCE
    assert own_row(OwnNode(requested=False, active=True, reported=LEAVE, ready=REPORTED)).step is OwnStep.ANNOUNCE


def test_a_node_that_has_everything_is_told_of_once():
    assert own_row(OwnNode(requested=True, active=True, reported=None, ready=REPORTED)).step is OwnStep.ANNOUNCE
    assert own_row(OwnNode(requested=True, active=True, reported=REPORTED, ready=REPORTED)).step is OwnStep.NOTHING


def test_a_request_makes_a_node_ready_and_without_one_nothing_happens():
    assert own_row(OwnNode(requested=True, active=False, reported=None, ready=None)).step is OwnStep.BECOME
    assert own_row(OwnNode(requested=False, active=False, reported=None, ready=None)).step is OwnStep.NOTHING
    assert own_row(OwnNode(requested=False, active=True, reported=REPORTED, ready=None)).step is OwnStep.NOTHING


@pytest.mark.parametrize("reported", [None, REPORTED, LEAVE, f"{JOINING}x"])
def test_what_is_unfinished_goes_with_the_labels_whatever_the_node_says(reported: str | None):
    unfinished = OwnNode(requested=False, active=False, reported=reported, ready=None, unfinished=True)
    assert own_row(unfinished).step is OwnStep.CEASE
    assert own_row(replace(unfinished, requested=True)).step is OwnStep.BECOME
    assert own_row(replace(unfinished, active=True)).step is OwnStep.NOTHING


def test_what_a_node_says_is_read_from_its_metadata():
    assert labels_and_report({}, "requested", "active") == (False, False, None)
    meta = {"labels": {"requested": "", "active": ""}, "annotations": {"autarky.dev/control-node": LEAVE}}
    assert labels_and_report(meta, "requested", "active") == (True, True, LEAVE)
