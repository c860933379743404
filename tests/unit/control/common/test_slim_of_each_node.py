"""What is kept of Nodes and of DaemonSets' pods, of which there are as many as nodes: all that is read of them, and
little else."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from autarky.control.common.pods import internal_address, is_ready, node_of
from autarky.control.common.shapes import image_of, node_is_ready
from autarky.control.common.slim import slim_node, slim_pod
from autarky.control.rollout.decide.limits import seconds_to_ready
from autarky.control.rollout.operator.trouble import has_never_run, trouble_of
from autarky.control.upgrade.decide.path import kubelet_of

Object = dict[str, Any]
STAMP = "2026-11-21T10:00:00Z"


def a_node(ready: str = "True") -> Object:
    conditions = [
        {"type": "DiskPressure", "status": "False", "lastHeartbeatTime": STAMP, "message": "there is room"},
        {"type": "Ready", "status": ready, "lastHeartbeatTime": STAMP, "lastTransitionTime": STAMP, "message": "well"},
        {"type": "Ready", "status": "Unknown", "lastHeartbeatTime": STAMP},
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "n1",
            "uid": "u1",
            "resourceVersion": "7",
            "creationTimestamp": STAMP,
            "labels": {"site": "edge"},
            "annotations": {"autarky.dev/x": "1", "else": "2"},
            "managedFields": [{"manager": "kubelet"}],
        },
        "spec": {"unschedulable": True, "taints": [{"key": "a", "effect": "NoSchedule"}], "podCIDR": "10.0.0.0/24"},
        "status": {
            "conditions": conditions,
            "addresses": [{"type": "Hostname", "address": "n1"}, {"type": "InternalIP", "address": "192.0.2.11"}],
            "nodeInfo": {"kubeletVersion": "v1.36.4", "machineID": "m"},
            "images": [{"names": [f"image-{number}"]} for number in range(50)],
            "capacity": {"cpu": "4"},
        },
    }


@pytest.mark.parametrize("ready", ["True", "False", "Unknown"])
def test_all_that_is_read_of_a_node_is_as_it_was(ready: str) -> None:
    node = a_node(ready)
    before, kept = deepcopy(node), slim_node(node)
    assert node == before, "it may be somebody else's as well"
    for look in (node_is_ready, is_ready, internal_address, kubelet_of):
        assert look(kept) == look(node)
    assert kept["spec"] == node["spec"]
    unread = ("managedFields",)
    assert kept["metadata"] == {name: value for name, value in node["metadata"].items() if name not in unread}
    assert (kept["apiVersion"], kept["kind"]) == ("v1", "Node")


def test_of_a_node_nothing_is_kept_that_is_new_with_each_heartbeat_or_that_nobody_reads() -> None:
    kept = slim_node(a_node())
    assert STAMP not in [one.get("lastHeartbeatTime") for one in kept["status"]["conditions"]]
    assert kept["status"].keys() == {"conditions", "addresses", "nodeInfo"}
    assert kept["status"]["conditions"][0] == {"type": "DiskPressure", "status": "False", "message": "there is room"}


@pytest.mark.parametrize("status", [None, {}, {"conditions": None}, {"conditions": [None, "x"]}, {"nodeInfo": []}])
def test_a_node_of_another_shape_is_kept_as_well(status: Any) -> None:
    assert node_is_ready(slim_node({**a_node(), "status": status})) is None


def a_pod(node: str = "n1", **status: Any) -> Object:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    containers = [{"name": name, "image": f"{name}:v1", "env": [{"name": "A"}]} for name in ("kube-proxy", "other")]
    spec = {"containers": containers, "affinity": affinity, "volumes": [{"name": "v"}], "tolerations": [{"key": "a"}]}
    running = {"name": "kube-proxy", "state": {"running": {"startedAt": STAMP}}, "ready": True, "containerID": "c://1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "kube-proxy-x",
            "namespace": "kube-system",
            "uid": "u",
            "resourceVersion": "8",
            "labels": {"k8s-app": "kube-proxy", "controller-revision-hash": "r"},
            "ownerReferences": [{"kind": "DaemonSet", "name": "kube-proxy", "uid": "d", "controller": True}],
        },
        "spec": spec | ({"nodeName": node} if node else {}),
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": STAMP}],
            "containerStatuses": [running | {"volumeMounts": [{"name": "v"}], "resources": {"limits": {}}}],
            "podIPs": [{"ip": "10.0.0.1"}],
            **status,
        },
    }


WAITING = {"name": "x", "image": "x:v1", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such"}}}
ENDED = {"name": "x", "state": {}, "lastState": {"terminated": {"exitCode": 3, "reason": "Error", "message": "oh"}}}


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"containerStatuses": [WAITING]},
        {"initContainerStatuses": [ENDED]},
        {"conditions": []},
        {"containerStatuses": None},
        {"phase": "Failed", "reason": "Evicted", "message": "no room"},
    ],
)
@pytest.mark.parametrize("node", ["n1", ""])
def test_all_that_is_read_of_a_daemon_sets_pod_is_as_it_was(node: str, status: Object) -> None:
    pod = a_pod(node, **status)
    pod["status"] = {name: value for name, value in pod["status"].items() if value is not None}
    before, kept = deepcopy(pod), slim_pod(pod)
    assert pod == before, "it may be somebody else's as well"
    if pod["status"]["phase"] == "Running":
        assert node_of(kept) == node_of(pod) == "n1"
    looks = (is_ready, trouble_of, has_never_run, lambda one: seconds_to_ready(one, "kube-proxy"))
    for look in (*looks, lambda one: image_of(one, "kube-proxy"), lambda one: image_of(one, "other")):
        assert look(kept) == look(pod)
    assert kept["metadata"] == pod["metadata"]
    assert kept["status"]["phase"] == pod["status"]["phase"]


def test_of_a_daemon_sets_pod_what_its_template_has_is_not_kept_again() -> None:
    kept = slim_pod(a_pod())
    assert kept["spec"] == {
        "nodeName": "n1",
        "containers": [{"name": "kube-proxy", "image": "kube-proxy:v1"}, {"name": "other", "image": "other:v1"}],
    }
    assert kept["status"].keys() == {"phase", "conditions", "containerStatuses"}
    assert kept["status"]["containerStatuses"][0].keys() == {"name", "state", "ready", "containerID"}
