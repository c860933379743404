"""The ControlPlane's status: what only workers say of themselves has reasons of its own, by which nobody is stopped."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from autarky.control.base import found_once
from autarky.control.base.operator_view import View
from autarky.control.certificates import decide as certificates
from autarky.control.kubelet.decide import hosted_report
from autarky.control.kubelet.decide.hosted_report import Report, State
from autarky.control.status import decide as plane_status
from autarky.control.status import operator as module
from autarky.model.components import (
    API_SERVER,
    COMPONENTS,
    COREDNS,
    HOSTED,
    KUBE_PROXY,
    KUBELET,
    LOAD_BALANCER,
    NODE_AGENT,
    OPERATOR,
    SLOT_LABEL,
)
from autarky.model.versions import Version
from autarky.ports import Object
from autarky.render.values import CONTROL_PLANE_ACTIVE

V37 = Version(1, 37, 1)
NOW = datetime(2026, 11, 28, tzinfo=UTC)


def a_node(name: str, *, ready: bool = True, ends: str = "2099-01-01T00:00:00Z") -> Object:
    """A control node if its name begins with n."""
    meta = {
        "name": name,
        "labels": {CONTROL_PLANE_ACTIVE: ""} if name.startswith("n") else {},
        "annotations": {certificates.ANNOTATION: json.dumps({"ends": {"kubelet": ends}})},
    }
    return {"metadata": meta, "status": {"conditions": [{"type": "Ready", "status": str(ready)}]}}


def a_pod(component: str, node: str, *, ready: bool = True, scheduled: bool = True) -> Object:
    """Of a controller, or for the load balancer a static one."""
    found = COMPONENTS[component]
    meta: Object = {"labels": {"k8s-app": found.label_value, **({} if found.only_static else {SLOT_LABEL: HOSTED})}}
    if found.only_static:
        meta["annotations"] = {"kubernetes.io/config.mirror": "x"}
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    spec: Object = {"containers": [{"image": "x:1"}]}
    if scheduled:
        spec["nodeName"] = node
    elif found.kind == "DaemonSet":
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return {"metadata": meta, "spec": spec, "status": {"conditions": [{"type": "Ready", "status": str(ready)}]}}


def the_view(nodes: list[Object], pods: list[Object]) -> View:
    named = {(None, one["metadata"]["name"]): one for one in nodes}
    numbered = {("kube-system", str(number)): pod for number, pod in enumerate(pods)}
    return cast(
        "View",
        SimpleNamespace(
            nodes=SimpleNamespace(items=named),
            active_nodes=found_once.active_of(nodes),
            pods=SimpleNamespace(items=numbered),
        ),
    )


def condition(kind: str, view: View) -> Object:
    layers, expiry = list(module._layers(view)), module._certificates(view, NOW)
    found = plane_status.status(layers, [], [], [], [], [], expiry=expiry, generation=1, before={}, now="now")
    return next(one for one in found["conditions"] if one["type"] == kind)


def ready(pods: list[Object], nodes: list[Object] | None = None) -> tuple[str, str, str]:
    one = condition("Ready", the_view(nodes or [a_node("n1"), a_node("w1")], pods))
    return one["status"], one["reason"], one["message"]


@pytest.mark.parametrize("component", [KUBE_PROXY, NODE_AGENT, LOAD_BALANCER, COREDNS])
@pytest.mark.parametrize(("node", "reason"), [("w1", "WorkersNotReady"), ("n1", "NotReady")])
def test_a_pod_that_is_not_ready(component: str, node: str, reason: str) -> None:
    pods = [a_pod(component, name, ready=name != node) for name in ("n1", "w1")]
    assert ready(pods) == ("False", reason, f"{component} has 1 of 2 ready")


@pytest.mark.parametrize(("node", "reason"), [("w1", "WorkersNotReady"), ("n1", "NotReady")])
def test_a_node_that_is_not_ready(node: str, reason: str) -> None:
    nodes = [a_node(name, ready=name != node) for name in ("n1", "w1")]
    assert ready([], nodes) == ("False", reason, "kubelet has 1 of 2 ready")


@pytest.mark.parametrize(("node", "reason"), [("w1", "WorkersNotReady"), ("n1", "NotReady")])
def test_a_pod_of_a_daemon_set_that_its_node_does_not_take(node: str, reason: str) -> None:
    """A worker may say that it has no room for it."""
    assert ready([a_pod(KUBE_PROXY, node, ready=False, scheduled=False)])[1] == reason


def test_a_pod_that_could_be_anywhere_is_no_workers() -> None:
    assert ready([a_pod(COREDNS, "", ready=False, scheduled=False)])[1] == "NotReady"


@pytest.mark.parametrize("component", [OPERATOR, API_SERVER])
def test_what_has_no_place_on_workers_is_not_excused_there(component: str) -> None:
    assert ready([a_pod(component, "w1", ready=False)])[1] == "NotReady"


def test_what_lacks_on_a_control_node_as_well_is_not_excused() -> None:
    pods = [a_pod(KUBE_PROXY, "w1", ready=False), a_pod(NODE_AGENT, "n1", ready=False)]
    assert ready(pods)[1] == "NotReady"
    assert ready([a_pod(KUBE_PROXY, "w1", ready=False), a_pod(KUBE_PROXY, "n1", ready=False)])[1] == "NotReady"


def test_a_load_balancer_counts_once_on_each_node() -> None:
    """A worker's kubelet may make any number of them; on a control node none that is not ready is hidden."""
    many = [a_pod(LOAD_BALANCER, "n1"), *(a_pod(LOAD_BALANCER, "w1", ready=number > 0) for number in range(5))]
    assert ready(many) == ("False", "WorkersNotReady", "node-load-balancer has 1 of 2 ready")
    two = [a_pod(LOAD_BALANCER, "w1"), a_pod(LOAD_BALANCER, "n1", ready=False), a_pod(LOAD_BALANCER, "n1")]
    assert ready(two) == ("False", "NotReady", "node-load-balancer has 1 of 2 ready")
    assert ready([a_pod(LOAD_BALANCER, "n1"), a_pod(LOAD_BALANCER, "n1")])[0] == "True"


@pytest.mark.parametrize(
    ("expired", "reason"), [({"w1"}, "WorkersNotRenewed"), ({"n1"}, "NotRenewed"), ({"n1", "a1"}, "NotRenewed")]
)
def test_certificates_that_a_node_says_have_expired(expired: set[str], reason: str) -> None:
    """Control nodes come first: what workers say does not hide them."""
    long_ago = {name: {"ends": "2000-01-01T00:00:00Z"} for name in expired}
    nodes = [a_node(name, **cast("Any", long_ago.get(name, {}))) for name in ("a1", "n1", "w1")]
    one = condition("CertificatesCurrent", the_view(nodes, []))
    assert (one["status"], one["reason"]) == ("False", reason)
    first = "n1" if "n1" in expired else "w1"
    assert one["message"].startswith(f"kubelet on {first} expired at 2000-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("trouble", "reason"), [("NotReady", "WorkersNotReady"), ("taint", "WorkersNotReady"), ("", "NotReady")]
)
def test_a_pod_of_dns_that_waits_for_a_worker_to_be_apart(trouble: str, reason: str) -> None:
    """With two nodes in all: no upgrade may be refused for a worker that is off, or that says its disk is full."""
    worker = a_node("w1", ready=trouble != "NotReady")
    if trouble == "taint":
        worker["spec"] = {"taints": [{"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}]}
    pods = [a_pod(COREDNS, "n1"), a_pod(COREDNS, "", ready=False, scheduled=False)]
    assert ready(pods, [a_node("n1"), worker])[:2] == ("False", reason)
    assert ready(pods[1:], [a_node("n1"), worker])[:2] == ("False", "NotReady"), "nobody answers"


# --- level 0 ------------------------------------------------------------------------------------------------


def a_node_with(name: str, state: State, *, ready: bool = True) -> Object:
    node = a_node(name, ready=ready)
    node["metadata"]["annotations"][hosted_report.ANNOTATION] = hosted_report.text(Report("1-2", V37, state))
    return {**node, "status": {**node["status"], "nodeInfo": {"kubeletVersion": str(V37)}}}


def of_kubelets(*nodes: Object, pods: tuple[Object, ...] = ()) -> dict[str, tuple[int, int, int]]:
    """Slot → (ready, of how many, excused)."""
    layers = [one for one in module._layers(the_view([*nodes], [*pods])) if one.component == KUBELET]
    found = {one.slot: (one.ready, one.total, one.excused) for one in layers}
    assert len(found) == len(layers)
    return found


def test_kubelets_are_in_the_slot_that_is_in_force_as_their_nodes_report() -> None:
    assert of_kubelets() == {"host": (0, 0, 0)}
    assert of_kubelets(a_node("n1"), a_node("w1", ready=False)) == {"host": (1, 2, 1)}
    inside, outside = {State.PROVING, State.IN_FORCE}, {State.WAITING, State.REFUSED, State.FAILED}
    assert inside | outside == set(State)
    for state in State:
        slot = "hosted" if state in inside else "host"
        assert of_kubelets(a_node_with("n1", state)) == {slot: (1, 1, 0)}
    both = [a_node_with("n1", State.IN_FORCE), a_node_with("w1", State.IN_FORCE, ready=False), a_node("n2")]
    assert of_kubelets(*both) == {"hosted": (1, 2, 1), "host": (1, 1, 0)}


def test_a_hosted_kubelet_that_waits_makes_no_layer_unready() -> None:
    """Its pod is not Ready then, and the host's kubelet serves."""
    node, pod = a_node_with("n1", State.REFUSED), a_pod(KUBELET, "n1", ready=False)
    assert of_kubelets(node, pods=(pod,)) == {"host": (1, 1, 0)}
    assert ready([pod], [node])[0] == "True"
