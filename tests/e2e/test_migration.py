"""etcd moves into the cluster and out of it again, under load: its members join and leave.

The tests build on each other.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from ha import ETCDCTL, member_phases
from harness import Show, TestCluster
from migrations import dialled, members, moved
from recoveries import data_of

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(900, func_only=True)]

NODE = {"name": "n1", "host": "lab", "roles": ["control-plane", "worker"]}
INSIDE: dict[str, Any] = {"selfHosted": "1-4", "nodes": [NODE]}
OUTSIDE: dict[str, Any] = {"selfHosted": "2-4", "nodes": [NODE], "etcd": {"external": {"lab": "etcd1"}}}
STORE = {"etcd1": ETCDCTL}


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-migration", **OUTSIDE)
    cluster.up()
    return cluster


def outside(cluster: TestCluster) -> str:
    """The client URL of the etcd outside."""
    address = cluster.shell("etcd1", "ip -4 -o addr show scope global | sed 's|.*inet ||; s|/.*||' | head -n 1")
    return f"https://{address.strip()}:2379"


@pytest.mark.chain("moved")
def test_an_api_server_of_somebody_elses_pod_is_not_asked_where_etcd_is(cluster: TestCluster) -> None:
    """It stays there while etcd moves: neither is its etcd joined, nor waited until it uses another."""
    etcd, key = "http://192.0.2.66:2379", rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()
    cluster.kubectl("create", "configmap", "impostor", f"--from-literal=key={pem}")
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(_impostor(_image(cluster), etcd)))
    running = f"pgrep -f -- '^kube-apiserver .*--etcd-servers={etcd}' || true"
    cluster.wait("it runs", lambda: cluster.shell("n1", running).strip(), seconds=90)
    assert dialled(cluster) == {outside(cluster)}
    assert cluster.shell("n1", running).strip(), "it still runs"


def _image(cluster: TestCluster) -> str:
    pods = json.loads(cluster.kubectl("-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-apiserver", "-o", "json"))
    return str(pods["items"][0]["spec"]["containers"][0]["image"])


def _impostor(image: str, etcd: str) -> dict[str, Any]:
    command = [
        "kube-apiserver",
        f"--etcd-servers={etcd}",
        "--service-account-issuer=https://impostor",
        "--service-account-key-file=/keys/key",
        "--service-account-signing-key-file=/keys/key",
        "--cert-dir=/tmp",
        "--secure-port=16443",
    ]
    mount = {"name": "keys", "mountPath": "/keys"}
    container = {"name": "kube-apiserver", "image": image, "command": command, "volumeMounts": [mount]}
    spec = {
        "nodeName": "n1",
        "containers": [container],
        "volumes": [{"name": "keys", "configMap": {"name": "impostor"}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "kube-apiserver-n1"}, "spec": spec}


@pytest.mark.chain("moved")
def test_up_refuses_a_file_that_has_etcd_elsewhere(cluster: TestCluster) -> None:
    cluster.spec = INSIDE
    refused = cluster.up(check=False)
    assert refused.status == 2
    assert "autarky etcd migrate -f FILE" in refused.stderr
    assert dialled(cluster) == {outside(cluster)}


@pytest.mark.chain("moved")
def test_an_etcd_outside_moves_into_the_cluster_under_load(cluster: TestCluster, show: Show) -> None:
    moved(cluster, show, INSIDE, outside=STORE)
    assert list(members(cluster, "n1")) == ["n1"]
    assert dialled(cluster) == {"https://127.0.0.1:2378"}
    assert member_phases(cluster) == {"n1": "Member"}
    assert cluster.shell("etcd1", "systemctl is-active etcd || true").strip() == "inactive"
    assert "nothing was changed" in cluster.up().stdout


@pytest.mark.chain("moved")
def test_it_moves_out_again_under_load(cluster: TestCluster, show: Show) -> None:
    moved(cluster, show, OUTSIDE, outside=STORE)
    assert list(members(cluster, "etcd1")) == ["etcd1"]
    assert dialled(cluster) == {outside(cluster)}
    assert not [name for name in cluster.static_pods("n1") if "etcd" in name]
    assert not cluster.shell("n1", "pgrep -x etcd || true").strip()
    assert "member" not in data_of(cluster, "n1")
    assert any(name.startswith("kept.") for name in data_of(cluster, "n1"))
    assert "2379" not in cluster.shell("n1", "cat /var/lib/autarky/nllb/haproxy.cfg")
    assert "n1" not in cluster.kubectl("get", "etcdmembers", "-o", "name")
    assert "nothing was changed" in cluster.up().stdout
