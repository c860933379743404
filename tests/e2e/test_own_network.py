"""`network.cni: none`: the cluster comes up with nodes that are NotReady, and is complete once the user applies a pod
network. What stands for it is the simplest there is: one bridge, on one node."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from harness import TestCluster, one_node

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(600)]

NETWORK = {
    "cniVersion": "1.0.0",
    "name": "users-own",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "own0",
            "isGateway": True,
            "ipMasq": True,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": "10.244.0.0/24"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
    ],
}


def manifest(image: str) -> str:
    write = f"import time; open('/net.d/10-own.conflist', 'w').write({json.dumps(NETWORK)!r}); time.sleep(10 ** 6)"
    labels = {"app": "own-network"}
    pod = {
        "hostNetwork": True,
        "tolerations": [{"operator": "Exists"}],
        "containers": [
            {
                "name": "write",
                "image": image,
                "command": ["python3", "-c", write],
                "volumeMounts": [{"name": "net", "mountPath": "/net.d"}],
            }
        ],
        "volumes": [{"name": "net", "hostPath": {"path": "/etc/cni/net.d", "type": "DirectoryOrCreate"}}],
    }
    privileged = {"pod-security.kubernetes.io/enforce": "privileged"}
    objects = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "own-network", "labels": privileged}},
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "own-network", "namespace": "own-network"},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


def test_a_cluster_without_a_pod_network_is_complete_once_its_user_applies_one(
    make_cluster: Callable[..., TestCluster],
) -> None:
    cluster = make_cluster("t-own-network", **one_node(network={"cni": "none"}))
    up = cluster.up()
    assert "not Ready: n1. network.cni is none" in up.stderr
    assert not is_ready(cluster)
    assert slots(cluster) == dict.fromkeys(("kube-apiserver", "kube-controller-manager", "kube-scheduler"), "hosted")
    everything = cluster.kubectl("get", "daemonsets,deployments,configmaps,serviceaccounts", "-A", "-o", "name")
    assert "kube-proxy" in everything
    assert "flannel" not in everything
    there = cluster.shell("n1", "ls /etc/cni/net.d; ip link")
    assert "eth0" in there
    assert "flannel" not in there
    assert "network.cni is none" in cluster.autarky("plan", "-f", str(cluster.file)).stdout
    assert "pod network" in cluster.autarky("doctor", "-f", str(cluster.file), check=False).stdout

    image = "jsonpath={.spec.template.spec.containers[0].image}"
    cluster.kubectl(
        "apply", "-f", "-", stdin=manifest(cluster.kubectl("get", "ds/node-agent", "-n", "kube-system", "-o", image))
    )
    cluster.wait("the node is Ready", lambda: is_ready(cluster), seconds=120)
    cluster.kubectl("rollout", "status", "deploy/coredns", "-n", "kube-system", "--timeout=120s")
    cluster.wait("all is well", lambda: cluster.status()["healthy"], seconds=120)
    again = cluster.up()
    assert "up: unchanged" in again.stderr
    assert "network.cni" not in again.stderr

    other = TestCluster(cluster.name, {**cluster.spec, "network": {"cni": "flannel"}})
    refused = other.up(check=False)
    assert refused.status == 2
    assert "no cluster can change it" in refused.stderr
    assert is_ready(cluster)


def is_ready(cluster: TestCluster) -> bool:
    [node] = json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]
    return any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"]["conditions"])


def slots(cluster: TestCluster) -> dict[str, str]:
    rows = cluster.status()["rows"]
    return {
        row["component"]: row["slot"]
        for row in rows
        if row["health"] == "ready"
        and row["slot"] == "hosted"
        and row["component"].startswith("kube-")
        and row["component"] != "kube-proxy"
    }
