"""What nodes report of their kubelets, as it is written and read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.kubelet.decide import report
from autarky.control.kubelet.decide.report import Report, State
from autarky.model.versions import Version
from unit.control.kubelet.decide.test_kubelet_order import any_json

ID = "5b1c0123456789ab"
REPORT = Report(
    order=ID,
    number=3,
    attempt=1,
    state=State.WENT_BACK,
    slot="host",
    version=Version(1, 36, 4),
    former=Version(1, 37, 1),
    base="9f0c",
    runtime="autarky.dev/runtime:2.2-1.3",
    target="77ab",
    why="it was not healthy",
    interrupted=True,
)


def on_a_node(value: object) -> dict[str, Any]:
    return {"annotations": {report.ANNOTATION: value}}


def read(**changes: Any) -> Report | None:
    return report.read(on_a_node(json.dumps(json.loads(report.text(REPORT)) | changes)))


@pytest.mark.parametrize("one", [REPORT, Report(), Report(base="9f0c", version=Version(1, 36, 4))])
def test_what_is_written_is_read(one):
    assert report.read(on_a_node(report.text(one))) == one


def test_the_same_report_is_the_same_text_and_says_nothing_of_what_is_not_there():
    assert report.text(Report()) == "{}"
    assert report.text(REPORT) == report.text(Report(**{name: getattr(REPORT, name) for name in REPORT.__slots__}))


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "Flying"},
        {"state": None},
        {"state": ["Done"]},
        {"order": "short"},
        {"order": 7},
        {"order": "5B1C0123456789AB"},
        {"number": 10**30},
        {"number": -1},
        {"number": True},
        {"number": 1.5},
        {"attempt": "1"},
        {"version": "1.37"},
        {"version": "v1.99999999.1"},
        {"version": 7},
        {"base": "x" * 300},
        {"base": "a b"},
        {"target": {}},
        {"runtime": None},
        {"slot": []},
    ],
)
def test_what_cannot_be_understood_is_no_report(changes):
    assert read() == REPORT
    assert read(**changes) is None


@pytest.mark.parametrize("value", [None, 7, "", "{", "[]", "7", "null", "[" * 100_000, '{"number": 1e999}', "NaN"])
def test_any_other_annotation_is_no_report(value):
    assert report.read(on_a_node(value)) is None


@pytest.mark.parametrize("metadata", [{}, {"annotations": None}, {"annotations": "x"}])
def test_a_node_without_annotations_reports_nothing(metadata):
    assert report.read(metadata) is None


def test_a_large_one_is_not_even_parsed():
    assert report.read(on_a_node(json.dumps({"more": "x" * report.MOST_LETTERS}))) is None


def test_its_words_are_short_and_in_one_line():
    found = read(why="x\n\x1b[31m" + "y" * 1000 + "\ud800")
    assert found is not None
    assert len(found.why) <= 300
    assert found.why.isprintable()
    assert read(why={"of": "this"}).why == ""


def test_without_an_order_it_has_no_state():
    found = report.read(on_a_node(json.dumps({"state": "Done", "base": "9f0c"})))
    assert found == Report(base="9f0c")
    assert not found.is_final


def test_only_what_is_said_to_be_interrupted_is():
    assert read(interrupted="yes").interrupted is False


@pytest.mark.parametrize("state", State)
def test_which_states_are_the_last_of_an_order(state):
    assert state.is_final is (state in {State.DONE, State.WENT_BACK, State.REFUSED})


@given(any_json, st.sampled_from([None, *json.loads(report.text(REPORT))]))
def test_reading_never_raises_and_what_is_read_is_small(value, key):
    found = value if key is None else json.loads(report.text(REPORT)) | {key: value}
    one = report.read(on_a_node(json.dumps(found)))
    assert one is None or len(report.text(one)) < 3000
    assert report.read(on_a_node(value)) is None
