"""Certificates of a few minutes' life: renewed with nobody at the keyboard, and after the cluster was off for longer.

The three kinds of nodes at once: one that founded the cluster, one that a label made a control node, and a worker.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from harness import TestCluster
from labels import is_control_node, label
from leaves import restarts, told_ends

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(3000)]
LEAF_MINUTES, KUBELET_MINUTES = 6, 10
NODES = ("n1", "n2", "w1")
RENEWALS = 3
SHORT = ("apiserver", "front-proxy-client", "apiserver-etcd-client", "etcd/server", "etcd/peer", "etcd/client")
SETTINGS = {"leafLifetime": f"{LEAF_MINUTES}m", "kubeletLifetime": f"{KUBELET_MINUTES}m"}


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    nodes = [{"name": "n1", "roles": ["control-plane"]}, *({"name": n, "roles": ["worker"]} for n in NODES[1:])]
    cluster = make_cluster("t-certificates", nodes=nodes, certificates=SETTINGS)
    cluster.up()
    label(cluster, "n2")
    cluster.wait("n2 is a control node", lambda: is_control_node(cluster, "n2"), seconds=240)
    cluster.wait("its certificates are told", lambda: "apiserver" in told_ends(cluster)["n2"], seconds=60)
    return cluster


def test_each_leaf_is_renewed_three_times_with_no_restart_and_no_failed_request(cluster: TestCluster) -> None:
    """The administrator's certificate lives as always, so the probe's does."""
    seen: dict[tuple[str, str], set[str]] = {}

    def renewed() -> bool:
        for node, ends in told_ends(cluster).items():
            for name, end in ends.items():
                seen.setdefault((node, name), set()).add(end)
        return all(len(seen[node, name]) > RENEWALS for node in ("n1", "n2") for name in SHORT)

    before = restarts(cluster)
    with cluster.probed(seconds=2800) as reports:
        cluster.wait("all are renewed three times", renewed, seconds=1400)
        assert cluster.status()["overdue"] == []
    assert reports[0]["failed"] == 0, json.dumps(reports[0])
    assert {name: count for name, count in restarts(cluster).items() if name in before} == before
    for node in NODES:
        assert len(seen[node, "kubelet-client"]) > 1, "kubelets have renewed theirs, too"


def test_the_control_plane_says_that_all_is_current(cluster: TestCluster) -> None:
    path = "jsonpath={.status.conditions[?(@.type=='CertificatesCurrent')].status}"
    assert cluster.kubectl("get", "controlplane", "cluster", "-o", path) == "True"


def test_a_cluster_that_was_off_for_longer_than_its_certificates_live_comes_back_by_itself(
    cluster: TestCluster,
) -> None:
    """All but the administrator's have ended: of etcd, API servers, controllers and every kubelet."""
    last = max(end for ends in told_ends(cluster).values() for end in ends.values())
    cluster.autarky("lab", "cut", "--lab", cluster.name, *NODES)
    until = datetime.strptime(last, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    time.sleep(max(0.0, (until - datetime.now(UTC)).total_seconds()) + 5)
    cluster.autarky("lab", "start", "--lab", cluster.name, *NODES)
    cluster.wait("the API answers", lambda: _ready_nodes(cluster) is not None, seconds=240)
    # A control node's kubelet gives up its certificate after five minutes, and begins anew with what its agent made.
    cluster.wait("all nodes are Ready", lambda: _ready_nodes(cluster) == set(NODES), seconds=600)
    cluster.wait("all is healthy", lambda: cluster.status()["healthy"], seconds=300)


def _ready_nodes(cluster: TestCluster) -> set[str] | None:
    said = cluster.kubectl("get", "nodes", "-o", "json", "--request-timeout=5s", check=False)
    if not said:
        return None
    return {
        node["metadata"]["name"]
        for node in json.loads(said)["items"]
        if any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"]["conditions"])
    }
