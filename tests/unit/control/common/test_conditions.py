"""Conditions are read as Kubernetes' controllers read them: the first of a type decides.

A kubelet may write any number of a type into the status of its Node and of its pods. Where autarky goes by another one
than the DaemonSet controller, one of them waits forever for what the other one has seen.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autarky.control.addons import health, on_workers
from autarky.control.common.pods import NO_NETWORK, is_ready, lacks_network, pressure
from autarky.control.common.shapes import condition, conditions, node_is_ready
from autarky.control.common.slim import MOST_ITEMS, slim_pod
from autarky.control.rollout.decide.limits import seconds_to_ready
from autarky.control.upgrade.decide import checks_of_nodes

Object = dict[str, Any]
BEGAN, READY = "2026-11-21T12:29:31Z", "2026-11-21T12:29:41Z"
YES, NO = ({"type": "Ready", "status": status, "lastTransitionTime": READY} for status in ("True", "False"))


def of(kind: str, *found: Object) -> Object:
    running = {"name": "c", "state": {"running": {"startedAt": BEGAN}}}
    return {
        "kind": kind,
        "metadata": {"name": "x", "namespace": "kube-system"},
        "spec": {"containers": []},
        "status": {"conditions": list(found), "containerStatuses": [running]},
    }


READERS = {
    "a pod": is_ready,
    "a node": lambda obj: node_is_ready(obj) is True,
    "a node before an upgrade": checks_of_nodes.is_ready,
    "a pod of an add-on": lambda obj: health.lacking(obj) is None,
    "how long a start took": lambda obj: seconds_to_ready(obj, "c") is not None,
    "a pod as the operator keeps it": lambda obj: is_ready(slim_pod(obj)),
}


@pytest.mark.parametrize("reader", READERS)
@given(st.lists(st.sampled_from([YES, NO, {"type": "Other", "status": "True"}]), max_size=MOST_ITEMS + 5))
def test_the_first_of_several_ready_conditions_decides(reader: str, found: list[Object]) -> None:
    """As upstream's `GetPodCondition` and `GetNodeCondition` do, which walk through the list."""
    upstream = next((one for one in found if one["type"] == "Ready"), None)
    assert READERS[reader](of("Pod", *found)) == (upstream is YES)


def test_a_ready_condition_behind_any_number_of_others_is_kept() -> None:
    """The DaemonSet controller finds it there as well."""
    others = [{"type": f"example.org/{number}", "status": "True"} for number in range(10 * MOST_ITEMS)]
    kept = slim_pod(of("Pod", *others, YES, NO))
    assert is_ready(kept)
    assert len(kept["status"]["conditions"]) == MOST_ITEMS


def test_a_pod_of_a_worker_that_says_both_lacks_what_its_controller_does_not_count() -> None:
    live = {
        "metadata": {"name": "kube-flannel", "uid": "u", "generation": 1},
        "status": {"observedGeneration": 1, "desiredNumberScheduled": 2, "numberAvailable": 1},
    }
    owner = {"ownerReferences": [{"uid": "u"}]}
    labels = {"labels": {"controller-revision-hash": "h"}}
    revision = {"metadata": {**owner, **labels}, "revision": 1}
    pods = [{**of("Pod", *found), "spec": {"nodeName": node}} for node, found in (("n1", (YES,)), ("w1", (NO, YES)))]
    for pod in pods:
        pod["metadata"].update(owner, **labels)
    assert on_workers.lacking(live, pods, [revision], {"w1"}, ()) == ["w1"]


def test_a_node_lacks_a_network_and_room_by_the_first_of_each_type() -> None:
    no_network = {**NO, "message": f"{NO_NETWORK}: cni plugin not initialized"}
    assert lacks_network(of("Node", no_network, YES))
    assert not lacks_network(of("Node", YES, no_network))
    pressed = {"type": "DiskPressure", "status": "True", "message": "full"}
    assert pressure(of("Node", pressed, {**pressed, "status": "False"})) == "DiskPressure (full)"
    assert pressure(of("Node", {**pressed, "status": "False"}, pressed)) == ""


@given(
    st.recursive(
        st.none() | st.text() | st.integers(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["type", "status", "x"]), inner),
    )
)
@example([{"type": "Ready", "status": "False"}, {"type": "Ready", "status": "True"}])
def test_conditions_of_any_shape_are_read(found: Any) -> None:
    obj = {"status": {"conditions": found}}
    items = found if isinstance(found, list) else []
    kinds = {one["type"] for one in items if isinstance(one, dict) and isinstance(one.get("type"), str)}
    assert conditions(obj).keys() - {""} == kinds - {""}
    assert all(condition(obj, kind) is one for kind, one in conditions(obj).items() if kind)
