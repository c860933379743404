"""The load balancers of all nodes follow the cluster, with no connection dropped; the control plane is protected.

The first cluster has one control node and a worker. The tests of a cluster build on each other, in order.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from balancers import configuration, connecting, runs_its_configuration, silent
from ha import nothing_failed
from harness import TestCluster
from slots import API, SYSTEM, settled

from autarky.control.guards.manifests import protection
from autarky.control.load_balancer.manifests import haproxy as nllb

pytestmark = [pytest.mark.e2e, pytest.mark.chain, pytest.mark.timeout(600)]

NODES = ("n1", "n2")
SILENT_SECONDS = 35
"""Longer than an API server waits for a connection that says nothing, and than three liveness probes take."""
OPERATOR = "deploy/autarky-operator"
SLICE = ("-n", "default", "endpointslice/kubernetes")
STRANGER = {"addresses": ["192.0.2.9"], "conditions": {"ready": True}, "nodeName": "n9"}
TENANT = "--as=system:serviceaccount:default:tenant"


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    nodes = [{"name": "n1", "host": "lab", "roles": ["control-plane", "worker"]}, {"name": "n2", "host": "lab"}]
    cluster = make_cluster("t-nllb", nodes=nodes)
    cluster.up()
    return cluster


def _servers(cluster: TestCluster, host: str) -> list[str]:
    found = configuration(cluster, host)
    return [node.name for node in found.servers] if found is not None else []


def _both_lead_to(cluster: TestCluster, *servers: str) -> bool:
    return all(_servers(cluster, host) == list(servers) and runs_its_configuration(cluster, host) for host in NODES)


def test_each_load_balancer_runs_what_its_disk_says_and_a_worker_has_nothing_of_etcd(cluster: TestCluster) -> None:
    cluster.wait("both run their configuration", lambda: _both_lead_to(cluster, "n1"))
    assert ":2378" not in cluster.shell("n2", f"cat {nllb.CONFIG_PATH}")
    assert "etcd" not in cluster.shell("n2", f"ls {nllb.DIRECTORY}")
    assert cluster.shell("n1", f"stat -c %a:%u {nllb.MASTER_SOCKET}").strip() == "600:0"


def test_the_load_balancers_follow_the_cluster_and_drop_no_connection(cluster: TestCluster) -> None:
    """With the operator away, somebody says that there is another control node, and that there is none."""
    cluster.kubectl(*SYSTEM, "scale", OPERATOR, "--replicas=0")
    cluster.kubectl(*SYSTEM, "wait", "--for=delete", "pod", "-l", "k8s-app=autarky-operator", "--timeout=60s")
    now = json.loads(cluster.kubectl("get", *SLICE, "-o", "json"))["endpoints"]
    with cluster.probed() as reports, connecting(cluster, NODES) as met:
        for endpoints, servers in (([*now, STRANGER], ("n1", "n9")), (now, ("n1",))):
            cluster.kubectl("patch", *SLICE, "--type=merge", "-p", json.dumps({"endpoints": endpoints}))
            cluster.wait(f"both lead to {servers}", lambda servers=servers: _both_lead_to(cluster, *servers))
        cluster.kubectl("patch", *SLICE, "--type=merge", "-p", json.dumps({"endpoints": []}))
        cluster.kubectl("delete", *SLICE)
        assert _both_lead_to(cluster, "n1")
        cluster.kubectl(*SYSTEM, "scale", OPERATOR, "--replicas=1")
        cluster.wait("the operator writes the slice anew", lambda: cluster.kubectl("get", *SLICE, check=False))
    nothing_failed(reports[0], writes=100)
    assert [str(seen) for seen in met.values() if seen.outage] == []
    workers = cluster.shell("n1", "pgrep -c -x haproxy")
    assert int(workers) <= nllb.MOST_RELOADS + 2


def test_a_second_up_leaves_the_configuration_to_the_agent(cluster: TestCluster) -> None:
    """It was written by the agent last."""
    assert nllb.CONFIG_PATH not in cluster.up().stderr
    assert _both_lead_to(cluster, "n1")


def test_a_configuration_that_leads_nowhere_is_mended_by_up_and_taken_up_at_once(cluster: TestCluster) -> None:
    """As of another life of the machine: no agent could reach an API through it."""
    cluster.kubectl(*SYSTEM, "wait", "--for=condition=Ready", "node/n2", "--timeout=60s")
    lost = "sed -i -e 's/\"n1\"/\"gone\"/g' -e 's/[0-9.]*:744/192.0.2.9:744/'"
    cluster.shell("n2", f"pkill -STOP -f '[a]utarky.agents.node'; {lost} {nllb.CONFIG_PATH}")
    assert "write /var/lib/autarky/nllb/haproxy.cfg on n2" in cluster.up().stderr
    cluster.wait("it runs", lambda: runs_its_configuration(cluster, "n2"))
    assert _servers(cluster, "n2") == ["n1"]
    cluster.shell("n2", "pkill -CONT -f '[a]utarky.agents.node'")
    cluster.kubectl(*SYSTEM, "rollout", "status", "ds/node-agent", "--timeout=90s")


def test_thousands_of_connections_that_say_nothing_take_the_api_from_nobody_else(cluster: TestCluster) -> None:
    """From the worker, as any pod on it. The others are this machine (the probe) and each node by its 127.0.0.1."""
    before = _master(cluster)
    found = configuration(cluster, "n1")
    assert found is not None
    strangers = silent(cluster, "n2", to=found.servers[0].address, number=5000)
    with cluster.probed() as reports, connecting(cluster, NODES) as met, strangers:
        held = [_held(cluster) for _ in range(SILENT_SECONDS // 5)]
    assert max(held) > nllb.MOST_OF_ONE_SOURCE // 2, "nobody was silent"
    assert min(held) <= nllb.MOST_OF_ONE_SOURCE, held
    nothing_failed(reports[0])
    assert [str(seen) for seen in met.values() if seen.outage] == []
    assert _master(cluster) == before, "HAProxy was started anew"


def _held(cluster: TestCluster) -> int:
    """Five seconds later, by the worker to port 6443 of others; for a moment also those that are refused."""
    time.sleep(5)
    return int(cluster.shell("n2", "ss -Htn state established 'dport = :6443 and not dst 127.0.0.1' | wc -l"))


def _master(cluster: TestCluster) -> str:
    """HAProxy's first process on the control node."""
    return cluster.shell("n1", "pgrep -o -x haproxy").strip()


# --- who may change the control plane -------------------------------------------------------------------------


def test_only_who_may_change_the_control_plane_changes_its_objects(cluster: TestCluster) -> None:
    cluster.kubectl("create", "serviceaccount", "tenant", "-n", "default")
    cluster.kubectl(
        *SYSTEM, "create", "rolebinding", "tenant", "--clusterrole=admin", "--serviceaccount=default:tenant"
    )
    changes = [
        ("scale", "deploy/kube-scheduler", "--replicas=0"),
        ("scale", "rs", "-l", "k8s-app=kube-scheduler", "--replicas=0"),
        ("delete", "rs", "-l", "k8s-app=autarky-operator"),
        ("set", "env", API, "A=b"),
        ("label", API, "app.kubernetes.io/managed-by-"),
        ("delete", "pod", "-l", "k8s-app=kube-apiserver"),
        ("delete", "pod", "-l", "k8s-app=autarky-operator"),
        ("delete", "pdb", "coredns"),
        ("delete", "secret", "-l", "k8s-app=kube-controller-manager"),
    ]
    cluster.wait("the policy is in force", lambda: _refused(cluster, "annotate", API, "a=b"))
    for change in changes:
        assert _refused(cluster, *change), change
    cluster.kubectl(*SYSTEM, TENANT, "create", "configmap", "of-the-tenant")
    cluster.kubectl(*SYSTEM, "annotate", API, "a=b")
    cluster.kubectl(*SYSTEM, "set", "env", "deploy/kube-scheduler", "A=b")
    cluster.kubectl(*SYSTEM, "rollout", "status", "deploy/kube-scheduler", "--timeout=90s")
    cluster.wait("everything is hosted", lambda: settled(cluster), seconds=90)


def _refused(cluster: TestCluster, *change: str) -> bool:
    return protection.NAME in cluster.kubectl_error(*SYSTEM, TENANT, *change)
