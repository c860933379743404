"""All members of a cluster's etcd have the same keys: asked of every cluster before it goes.

Contract: only those that say otherwise leave a member off, one that does not agree, or none that answers; today none
does, unless it has failed. Whatever does not answer, it takes SECONDS. A cluster with one member, with an external
etcd, or that is gone has nothing to compare.
"""

from __future__ import annotations

import json
import math
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ha import ETCDCTL, lab_hosts
from harness import STATE, TestCluster

from autarky.errors import Unreachable

SECONDS = 60.0
"""A member that joins when its scenario ends may take so long; one that has other keys never agrees."""
ASK_SECONDS = 20.0
"""For one command; etcdctl has 5 s for each member that it asks."""
_HAS_A_MEMBER = "ls /etc/kubernetes/manifests/etcd-*.json 2>/dev/null || true"


def all_members_agree(cluster: TestCluster) -> None:
    """Whatever the scenario has compared itself."""
    hosts = _whose_hosts(cluster)
    nodes = _nodes_with_a_member(cluster, hosts)
    if not nodes:
        return
    deadline = time.monotonic() + SECONDS
    while differs := _two_clusters(hosts, nodes, deadline) or difference(hosts, nodes[0], deadline):
        assert time.monotonic() < deadline, f"at the end of the scenario, after {SECONDS:.0f} s: {differs}"
        time.sleep(1)


def difference(cluster: TestCluster, node: str, deadline: float = math.inf, *, etcdctl: str = ETCDCTL) -> str:
    """Why it is not clear that all members have the same keys, by their hash at the newest revision that the quorum
    has (`etcdctl endpoint hashkv`); "" where it is. node: one with a member. etcdctl: how it is called there."""
    try:
        members = json.loads(_asked(cluster, node, "member list", deadline, etcdctl))["members"]
        if len(members) == 1:
            return ""
        if learners := [str(one.get("name")) for one in members if one.get("isLearner")]:
            return f"without a vote: {', '.join(learners)}"
        revision = json.loads(_asked(cluster, node, "get none", deadline, etcdctl))["header"]["revision"]
        said = _asked(cluster, node, f"endpoint hashkv --cluster --rev={revision}", deadline, etcdctl)
    except (AssertionError, subprocess.TimeoutExpired, Unreachable) as error:
        return str(error)
    hashes = {one["Endpoint"]: one["HashKV"]["hash"] for one in json.loads(said)}
    return "" if len(hashes) == len(members) and len(set(hashes.values())) == 1 else f"hashes of all keys: {hashes}"


def _asked(cluster: TestCluster, node: str, what: str, deadline: float, etcdctl: str = ETCDCTL) -> str:
    """What etcdctl says on the node. AssertionError where it fails, or takes too long."""
    left = deadline - time.monotonic()
    assert left > 0, f"no time is left to ask {node}: {what}"
    return cluster.shell(node, f"timeout {math.ceil(min(left, ASK_SECONDS))} {etcdctl} {what} -w json")


def _two_clusters(cluster: TestCluster, nodes: Sequence[str], deadline: float) -> str:
    """Where members that run beside each other are of different ones; "" where they are not, or one does not answer,
    which the others say."""
    ids: dict[str, int] = {}
    for node in nodes:
        with suppress(AssertionError, subprocess.TimeoutExpired, Unreachable):
            [said] = json.loads(_asked(cluster, node, "endpoint status", deadline))
            ids[node] = said["Status"]["header"]["cluster_id"]
    return "" if len(set(ids.values())) <= 1 else f"ids of their clusters: {ids}"


def _whose_hosts(cluster: TestCluster) -> TestCluster:
    """The cluster's own, or those of the lab whose machines it was told of by ssh."""
    lab = Path(cluster.spec.get("sshConfig", "")).parent
    return TestCluster(lab.name, {}) if lab.parent == STATE / "autarky/labs" else cluster


def _nodes_with_a_member(cluster: TestCluster, hosts: TestCluster) -> list[str]:
    """None where the cluster has none on its hosts, or is gone."""
    if not (STATE / "autarky/labs" / hosts.name / "lab.json").exists():
        return []
    names = lab_hosts(hosts) if hosts is cluster else lab_hosts(hosts) & _told_of_by_ssh(cluster)
    return [host for host in sorted(names) if _has_a_member(hosts, host)]


def _told_of_by_ssh(cluster: TestCluster) -> set[str]:
    """Nodes of a lab's own cluster have no host of their own in its file."""
    return {node["host"].removeprefix("ssh://") for node in cluster.spec["nodes"] if "host" in node}


def _has_a_member(cluster: TestCluster, host: str) -> bool:
    if not cluster.has_host(host):
        return False
    try:
        return bool(cluster.shell(host, _HAS_A_MEMBER))
    except Unreachable:  # it is off: those that are on say that it does not answer
        return False
