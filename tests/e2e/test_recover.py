"""All machines of three control nodes are gone, and the administrator's too: a backup brings the cluster up on one new
machine, and it grows to three again. It has stored Secrets encrypted, also the one that says how.
"""

from __future__ import annotations

import base64
import json
import secrets
import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from ha import CONTROL, ETCDCTL, wait_until_healthy
from harness import TestCluster, kubectl_of_the_default_version
from recoveries import (
    SPACE,
    Keys,
    backed_up,
    documented,
    members_agree,
    restored,
    runs_a_new_pod,
    typed,
    write,
    written,
)

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.chain,
    pytest.mark.rotation,
    pytest.mark.timeout(900, func_only=True),
]

ENCRYPTS = "--encryption-provider-config"


def nodes(*names: str) -> dict[str, object]:
    return {"nodes": [{"name": name, "host": "lab", "roles": ["control-plane", "worker"]} for name in names]}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What was kept elsewhere: the backup, its key, and a user's kubeconfig."""
    return tmp_path_factory.mktemp("elsewhere")


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster], kept: Path) -> TestCluster:
    """Of one new machine: the three that were backed up are gone."""
    lost = make_cluster("t-recover", **nodes(*CONTROL))
    lost.up()
    _begin_to_encrypt(lost)
    lost.kubectl("create", "namespace", SPACE)
    write(lost, before="1")
    lost.kubectl("-n", SPACE, "apply", "-f", "-", stdin=json.dumps(_deployment(lost)))
    lost.kubectl("-n", SPACE, "rollout", "status", "deployment/works", "--timeout=120s")
    _store_encrypted(lost)
    keys = Keys(kept)
    backed_up(lost, keys, kept / "backup.tar.gz.age")
    shutil.copy(keys.file, kept / "backup-key.txt")
    shutil.copy(lost.directory / "kubeconfig", kept / "kubeconfig")
    certificate = lost.shell("n2", "cat /var/lib/kubelet/pki/kubelet-client-current.pem")
    (kept / "kubelet.pem").write_text(certificate)
    lost.down()
    assert not lost.directory.exists()
    return TestCluster(lost.name, nodes("n1"))


@pytest.fixture(scope="module")
def grown(cluster: TestCluster) -> TestCluster:
    """The same with two more in its file."""
    return TestCluster(cluster.name, nodes(*CONTROL))


def all_were_started_since(cluster: TestCluster, begun: datetime) -> bool:
    """All pods of the workload, on the one machine: what the backup says of them is from before."""
    found = json.loads(cluster.kubectl("-n", SPACE, "get", "pods", "-l", "app=works", "-o", "json"))["items"]
    running = [
        one["state"]["running"]["startedAt"]
        for pod in found
        for one in pod["status"].get("containerStatuses") or []
        if pod["spec"].get("nodeName") == "n1" and one.get("ready") and "running" in one["state"]
    ]
    return len([at for at in running if datetime.fromisoformat(at) > begun]) == 3


def _begin_to_encrypt(cluster: TestCluster) -> None:
    """Somebody edits the DaemonSet of the API servers, which read from a Secret how."""
    keys = [{"name": "key", "secret": base64.b64encode(secrets.token_bytes(32)).decode()}]
    configuration = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [{"resources": ["secrets"], "providers": [{"secretbox": {"keys": keys}}, {"identity": {}}]}],
    }
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "encryption", "namespace": "kube-system"},
        "stringData": {"config.json": json.dumps(configuration)},
    }
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(secret))
    pod, container = "/spec/template/spec", "/spec/template/spec/containers/0"
    mount = {"name": "encryption", "mountPath": "/etc/encryption", "readOnly": True}
    added = {
        f"{pod}/volumes/-": {"name": "encryption", "secret": {"secretName": "encryption"}},
        f"{container}/volumeMounts/-": mount,
        f"{container}/command/-": f"{ENCRYPTS}=/etc/encryption/config.json",
    }
    patch = [{"op": "add", "path": path, "value": value} for path, value in added.items()]
    cluster.kubectl("-n", "kube-system", "patch", "ds", "kube-apiserver", "--type=json", "-p", json.dumps(patch))


def _store_encrypted(cluster: TestCluster) -> None:
    """Once each API server, and each standby, can read that."""
    cluster.kubectl("-n", "kube-system", "rollout", "status", "ds/kube-apiserver", "--timeout=300s")
    current = "/var/lib/autarky/standby/kube-apiserver/current/pod.json"

    def standbys() -> bool:
        found = [cluster.shell(node, f"grep -c -e {ENCRYPTS}= {current} || true") for node in CONTROL]
        return [one.strip() for one in found] == ["1"] * len(CONTROL)

    cluster.wait("all standbys encrypt", standbys, seconds=240, pause=1)
    cluster.kubectl("-n", SPACE, "create", "secret", "generic", "hidden", "--from-literal=value=1")
    cluster.kubectl("-n", "kube-system", "annotate", "secret", "encryption", "stored=again")
    for key in (f"{SPACE}/hidden", "kube-system/encryption"):
        assert (
            cluster.shell("n1", f"{ETCDCTL} get /registry/secrets/{key} --print-value-only | head -c 8") == "k8s:enc:"
        )


def hidden(cluster: TestCluster) -> str:
    """What is stored encrypted, as the API has it."""
    found = json.loads(cluster.kubectl("-n", SPACE, "get", "secret", "hidden", "-o", "json"))
    return base64.b64decode(found["data"]["value"]).decode()


def _deployment(cluster: TestCluster) -> dict[str, object]:
    of = json.loads(cluster.kubectl("-n", "kube-system", "get", "configmap", "etcd-member-template", "-o", "json"))
    labels = {"app": "works"}
    container = {"name": "works", "image": of["data"]["guard-image"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "works", "namespace": SPACE},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def recover(cluster: TestCluster, kept: Path, *argv: str) -> str:
    [command] = documented("All machines are gone")
    shutil.copy(cluster.file, kept / "cluster.yaml")
    return typed(cluster, kept, f"{command.strip()} {' '.join(argv)}")


def test_a_backup_brings_it_up_on_one_new_machine_as_documented(cluster: TestCluster, kept: Path) -> None:
    planned = recover(cluster, kept, "--dry-run")
    assert "begin etcd on n1" in planned
    assert not cluster.has_host("n1")
    begun = datetime.now(UTC)
    recover(cluster, kept)
    assert (written(cluster), hidden(cluster)) == ({"before": "1"}, "1")
    found = json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]
    assert [one["metadata"]["name"] for one in found] == ["n1"]
    cluster.wait("the workload is back", lambda: all_were_started_since(cluster, begun), seconds=240)
    runs_a_new_pod(cluster, "after", "n1")
    wait_until_healthy(cluster)
    members_agree(cluster, ["n1"])


def test_a_users_credentials_are_still_good(cluster: TestCluster, kept: Path) -> None:
    """The certificate from before, by the CA from before, of the machine that is there now."""
    argv = [kubectl_of_the_default_version(), f"--kubeconfig={kept / 'kubeconfig'}"]
    server = json.loads(cluster.kubectl("config", "view", "-o", "json"))["clusters"][0]["cluster"]["server"]
    asked = [*argv, "--server", server, "-n", SPACE, "get", "configmap", "before", "-o", "name"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.strip() == "configmap/before", done.stderr


def test_the_kubelet_of_a_machine_that_is_gone_is_nobody_any_more(cluster: TestCluster, kept: Path) -> None:
    """Somebody has its disk, and its certificate is of the CA that there still is."""
    config = json.loads(cluster.kubectl("config", "view", "--raw", "-o", "json"))
    certificate = str(kept / "kubelet.pem")
    user = {"client-certificate": certificate, "client-key": certificate}
    of_node = {**config, "users": [{"name": config["users"][0]["name"], "user": user}]}
    (kept / "kubelet.json").write_text(json.dumps(of_node))

    def asked(*argv: str, stdin: str = "") -> str:
        command = [kubectl_of_the_default_version(), f"--kubeconfig={kept / 'kubelet.json'}", *argv]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode != 0, done.stdout
        return done.stderr

    assert asked("auth", "can-i", "get", "secrets", "-n", SPACE) == ""
    assert "forbidden" in asked("-n", SPACE, "get", "secrets").lower()
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2"}}
    assert "forbidden" in asked("create", "-f", "-", stdin=json.dumps(node)).lower()
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "n2"}}
    assert "forbidden" in asked("-n", "kube-node-lease", "create", "-f", "-", stdin=json.dumps(lease)).lower()
    assert "forbidden" in asked("create", "-f", "-", stdin=json.dumps(_request(kept))).lower()


def _request(kept: Path) -> dict[str, object]:
    """For a certificate as its own, of the same key."""
    content = (kept / "kubelet.pem").read_bytes()
    key = serialization.load_pem_private_key(content, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    subject = x509.load_pem_x509_certificate(content).subject
    wanted = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    spec = {
        "request": base64.b64encode(wanted.public_bytes(serialization.Encoding.PEM)).decode(),
        "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
        "usages": ["digital signature", "client auth"],
    }
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": "again"},
        "spec": spec,
    }


def test_again_it_changes_nothing(cluster: TestCluster, kept: Path) -> None:
    """But for a request that a kubelet may have made just now. While a workload is judged, it waits for that."""
    cluster.wait("nothing is left to do", lambda: "nothing would change" in cluster.up("--dry-run").stdout, seconds=150)
    changes = [line for line in recover(cluster, kept).splitlines() if line.startswith("  - ")]
    assert [line for line in changes if "certificate request" not in line] == []


def test_it_grows_to_three_again(grown: TestCluster, kept: Path) -> None:
    backed_up(grown, Keys(kept), kept / "of-one")
    grown.up()
    members_agree(grown)
    wait_until_healthy(grown)
    assert (written(grown), hidden(grown)) == ({"before": "1"}, "1")


def test_a_backup_of_one_member_is_restored_into_three(grown: TestCluster, kept: Path) -> None:
    """It knows nothing of the other nodes, whose kubelets run."""
    write(grown, after="1")
    restored(grown, kept / "of-one", Keys(kept))
    assert written(grown) == {"before": "1"}
    grown.up()
    members_agree(grown)
    wait_until_healthy(grown)
    for node in CONTROL:
        runs_a_new_pod(grown, f"again-{node}", node)
