"""All members of a cluster's etcd have the same keys: asked of every cluster when its last scenario has passed.

Contract: only those that say otherwise leave a member off, one that does not agree, or none that answers; today none
does. A cluster with one member, with an external etcd, or that is gone has nothing to compare.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress

from ha import ETCDCTL, lab_hosts
from harness import STATE, TestCluster

from autarky.errors import Unreachable

SECONDS = 60.0
"""A member that joins when its scenario ends may take so long; one that has other keys never agrees."""
_HAS_A_MEMBER = "ls /etc/kubernetes/manifests/etcd-*.json 2>/dev/null || true"


def all_members_agree(cluster: TestCluster) -> None:
    """Whatever the scenario has compared itself."""
    nodes = _nodes_with_a_member(cluster)
    if not nodes:
        return
    deadline = time.monotonic() + SECONDS
    while differs := _two_clusters(cluster, nodes) or difference(cluster, nodes[0]):
        assert time.monotonic() < deadline, f"at the end of the scenario, after {SECONDS:.0f} s: {differs}"
        time.sleep(1)


def difference(cluster: TestCluster, node: str) -> str:
    """Why it is not clear that all members have the same keys, by their hash at the newest revision that the quorum
    has (`etcdctl endpoint hashkv`); "" where it is. node: one with a member."""
    try:
        members = json.loads(cluster.shell(node, f"{ETCDCTL} member list -w json"))["members"]
        if len(members) == 1:
            return ""
        if learners := [str(one.get("name")) for one in members if one.get("isLearner")]:
            return f"without a vote: {', '.join(learners)}"
        revision = json.loads(cluster.shell(node, f"{ETCDCTL} get none -w json"))["header"]["revision"]
        said = cluster.shell(node, f"{ETCDCTL} endpoint hashkv --cluster --rev={revision} -w json")
    except (AssertionError, subprocess.TimeoutExpired, Unreachable) as error:
        return str(error)
    hashes = {one["Endpoint"]: one["HashKV"]["hash"] for one in json.loads(said)}
    return "" if len(hashes) == len(members) and len(set(hashes.values())) == 1 else f"hashes of all keys: {hashes}"


def _two_clusters(cluster: TestCluster, nodes: Sequence[str]) -> str:
    """Where members that run beside each other are of different ones; "" where they are not, or one does not answer,
    which the others say."""
    ids: dict[str, int] = {}
    for node in nodes:
        with suppress(AssertionError, subprocess.TimeoutExpired, Unreachable):
            [said] = json.loads(cluster.shell(node, f"{ETCDCTL} endpoint status -w json"))
            ids[node] = said["Status"]["header"]["cluster_id"]
    return "" if len(set(ids.values())) <= 1 else f"ids of their clusters: {ids}"


def _nodes_with_a_member(cluster: TestCluster) -> list[str]:
    """None where the cluster has none on its hosts, or is gone."""
    if not (STATE / "autarky/labs" / cluster.name / "lab.json").exists():
        return []
    return [host for host in sorted(lab_hosts(cluster)) if _has_a_member(cluster, host)]


def _has_a_member(cluster: TestCluster, host: str) -> bool:
    if not cluster.has_host(host):
        return False
    try:
        return bool(cluster.shell(host, _HAS_A_MEMBER))
    except Unreachable:  # it is off: those that are on say that it does not answer
        return False
