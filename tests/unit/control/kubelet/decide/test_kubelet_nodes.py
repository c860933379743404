"""The Nodes in the API, as the turns of their kubelets are decided by."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.kubelet.decide import order, report
from autarky.control.kubelet.decide.nodes import MOST_AHEAD, NO_BASE, Around, found
from autarky.control.kubelet.decide.order import CORDONED, Request, Target, made
from autarky.control.kubelet.decide.pools import IMPLICIT
from autarky.control.kubelet.decide.report import Report, State
from autarky.control.kubelet.decide.turns import Node
from autarky.control.kubelet.decide.wanted import PIN
from autarky.model.versions import Version
from autarky.render.values import CONTROL_PLANE_ACTIVE, CONTROL_PLANE_REQUESTED
from unit.control.kubelet.decide.test_kubelet_order import any_json

V36, V37 = Version(1, 36, 4), Version(1, 37, 1)
PLANE = {"spec": {"version": str(V37), "kubelets": {"follow": True}}, "status": {"version": str(V37)}}
AROUND = Around(PLANE, IMPLICIT)
ORDER = made(Request(Target(V37, "ordered"), "image"), 1)


def obj(name: str = "n1", base: str = "base", **annotations: str) -> dict[str, Any]:
    said = {report.ANNOTATION: report.text(Report(base=base, version=V36))} | annotations
    return {
        "metadata": {"name": name, "labels": {}, "annotations": said},
        "spec": {},
        "status": {
            "nodeInfo": {"kubeletVersion": str(V36)},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def only(one: dict[str, Any], around: Around = AROUND) -> Node:
    (node,) = found([one], around).nodes
    return node


def test_a_node_is_read():
    node = only(obj())
    assert node == Node(
        "n1",
        IMPLICIT[0],
        control=False,
        ready=True,
        runs=V36,
        wanted=Target(V37, "base"),
        report=Report(base="base", version=V36),
    )


def test_a_control_node_is_one_by_the_label_that_kubelets_cannot_set():
    one = obj()
    one["metadata"]["labels"] = {CONTROL_PLANE_REQUESTED: ""}
    assert not only(one).control
    one["metadata"]["labels"] = {CONTROL_PLANE_ACTIVE: ""}
    assert only(one).control
    assert (only(one).serves, only(one, Around(PLANE, IMPLICIT, serving={"n1"})).serves) == (False, True)


def test_order_pin_cordon_and_absence_are_seen():
    one = obj(**{order.ANNOTATION: order.text(ORDER), PIN: str(V36), CORDONED: "0" * 16})
    one["spec"]["unschedulable"] = True
    node = only(one, Around(PLANE, IMPLICIT, away={"n1"}))
    assert (node.order, node.cordoned, node.unschedulable, node.away) == (ORDER, "0" * 16, True, True)
    assert node.wanted == Target(V36, "base")


def test_one_whose_agent_says_nothing_stays_as_it_is():
    result = found([obj(base="")], AROUND)
    assert result.nodes[0].wanted is None
    assert result.said == {"n1": NO_BASE}


def test_one_whose_report_was_removed_keeps_its_order():
    one = obj(**{order.ANNOTATION: order.text(ORDER)})
    del one["metadata"]["annotations"][report.ANNOTATION]
    assert only(one).wanted == Target(V37, "ordered")


def test_what_is_not_given_is_explained():
    result = found([obj(**{PIN: "v1.38.0"})], AROUND)
    assert result.nodes[0].wanted == Target(V37, "base")
    assert "rule 4" in result.said["n1"]


@pytest.mark.parametrize(
    ("spec", "takes"),
    [
        ({}, True),
        ({"unschedulable": True}, False),
        ({"taints": [{"key": "a", "effect": "NoSchedule"}]}, False),
        ({"taints": [{"key": "a", "effect": "NoExecute"}]}, False),
        ({"taints": [{"key": "a", "effect": "PreferNoSchedule"}]}, True),
        ({"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]}, True),
    ],
)
def test_who_takes_pods_is_known_by_what_people_have_set(spec, takes):
    one = obj()
    one["spec"] = spec
    assert only(one).takes_pods is takes


def test_a_cordon_of_ours_does_not_count():
    one = obj(**{CORDONED: "0" * 16})
    one["spec"] = {"unschedulable": True, "taints": [{"key": "node.kubernetes.io/unschedulable"}]}
    assert only(one).takes_pods


def test_who_reports_numbers_out_of_all_proportion_reports_nothing():
    """An order can have no higher number than can be read."""
    for number, read in ((MOST_AHEAD + 1, True), (MOST_AHEAD + 2, False)):
        said = Report("0" * 16, number, 1, State.DONE, base="base")
        one = obj(**{order.ANNOTATION: order.text(ORDER), report.ANNOTATION: report.text(said)})
        assert (only(one).report == said) is read


def test_without_pools_nothing_is_known_of_any_node():
    assert found([obj()], Around(PLANE, ())).nodes == ()


def test_they_come_in_the_order_of_their_names():
    assert [node.name for node in found([obj("b"), obj("a")], AROUND).nodes] == ["a", "b"]


@given(any_json, st.sampled_from(["metadata", "spec", "status"]), st.sampled_from(["labels", "annotations", "taints"]))
def test_nothing_is_raised_for_any_node(value, key, inner):
    for changed in ({key: value}, {key: {inner: value, "name": value, "nodeInfo": value, "conditions": [value]}}):
        found([obj() | changed], AROUND)
