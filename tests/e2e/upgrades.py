"""What the scenarios of upgrades share: which version everything has, by what runs, and what the ControlPlane says."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import datetime
from typing import Any

from harness import TestCluster
from rollouts import HOSTED, PROXY, component, runs_version, updated_on, version_wanted


def everything_is_of(
    cluster: TestCluster,
    version: str,
    control: Collection[str] = ("n1",),
    everybody: Collection[str] = ("n1",),
    *,
    follow_within: float = 0.0,
) -> None:
    """What is hosted, on every node, every standby, and every kubelet ("v1.36.4"). follow_within: seconds for standbys
    of nodes that were off, and for kubelets."""
    for workload in HOSTED:
        runs_version(cluster, workload, version, set(control))
    assert (version_wanted(cluster, PROXY), updated_on(cluster, PROXY)) == (version, set(everybody))
    wanted = dict.fromkeys(control, dict.fromkeys(map(component, HOSTED), version))
    if follow_within:
        cluster.wait("the standbys follow", lambda: standbys(cluster) == wanted, seconds=follow_within)
    assert standbys(cluster) == wanted
    if follow_within:
        cluster.wait("the kubelets follow", lambda: set(kubelets(cluster).values()) == {version}, seconds=follow_within)
    assert kubelets(cluster) == dict.fromkeys(everybody, version)


def kubelets(cluster: TestCluster) -> dict[str, str]:
    """Node → the version of its kubelet."""
    nodes = json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]
    return {node["metadata"]["name"]: node["status"]["nodeInfo"]["kubeletVersion"] for node in nodes}


def standbys(cluster: TestCluster) -> dict[str, dict[str, str]]:
    """Control node → component → the version of its standby, as its agent reports it."""
    found = {}
    for node in json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]:
        said = json.loads(node["metadata"].get("annotations", {}).get("autarky.dev/slots", "{}")).get("slots", {})
        versions = {name: one.get("version", "") for name, one in said.items() if name in map(component, HOSTED)}
        if versions:
            found[node["metadata"]["name"]] = versions
    return found


UNCHANGED = ("etcd", "kube-dns", "kube-flannel", "node-load-balancer")
"""What an upgrade of the control plane leaves alone, by the label of its pods."""


def unchanged_containers(cluster: TestCluster) -> dict[str, list[str]]:
    """Of each of UNCHANGED: "pod container-id..."."""
    each = "{range .items[*]}{.metadata.name} {.status.containerStatuses[*].containerID}{'\\n'}{end}"
    pods = ("get", "pods", "-A", "-o", f"jsonpath={each}", "-l")
    found = {name: sorted(cluster.kubectl(*pods, f"k8s-app={name}").splitlines()) for name in UNCHANGED}
    assert all("://" in pod for pods in found.values() for pod in pods or [""]), f"not all of them run: {found}"
    return found


def plane_status(cluster: TestCluster) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.kubectl("get", "controlplane", "cluster", "-o", "json"))["status"]
    return found


def version_of(cluster: TestCluster) -> str:
    """That the control plane has had completely last."""
    return str(plane_status(cluster)["version"])


def state_of(cluster: TestCluster) -> str:
    """Of the upgrade, with the component that it is at; empty while there is none."""
    upgrade = plane_status(cluster).get("upgrade") or {}
    return f"{upgrade.get('state', '')} {upgrade.get('component', '')}".strip()


def reasons(cluster: TestCluster) -> set[str]:
    """Of all events there are."""
    events = json.loads(cluster.kubectl("get", "events", "-A", "-o", "json"))["items"]
    return {str(one["reason"]) for one in events}


def kubelets_began_before_the_end(cluster: TestCluster, since: float) -> None:
    """Of an upgrade that has begun since then (Unix seconds), and is complete: the first kubelet was ordered before, as
    the operator's events say. They say no fractions of seconds: what came in the second of the end counts as late."""
    ordered = _events_since(cluster, "Node", "KubeletOrdered", since)
    complete = _events_since(cluster, "ControlPlane", "UpgradeComplete", since)
    assert ordered, f"no kubelet was ordered; complete: {complete}"
    assert complete, f"no upgrade was complete; ordered: {ordered}"
    late = ordered[0][0] - complete[0][0]
    assert late < 0, f"the first kubelet was ordered {late:.0f} s after the end: {ordered}, and complete: {complete}"


def _events_since(cluster: TestCluster, kind: str, reason: str, since: float) -> list[tuple[float, str]]:
    """When, and what they say of which object; the first one first. Each is made once, of the second in which it was
    written."""
    only = f"--field-selector=involvedObject.kind={kind},reason={reason}"
    events = json.loads(cluster.kubectl("get", "events", "-n", "default", only, "-o", "json"))["items"]
    found = [
        (_seconds(event["firstTimestamp"]), f"{event['involvedObject']['name']}: {event['message']}")
        for event in events
    ]
    return sorted(one for one in found if one[0] >= int(since))


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()
