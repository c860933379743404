"""The pools of the ControlPlane, and which node is in which."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.kubelet.decide.pools import IMPLICIT, Drain, Pool, pool_of, read, trouble
from autarky.model.kubelets import CONTROL_NODES, NOT_OURS, WORKERS
from autarky.model.versions import Version
from unit.control.kubelet.decide.test_kubelet_order import any_json

RUNTIME = "autarky.dev/container-runtime:v2.3.7-runc-v1.5.2"
ODD_REFERENCES: tuple[Any, ...] = ("", "a b", "\n", "Upper", "a" * 256, 7, [])
EDGE = {
    "name": "edge",
    "nodes": {"matchLabels": {"site": "edge", "rack": "1"}},
    "order": 0,
    "atOnce": 2,
    "drain": "Always",
    "drainSeconds": 60,
    "version": "v1.36.4",
    "runtime": RUNTIME,
    "kubelet": {"configuration": {"maxPods": 50}},
}


def named(pools: tuple[Pool, ...], labels: dict[str, Any], *, control: bool = False) -> str:
    found = pool_of(pools, labels, control=control)
    return "" if found is None else found.name


def test_without_any_there_are_workers_and_then_control_nodes():
    assert read(None) == IMPLICIT
    assert read([]) == IMPLICIT
    assert [(pool.name, pool.control, pool.order, pool.at_once) for pool in IMPLICIT] == [
        (WORKERS, False, 1, 1),
        (CONTROL_NODES, True, 2, 1),
    ]
    assert named(IMPLICIT, {"any": "label"}) == WORKERS
    assert named(IMPLICIT, {}, control=True) == CONTROL_NODES


def test_a_pool_is_read():
    assert read([EDGE])[0] == Pool(
        name="edge",
        labels={"site": "edge", "rack": "1"},
        order=0,
        at_once=2,
        drain=Drain.ALWAYS,
        drain_seconds=60,
        version=Version(1, 36, 4),
        runtime=RUNTIME,
        configuration={"maxPods": 50},
    )
    assert trouble([EDGE]) is None


def test_a_node_is_in_the_first_pool_that_it_fits():
    pools = read([EDGE, {"name": "rack", "nodes": {"matchLabels": {"rack": "1"}}}])
    assert named(pools, {"site": "edge", "rack": "1"}) == "edge"
    assert named(pools, {"rack": "1"}) == "rack"
    assert named(pools, {"site": "edge"}) == WORKERS


def test_labels_make_no_worker_a_control_node_and_none_takes_one_away():
    """A kubelet sets most labels of its Node itself."""
    pools = read([EDGE, {"name": "control", "nodes": {"controlPlane": True, "matchLabels": {"site": "edge"}}}])
    labels = {"site": "edge", "rack": "1"}
    assert named(pools, labels, control=True) == "control"
    assert named(pools, {}, control=True) == CONTROL_NODES
    assert named(pools, labels) == "edge"


def test_the_pools_that_are_always_there_can_have_other_settings_and_come_last():
    pools = read([{"name": WORKERS, "atOnce": 3}, EDGE, {"name": CONTROL_NODES, "nodes": {"controlPlane": True}}])
    assert [pool.name for pool in pools] == ["edge", WORKERS, CONTROL_NODES]
    assert pools[1].at_once == 3
    assert named(pools, {"site": "edge", "rack": "1"}) == "edge"


def test_control_nodes_are_never_changed_side_by_side():
    pools = read([{"name": CONTROL_NODES, "nodes": {"controlPlane": True}, "atOnce": 3}])
    assert pools[-1].at_once == 1
    assert pools[-1].order == 2


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({}, "no list"),
        ([EDGE] * 51, "no list"),
        ([7], "no pool"),
        ([EDGE, EDGE], "two pools have the name edge"),
        ([{}], "the name of a pool"),
        ([{**EDGE, "name": "Edge"}], "the name of a pool"),
        ([{**EDGE, "name": ["edge"]}], "the name of a pool"),
        ([{**EDGE, "sort": 1}], "pool edge: sort is nothing that a pool has"),
        ([{**EDGE, "nodes": []}], "nodes has more"),
        ([{**EDGE, "nodes": {"names": ["n1"]}}], "nodes has more"),
        ([{"name": "edge"}], "it says of no node"),
        ([{**EDGE, "nodes": {"matchLabels": {"site": 7}}}], "matchLabels is no object"),
        ([{**EDGE, "nodes": {"matchLabels": ["site"]}}], "matchLabels is no object"),
        ([{**EDGE, "nodes": {"controlPlane": "yes"}}], "neither true nor false"),
        ([{**EDGE, "name": WORKERS}], "all workers that no other pool has"),
        ([{"name": CONTROL_NODES}], "all control nodes that no other pool has"),
        ([{**EDGE, "order": -1}], "order is no number"),
        ([{**EDGE, "order": True}], "order is no number"),
        ([{**EDGE, "atOnce": 0}], "atOnce is no number"),
        ([{**EDGE, "atOnce": 1.5}], "atOnce is no number"),
        ([{**EDGE, "drainSeconds": 10**9}], "drainSeconds is no number"),
        ([{**EDGE, "drain": "Sometimes"}], "drain is none of Never, Minor, Always"),
        ([{**EDGE, "drain": ["Never"]}], "drain is none of"),
        ([{**EDGE, "version": "1.36"}], "version is none such"),
        ([{**EDGE, "version": 1.36}], "version is none such"),
        *(([{**EDGE, "runtime": odd}], "runtime is no image") for odd in ODD_REFERENCES),
        ([{**EDGE, "kubelet": {"arguments": {}}}], "kubelet has more"),
        ([{**EDGE, "kubelet": {"configuration": []}}], "is no object"),
        *(([{**EDGE, "kubelet": {"configuration": {key: 1}}}], f"sets {key}, which is") for key in sorted(NOT_OURS)),
    ],
)
def test_what_is_wrong_is_named_and_then_there_are_no_pools_at_all(value, why):
    assert why in (trouble(value) or "")
    assert read(value) == ()
    assert pool_of(read(value), {}, control=False) is None


@given(any_json, st.sampled_from([None, *EDGE]))
def test_reading_never_raises(value, key):
    pools = value if key is None else [EDGE | {key: value}]
    assert bool(read(pools)) is (trouble(pools) is None)
