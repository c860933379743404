"""What `status` shows of the change of a kubelet: by its Node's annotations, which a worker can write."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.cli.status import table
from autarky.control.common.shapes import MOST_SHOWN
from autarky.control.kubelet.decide import hosted_report, order, report
from autarky.control.kubelet.decide.order import Order, Request, Target, made
from autarky.control.kubelet.decide.report import Report, State
from autarky.model.versions import Version
from autarky.status.kubelets import change, hosted
from autarky.status.look import Row, Status
from unit.control.kubelet.decide.test_kubelet_order import any_json

V36, V37 = Version(1, 36, 4), Version(1, 37, 1)
ORDER = made(Request(Target(V37, "base"), "image"), 3)
SAID = Report(order=ORDER.id, number=3, version=V36, base="base")


def a_node(said: Report | None, given: Order | None = ORDER) -> dict[str, Any]:
    annotations = {} if given is None else {order.ANNOTATION: order.text(given)}
    annotations |= {} if said is None else {report.ANNOTATION: report.text(said)}
    return {"metadata": {"name": "n1", "annotations": annotations}}


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (State.STAGING, "v1.37.1 is being prepared"),
        (State.DRAINING, "its pods are evicted for v1.37.1"),
        (State.SWITCHING, "it is being switched to v1.37.1"),
        (State.PROVING, "v1.37.1 is on trial"),
        (State.WENT_BACK, "it went back from v1.37.1"),
        (State.REFUSED, "v1.37.1 was refused"),
    ],
)
def test_each_state_has_its_sentence_with_the_version_that_was_ordered(state: State, sentence: str) -> None:
    said = replace(SAID, state=state)
    if state is State.PROVING:
        said = replace(said, version=V37, former=V36)
    assert change(a_node(said)) == sentence
    assert change(a_node(replace(said, why="because\nof it"))) == f"{sentence}: because of it"
    assert "another kubelet" in change(a_node(said, None)), "nobody knows which one"


@pytest.mark.parametrize(("state", "former"), [(State.WENT_BACK, V36), (State.PROVING, V37)])
def test_where_the_version_stays_it_is_about_settings(state: State, former: Version) -> None:
    assert "its new settings" in change(a_node(replace(SAID, state=state, version=V37, former=former)))


def test_what_is_done_says_nothing_and_neither_does_a_node_without_orders() -> None:
    assert change(a_node(replace(SAID, state=State.DONE))) == ""
    assert change(a_node(Report(version=V36, base="base"), None)) == ""
    assert change({}) == ""


@pytest.mark.parametrize("said", [None, Report(base="base"), replace(SAID, order="0" * 16, number=2, state=State.DONE)])
def test_an_order_that_the_agent_has_not_taken_up_is_named(said: Report | None) -> None:
    assert change(a_node(said)) == "v1.37.1 is ordered, and its agent has not begun"


def test_an_order_of_before_that_came_back_is_none() -> None:
    said = replace(SAID, order="0" * 16, number=4, state=State.REFUSED)
    assert change(a_node(said)) == "another kubelet was refused"


@given(value=any_json, key=any_json)
def test_any_annotation_gives_a_short_line(value: Any, key: Any) -> None:
    forged = {"order": "0" * 16, "state": "WentBack", "why": value, "version": key}
    for said in (value, json.dumps(value), json.dumps(forged)):
        line = change({"metadata": {"annotations": {report.ANNOTATION: said, order.ANNOTATION: key}}})
        assert line == " ".join(line.split())
        assert len(line) <= MOST_SHOWN + 100
    assert change({"metadata": value}) == ""


def test_the_table_shows_it_beside_what_the_node_says_and_json_by_itself() -> None:
    row = Row(0, "kubelet", "n1", "host", str(V36), "ready", "DiskPressure", "it went back from v1.37.1: no space")
    found = Status("c", str(V37), "1-4", "ready", (row, replace(row, node="n2", detail="")))
    lines = table(found).splitlines()
    assert lines[-2].endswith("ready   DiskPressure; it went back from v1.37.1: no space")
    assert lines[-1].endswith("ready   it went back from v1.37.1: no space")
    assert found.as_dict()["rows"][0]["change"] == "it went back from v1.37.1: no space"
    assert found.healthy, "what a kubelet did not become is no fault of what runs"


@given(state=st.sampled_from(hosted_report.State), why=any_json)
def test_any_report_of_a_hosted_kubelet_gives_a_short_line(state: hosted_report.State, why: Any) -> None:
    forged = json.dumps({"pod": "1-2", "version": "v1.37.1", "state": state, "why": why})
    line = hosted(hosted_report.read({"annotations": {hosted_report.ANNOTATION: forged}}), "of its pod")
    assert line == " ".join(line.split())
    assert len(line) <= MOST_SHOWN + 100
    assert (line == "") == (state is hosted_report.State.IN_FORCE)
    assert "of its pod" not in line, "the node itself says more"
