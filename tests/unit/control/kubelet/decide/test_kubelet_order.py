"""Orders to a node's kubelet, as they are written and read."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.kubelet.decide import order
from autarky.control.kubelet.decide.order import Order, Request, Target, drains, made
from autarky.control.kubelet.decide.pools import Drain
from autarky.model.versions import Version
from autarky.render.values import content_hash

V36, V36_5, V37 = Version(1, 36, 4), Version(1, 36, 5), Version(1, 37, 1)
TARGET = Target(V37, "9f0c", "autarky.dev/runtime:2.2-1.3", {"maxPods": 50, "a": [1.5, None]}, {"v": "2"})
REQUEST = Request(TARGET, "autarky.dev/kubelet:v1.37.1", Drain.MINOR, 300, "1")
ORDER = made(REQUEST, 3, 2)

any_json: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def on_a_node(value: object) -> dict[str, Any]:
    return {"annotations": {order.ANNOTATION: value}}


def said(**changes: Any) -> dict[str, Any]:
    """With the id that it would have."""
    found = json.loads(order.text(ORDER)) | changes
    found.pop("id")
    return {"id": content_hash(found, 16), **found}


def read(value: object) -> Order | None:
    return order.read(on_a_node(json.dumps(value)))


def test_what_is_written_is_read():
    assert order.read(on_a_node(order.text(ORDER))) == ORDER
    assert read(said()) == ORDER


def test_two_different_orders_have_different_ids():
    others = [
        made(REQUEST, 4, 2),
        made(REQUEST, 3, 1),
        made(REQUEST, 3, 2, alone=True),
        made(replace(REQUEST, asked="2"), 3, 2),
        made(replace(REQUEST, drain=Drain.NEVER), 3, 2),
        made(replace(REQUEST, image="other"), 3, 2),
        made(replace(REQUEST, target=replace(TARGET, base="9f0d")), 3, 2),
        made(replace(REQUEST, target=replace(TARGET, arguments={"v": "3"})), 3, 2),
        made(replace(REQUEST, target=replace(TARGET, config={"maxPods": 51})), 3, 2),
    ]
    assert len({one.id for one in [ORDER, *others]}) == len(others) + 1
    assert len({one.target.digest for one in [ORDER, *others]}) == 4


def test_an_order_that_was_changed_on_its_way_is_none():
    found = json.loads(order.text(ORDER))
    for key in found:
        assert read(found | {key: "v1.36.4" if key == "version" else 7}) is None, key


def test_what_a_later_release_adds_is_no_obstacle():
    found = read(said(more={"of": "this"}))
    assert found is not None
    assert (found.request, found.number) == (REQUEST, 3)
    assert found.id != ORDER.id


@pytest.mark.parametrize(
    "changes",
    [
        {"version": "1.37"},
        {"version": f"v1.{'9' * 5000}.1"},
        {"drain": "Sometimes"},
        {"drainSeconds": 10**9},
        {"drainSeconds": True},
        {"number": -1},
        {"number": 10**12},
        {"number": 1.0},
        {"attempt": "1"},
        {"config": []},
        {"arguments": {"v": 2}},
        {"arguments": {str(number): "" for number in range(201)}},
        {"base": "x" * 300},
        {"base": None},
        {"image": "with a\nbreak"},
    ],
)
def test_what_cannot_be_understood_is_no_order(changes):
    assert read(said(**changes)) is None


@pytest.mark.parametrize("value", [None, 7, "", "{", "[]", "7", "null", '{"id": 7}', "[" * 100_000, "x" * 100_000])
def test_any_other_annotation_is_no_order(value):
    assert order.read(on_a_node(value)) is None


@pytest.mark.parametrize("metadata", [{}, {"annotations": None}, {"annotations": []}])
def test_a_node_without_annotations_has_no_order(metadata):
    assert order.read(metadata) is None


def test_a_large_one_is_not_even_parsed():
    large = made(replace(REQUEST, target=replace(TARGET, config={"a": "x" * order.MOST_LETTERS})), 3)
    assert order.read(on_a_node(order.text(large))) is None


@given(any_json, st.sampled_from([None, *json.loads(order.text(ORDER))]))
def test_reading_never_raises(value, key):
    found = value if key is None else said() | {key: value}
    assert order.read(on_a_node(json.dumps(found))) in (None, ORDER)
    assert order.read(on_a_node(value)) is None


@pytest.mark.parametrize(
    ("policy", "runs", "is_drained"),
    [
        (Drain.NEVER, V36, False),
        (Drain.MINOR, V36, True),
        (Drain.MINOR, V37, False),
        (Drain.MINOR, None, True),
        (Drain.ALWAYS, V37, True),
        (Drain.NEVER, None, False),
    ],
)
def test_when_a_node_is_drained(policy, runs, is_drained):
    request = replace(REQUEST, drain=policy)
    assert drains(made(request, 1), runs) is is_drained
    assert not drains(made(request, 1, alone=True), runs), "no other node takes pods"
