"""What nodes report of their hosted kubelets, and whose turn it is, as it is written and read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.kubelet.decide import hosted_report
from autarky.control.kubelet.decide.hosted_report import Report, State
from autarky.model.versions import Version
from unit.control.kubelet.decide.test_kubelet_order import any_json

POD = "b3f1c2d4-0000-4000-8000-000000000001"
REPORT = Report(POD, Version(1, 37, 1), State.FAILED, "it has exited")


def on_a_node(value: object) -> dict[str, Any]:
    return {"annotations": {hosted_report.ANNOTATION: value}}


def read(**changes: Any) -> Report | None:
    return hosted_report.read(on_a_node(json.dumps(json.loads(hosted_report.text(REPORT)) | changes)))


@given(
    st.from_regex(r"\A[0-9a-f-]{1,64}\Z"),
    st.builds(Version, *[st.integers(0, 9999)] * 3),
    st.sampled_from(State),
    st.sampled_from(["", "it has exited", "umlauts: äöü", 'quotes "and" more']),
)
def test_what_is_written_is_read(pod, version, state, why):
    one = Report(pod, version, state, why)
    assert hosted_report.read(on_a_node(hosted_report.text(one))) == one


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "Flying"},
        {"state": None},
        {"state": ["InForce"]},
        {"pod": ""},
        {"pod": "../x"},
        {"pod": "a" * 65},
        {"pod": f"{POD}\n"},
        {"pod": 7},
        {"version": "1.37"},
        {"version": "v1.99999999.1"},
        {"version": None},
    ],
)
def test_what_cannot_be_understood_is_no_report(changes):
    assert read() == REPORT
    assert read(**changes) is None


@pytest.mark.parametrize("value", [None, 7, "", "{", "[]", "7", "null", "[" * 2000, '{"pod": 1e999}', "NaN"])
def test_any_other_annotation_is_no_report(value):
    assert hosted_report.read(on_a_node(value)) is None


def test_a_large_one_is_not_even_parsed():
    assert read(more="x" * hosted_report.MOST_LETTERS) is None


def test_its_words_are_short_and_in_one_line():
    found = read(why="x\n\x1b[31m" + "y" * 1000 + "\ud800")
    assert found is not None
    assert len(found.why) <= 300
    assert found.why.isprintable()


@given(any_json, st.sampled_from([None, *json.loads(hosted_report.text(REPORT))]))
def test_reading_never_raises_and_what_is_read_is_small(value, key):
    found = value if key is None else json.loads(hosted_report.text(REPORT)) | {key: value}
    one = hosted_report.read(on_a_node(json.dumps(found)))
    assert one is None or len(hosted_report.text(one)) < hosted_report.MOST_LETTERS
    assert hosted_report.read(on_a_node(value)) is None
    assert hosted_report.read({"annotations": value}) is None


@given(any_json)
def test_a_turn_is_that_of_a_pod_or_nobodys(value):
    assert hosted_report.turn_of({"annotations": {hosted_report.TURN: POD}}) == POD
    found = hosted_report.turn_of({"annotations": {hosted_report.TURN: value}})
    assert found in ("", value)
    assert hosted_report.turn_of({"annotations": value}) == ""


def test_only_while_it_runs_the_kubelet_is_the_hosted_one():
    assert {one for one in State if one.is_of_node} == {State.PROVING, State.IN_FORCE}
