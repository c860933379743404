"""What the scenarios of several control nodes share: who leads etcd, probes from inside of a node, power, health."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from harness import STATE, TestCluster

CONTROL = ("n1", "n2", "n3")
WORKER = "w1"
EVERYBODY = (*CONTROL, WORKER)
LONGEST_OUTAGE = 3.0
"""Seconds for which new connections may fail after a power cut."""
RETURN_SECONDS = 240.0
_ETCDCTL = (
    "/var/lib/autarky/bin/etcdctl --endpoints=https://127.0.0.1:2379 --cacert=/etc/kubernetes/pki/etcd/ca.crt"
    " --cert=/etc/kubernetes/pki/etcd/server.crt --key=/etc/kubernetes/pki/etcd/server.key"
)


def three_and_one() -> dict[str, Any]:
    """examples/lab-3.yaml."""
    nodes = [{"name": name, "host": "lab", "roles": ["control-plane", "worker"]} for name in CONTROL]
    return {"nodes": [*nodes, {"name": WORKER, "host": "lab", "roles": ["worker"]}]}


# --- looking ---------------------------------------------------------------------------------------------


def etcd_leader(cluster: TestCluster, nodes: Sequence[str] = CONTROL) -> str:
    """The node whose member leads; "" while none does."""
    for node in nodes:
        [said] = json.loads(cluster.shell(node, f"{_ETCDCTL} endpoint status -w json"))
        if said["Status"]["leader"] == said["Status"]["header"]["member_id"]:
            return node
    return ""


def etcd_members(cluster: TestCluster, node: str) -> set[str]:
    """The names of all members, as the one of this node has them."""
    said = json.loads(cluster.shell(node, f"{_ETCDCTL} member list -w json"))
    return {member["name"] for member in said["members"]}


def member_objects(cluster: TestCluster) -> dict[str, Any]:
    """Node → its EtcdMember."""
    found = json.loads(cluster.kubectl("get", "etcdmembers", "-o", "json"))["items"]
    return {obj["metadata"]["name"]: obj for obj in found}


def member_phases(cluster: TestCluster) -> dict[str, str]:
    """Node → the phase of its EtcdMember; "" while nothing was said of it."""
    return {name: obj.get("status", {}).get("phase", "") for name, obj in member_objects(cluster).items()}


def out_of_place(cluster: TestCluster) -> list[str]:
    """What is not as it should be: not ready, a standby that is active, a host that is missing, no API."""
    found = cluster.status()
    rows = [
        f"{row['component']} on {row['node']} ({row['slot']}) is {row['health']} {row['detail']}".rstrip()
        for row in found["rows"]
        if row["health"] not in _IN_PLACE.get((row["slot"], row["component"] == "node-agent"), {"ready"})
    ]
    api = [] if found["api"] == "ready" else [f"API: {found['api']}"]
    return [*api, *found["absent"], *rows]


_IN_PLACE = {("standby", False): {"dormant"}}


def wait_until_healthy(cluster: TestCluster) -> float:
    """Seconds until all is where it belongs, with nobody's help."""
    began = time.monotonic()
    while left := out_of_place(cluster):
        assert time.monotonic() < began + RETURN_SECONDS, f"after {RETURN_SECONDS:.0f} s: {left}"
        time.sleep(0.5)
    return time.monotonic() - began


def longest_outage(report: Mapping[str, Any]) -> float:
    """Seconds from a new connection that failed to the next that did not, by when they began."""
    return 0.0 if report["outage"] is None else float(report["outage"]["seconds"])


def lab_hosts(cluster: TestCluster) -> set[str]:
    lab = json.loads((STATE / "autarky/labs" / cluster.name / "lab.json").read_text())
    return set(lab["hosts"])


# --- power -----------------------------------------------------------------------------------------------


def cut(cluster: TestCluster, *nodes: str) -> None:
    cluster.autarky("lab", "cut", "--lab", cluster.name, *nodes)


def start(cluster: TestCluster, *nodes: str) -> None:
    cluster.autarky("lab", "start", "--lab", cluster.name, *nodes, "-o", "plain")


def survived(report: Mapping[str, Any]) -> None:
    """New connections failed for a moment at most, and what was acknowledged is there."""
    assert report["failures_left_out"] == 0, report
    assert longest_outage(report) <= LONGEST_OUTAGE, report
    assert report["writes_lost"] == 0, report
    assert report["writes_acknowledged"] > 20, report
    assert report["outage"] is None or report["outage"]["over"], report
