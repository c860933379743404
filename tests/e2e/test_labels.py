"""A worker becomes a control node by a label, and a worker again without it, and no request fails.

The tests of this module build on each other, in order.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator

import pytest
from ha import nothing_failed
from harness import TestCluster
from labels import (
    COMPONENTS,
    CONTROLLERS,
    FACT,
    SYSTEM,
    WISH,
    address_of,
    balanced,
    endpoints,
    etcd_is_on,
    is_control_node,
    is_worker,
    label,
    metadata,
    names_served,
    parts_of_a_control_node,
    ready_there,
    rights,
    said,
    standbys_that_serve,
    unlabel,
)
from parts import names_of_parts
from power import rounds

pytestmark = [pytest.mark.e2e, pytest.mark.chain, pytest.mark.timeout(900)]

MOST_OF_HAPROXY = 15
"""Processes: each of the fifty reloads or so might leave one, with the connections that it has; there were five."""
MOST_MORE_OF_HAPROXY = 6
"""The same of one part, with its ten reloads or so."""
ROUNDS, PARTS = 10, 5
NODES = [
    {"name": "n1", "host": "lab", "roles": ["control-plane", "worker"]},
    {"name": "n2", "host": "lab", "roles": ["worker"]},
]


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster], request: pytest.FixtureRequest) -> Iterator[TestCluster]:
    cluster = make_cluster("t-labels", nodes=NODES)
    cluster.up()
    yield cluster
    if request.session.testsfailed:
        sys.stderr.write(said(cluster))


def test_a_kubelet_cannot_label_its_own_node(cluster: TestCluster) -> None:
    for wanted in (WISH, FACT):
        script = f"/var/lib/autarky/bin/kubectl --kubeconfig /etc/kubernetes/kubelet.conf label node n2 {wanted}= 2>&1"
        assert "is not allowed to modify labels" in cluster.shell("n2", f"{script} || true")


def test_a_label_makes_a_worker_a_control_node_and_fails_no_request(cluster: TestCluster) -> None:
    before = parts_of_a_control_node(cluster, "n1")
    with cluster.probed() as reports:
        label(cluster, "n2")
        cluster.wait("n2 is a control node", lambda: is_control_node(cluster, "n2"), seconds=120)
        named = {"n2", address_of(cluster, "n2")}
        cluster.wait("its API server's certificate names it", lambda: named <= names_served(cluster, "n2"), seconds=180)
        cluster.wait("the rollout is over", lambda: _rolled_out(cluster), seconds=120)
    nothing_failed(reports[0])
    assert endpoints(cluster) == {"n1", "n2"}
    cluster.wait("it has a member of etcd", lambda: etcd_is_on(cluster, "n1", "n2"), seconds=120)
    cluster.wait("both load balancers lead to it", lambda: balanced(cluster, {"n1", "n2"}, "n1", "n2"))
    there = parts_of_a_control_node(cluster, "n2")
    assert {f"/var/lib/autarky/standby/{component}/current" for component in COMPONENTS} <= there
    assert {"/etc/kubernetes/pki/etcd/server.key", "/var/lib/autarky/nllb/etcd-client.pem"} <= there
    assert {path for path in before if "/pki/" in path} == {
        path for path in parts_of_a_control_node(cluster, "n1") if "/pki/" in path
    }
    cluster.wait("its agent's rights are taken back", lambda: not any(":joining:" in one for one in rights(cluster)))


def test_level_3_scales_onto_it(cluster: TestCluster) -> None:
    for name in CONTROLLERS:
        cluster.kubectl(*SYSTEM, "scale", f"deploy/{name}", "--replicas=2")
    for name in CONTROLLERS:
        cluster.kubectl(*SYSTEM, "rollout", "status", f"deploy/{name}", "--timeout=120s")
    assert ready_there(cluster, "n2") >= set(COMPONENTS)


def test_up_again_changes_nothing(cluster: TestCluster) -> None:
    cluster.wait("no standby serves any more", lambda: not standbys_that_serve(cluster), seconds=120)
    ended = [json.loads(line) for line in cluster.up("-o", "json").stdout.splitlines()]
    assert ended[-1]["outcome"] == "unchanged", [event["sentence"] for event in ended if event["kind"] == "change"]
    assert is_control_node(cluster, "n2")


def test_without_the_label_it_is_a_worker_again_and_no_request_fails(cluster: TestCluster) -> None:
    with cluster.probed() as reports:
        unlabel(cluster, "n2")
        cluster.wait("n2 is a worker", lambda: is_worker(cluster, "n2"), seconds=180)
    nothing_failed(reports[0])
    assert endpoints(cluster) == {"n1"}
    assert not parts_of_a_control_node(cluster, "n2")
    cluster.wait("n1 has the only member", lambda: etcd_is_on(cluster, "n1"))
    cluster.wait("both load balancers lead to n1 alone", lambda: balanced(cluster, {"n1"}, "n1", "n2"))
    cluster.wait("no right of it is left", lambda: not rights(cluster))


def test_the_last_control_node_stays_one_whatever_its_labels_say(cluster: TestCluster) -> None:
    unlabel(cluster, "n1")
    said = "no control node would be left"
    cluster.wait("it is said on the node", lambda: said in cluster.kubectl("describe", "node", "n1"))
    assert FACT in metadata(cluster, "n1")["labels"]
    label(cluster, "n1")


@pytest.mark.rotation(alone=True)
def test_a_node_object_that_is_deleted_and_made_anew_is_a_control_node_again(cluster: TestCluster) -> None:
    label(cluster, "n2")
    cluster.wait("n2 is a control node", lambda: is_control_node(cluster, "n2"), seconds=120)
    with cluster.probed() as reports:
        cluster.kubectl("delete", "node", "n2")
        cluster.shell("n2", "systemctl restart kubelet")
        cluster.wait("n2 is a control node again", lambda: is_control_node(cluster, "n2"), seconds=180)
        cluster.wait("it is in default/kubernetes", lambda: endpoints(cluster) == {"n1", "n2"})
    nothing_failed(reports[0])
    unlabel(cluster, "n2")
    cluster.wait("n2 is a worker", lambda: is_worker(cluster, "n2"), seconds=180)


@pytest.mark.rotation(alone=True)
@pytest.mark.parametrize("part", range(PARTS), ids=names_of_parts(PARTS))
def test_there_and_back_again_and_again(cluster: TestCluster, part: int) -> None:
    """Ten times in all the parts."""
    before = {node: _haproxy_processes(cluster, node) for node in ("n1", "n2")}
    with cluster.probed() as reports:
        for _ in rounds(part, PARTS, ROUNDS):
            _there_and_back(cluster)
    for node, count in before.items():
        assert _haproxy_processes(cluster, node) <= min(MOST_OF_HAPROXY, count + MOST_MORE_OF_HAPROXY)
    nothing_failed(reports[0])


def _there_and_back(cluster: TestCluster) -> None:
    label(cluster, "n2")
    cluster.wait("n2 is a control node", lambda: is_control_node(cluster, "n2"), seconds=180)
    assert endpoints(cluster) == {"n1", "n2"}
    standbys = {f"/var/lib/autarky/standby/{component}/current" for component in COMPONENTS}
    assert standbys <= parts_of_a_control_node(cluster, "n2")
    assert {"n2", address_of(cluster, "n2")} <= names_served(cluster, "n2")
    cluster.wait("n2 has a member", lambda: etcd_is_on(cluster, "n1", "n2"), seconds=180)
    assert "/etc/kubernetes/pki/etcd/server.key" in parts_of_a_control_node(cluster, "n2")
    cluster.wait("both are balanced", lambda: balanced(cluster, {"n1", "n2"}, "n1", "n2"))
    unlabel(cluster, "n2")
    cluster.wait("n2 is a worker", lambda: is_worker(cluster, "n2"), seconds=180)
    assert endpoints(cluster) == {"n1"}
    assert not parts_of_a_control_node(cluster, "n2")
    cluster.wait("n1 has the only member", lambda: etcd_is_on(cluster, "n1"))
    cluster.wait("n1 alone is balanced", lambda: balanced(cluster, {"n1"}, "n1", "n2"))


def _haproxy_processes(cluster: TestCluster, node: str) -> int:
    return int(cluster.shell(node, "pgrep -c -x haproxy"))


def _rolled_out(cluster: TestCluster) -> bool:
    status = json.loads(cluster.kubectl(*SYSTEM, "get", "ds", "kube-apiserver", "-o", "json"))["status"]
    return bool(status.get("updatedNumberScheduled") == status.get("numberAvailable") == 2)
