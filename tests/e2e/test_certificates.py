"""Certificates of a few minutes' life: renewed with nobody at the keyboard, and after the cluster was off for longer.

Two clusters at the same time, since all of this is waiting: one of one node, and one with all three kinds of nodes: one
that founded it, one that a label made a control node, and a worker. Takes about an hour and a quarter.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest
from ha import nothing_failed
from harness import TestCluster, one_node
from labels import is_control_node, label
from leaves import restarts, told_ends

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.chain, pytest.mark.timeout(6000)]
LEAF_MINUTES, KUBELET_MINUTES = 6, 10
ONE, THREE = "t-certificates-1", "t-certificates-3"
CONTROL = {ONE: ("n1",), THREE: ("n1", "n2")}
NODES = {ONE: ("n1",), THREE: ("n1", "n2", "w1")}
RENEWALS = 3
SHORT = ("apiserver", "front-proxy-client", "apiserver-etcd-client", "etcd/server", "etcd/peer", "etcd/client")
EIGHTEEN_MINUTES = ("apiserver-kubelet-client", "controller-manager", "scheduler")
OF_KUBELETS = ("kubelet-client", "kubelet-server")
HEARD_WITHIN = timedelta(seconds=180)
"""From when the machines start until the kubelets of control nodes are heard. The API may take a minute of it; one
that nobody starts anew with its new certificate is heard after 5 minutes, or after 15."""
SETTINGS = {"leafLifetime": f"{LEAF_MINUTES}m", "kubeletLifetime": f"{KUBELET_MINUTES}m"}
LOG = logging.getLogger(__name__)
Clusters = Mapping[str, TestCluster]


@pytest.fixture(scope="module")
def clusters(make_cluster: Callable[..., TestCluster]) -> Clusters:
    one = make_cluster(ONE, **one_node(certificates=SETTINGS))
    joined = [{"name": name, "roles": ["worker"]} for name in ("n2", "w1")]
    three = make_cluster(THREE, nodes=[{"name": "n1", "roles": ["control-plane"]}, *joined], certificates=SETTINGS)
    one.up()
    three.up()
    label(three, "n2")
    three.wait("n2 is a control node", lambda: is_control_node(three, "n2"), seconds=240)
    three.wait("its certificates are told", lambda: "apiserver" in told_ends(three)["n2"], seconds=60)
    return {ONE: one, THREE: three}


def test_each_leaf_is_renewed_three_times_with_no_restart_and_no_failed_request(clusters: Clusters) -> None:
    """The administrator's certificate lives as always, so the probe's does."""
    seen: dict[tuple[str, str, str], set[str]] = {}
    wanted = {
        *((c, n, leaf) for c, nodes in CONTROL.items() for n in nodes for leaf in (*SHORT, *EIGHTEEN_MINUTES)),
        *((c, n, leaf) for c, nodes in NODES.items() for n in nodes for leaf in OF_KUBELETS),
    }

    def look() -> None:
        for called, cluster in clusters.items():
            for node, ends in told_ends(cluster).items():
                for name, end in ends.items():
                    seen.setdefault((called, node, name), set()).add(end)

    def left() -> list[tuple[str, str, str]]:
        look()
        time.sleep(5)
        return sorted(one for one in wanted if len(seen.get(one, ())) <= RENEWALS)

    before = {called: restarts(cluster) for called, cluster in clusters.items()}
    reports: dict[str, list[dict[str, object]]] = {}
    with ExitStack() as watched:
        for called, cluster in clusters.items():
            reports[called] = watched.enter_context(cluster.probed(seconds=5400))
        deadline = time.monotonic() + 3600
        while missing := left():
            assert time.monotonic() < deadline, f"not renewed three times: {missing}"
        for cluster in clusters.values():
            assert cluster.status()["overdue"] == []
    for called, cluster in clusters.items():
        LOG.info("%s: %s", called, json.dumps(reports[called][0]))
        nothing_failed(reports[called][0])
        assert {name: count for name, count in restarts(cluster).items() if name in before[called]} == before[called]


def test_the_control_planes_say_that_all_is_current(clusters: Clusters) -> None:
    path = "jsonpath={.status.conditions[?(@.type=='CertificatesCurrent')].status}"
    for cluster in clusters.values():
        assert cluster.kubectl("get", "controlplane", "cluster", "-o", path) == "True"


def test_clusters_that_were_off_for_longer_than_their_certificates_live_come_back_by_themselves(
    clusters: Clusters,
) -> None:
    """All but the administrator's have ended: of etcd, API servers, controllers and every kubelet."""
    last = max(end for cluster in clusters.values() for ends in told_ends(cluster).values() for end in ends.values())
    for called, cluster in clusters.items():
        cluster.autarky("lab", "cut", "--lab", cluster.name, *NODES[called])
    until = datetime.strptime(last, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    time.sleep(max(0.0, (until - datetime.now(UTC)).total_seconds()) + 5)
    began = datetime.now(UTC)
    for called, cluster in clusters.items():
        cluster.autarky("lab", "start", "--lab", cluster.name, *NODES[called])
    heard: dict[str, set[str]] = {called: set() for called in clusters}

    def unheard() -> list[tuple[str, str]]:
        for called, cluster in clusters.items():
            heard[called] |= _heard_since(cluster, began)
        return [(called, node) for called, nodes in CONTROL.items() for node in nodes if node not in heard[called]]

    while missing := unheard():
        assert datetime.now(UTC) < began + HEARD_WITHIN, f"their kubelets are not heard: {missing}"
        time.sleep(1)
    LOG.info("all control nodes are heard after %.0f s", (datetime.now(UTC) - began).total_seconds())
    for called, cluster in clusters.items():
        nodes = set(NODES[called])
        # Until they are, the API shows them as they were.
        cluster.wait(
            f"all kubelets of {called} are heard", lambda one=cluster, all_=nodes: _heard_since(one, began) == all_, 300
        )
        cluster.wait("all nodes are Ready", lambda one=cluster, all_=nodes: _ready_nodes(one) == all_, seconds=120)
        cluster.wait("all is healthy", lambda one=cluster: _is_healthy(one), seconds=300)
        LOG.info("%s is healthy after %.0f s", called, (datetime.now(UTC) - began).total_seconds())


def _is_healthy(cluster: TestCluster) -> bool:
    status = cluster.status()
    if not status["healthy"]:
        LOG.info("not healthy yet: %s", cluster.autarky("doctor", "--cluster", cluster.name, check=False).stdout)
    return bool(status["healthy"])


def _heard_since(cluster: TestCluster, moment: datetime) -> set[str]:
    """Whose kubelets have renewed their leases since then; nobody's while the API does not answer."""
    leases = cluster.kubectl(
        "get", "leases", "-n", "kube-node-lease", "-o", "json", "--request-timeout=5s", check=False
    )
    renewed = {
        one["metadata"]["name"]: one["spec"].get("renewTime") for one in json.loads(leases or '{"items": []}')["items"]
    }
    return {name for name, when in renewed.items() if when and datetime.fromisoformat(when) > moment}


def _ready_nodes(cluster: TestCluster) -> set[str]:
    said = cluster.kubectl("get", "nodes", "-o", "json", "--request-timeout=5s", check=False)
    return {
        node["metadata"]["name"]
        for node in json.loads(said or '{"items": []}')["items"]
        if any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"]["conditions"])
    }
