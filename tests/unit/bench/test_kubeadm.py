"""The yardstick: kubeadm has issued its certificates before the clock starts, and uses them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import _kubeadm
import pytest
from _kubeadm import (
    ISSUED,
    KUBECONFIGS,
    OWN,
    PKI,
    SHARED,
    Joining,
    issue_certificates,
    join_config,
    kubeadm_cluster,
    kubeadm_config,
    kubeadm_ha_cluster,
    refuse_others,
)

from autarky.ports import Completed
from fakes.clock import HandClock
from fakes.host import FakeHost

# As `kubeadm init` ends with a control plane endpoint and without --upload-certs.
SAID = """\
You can now join any number of control-plane nodes by copying certificate authorities
and service account keys on each node and then running the following as root:

  kubeadm join 10.8.0.2:6443 --token abcdef.0123456789abcdef \\
\t--discovery-token-ca-cert-hash sha256:aaaa \\
\t--control-plane

Then you can join any number of worker nodes by running the following on each as root:

kubeadm join 10.8.0.2:6443 --token abcdef.0123456789abcdef \\
\t--discovery-token-ca-cert-hash sha256:aaaa
"""


class KubeadmHost(FakeHost):
    """With a kubeadm that makes what is not there, as the real one does."""

    async def run(self, argv, *, stdin=None, timeout=30.0, check=True):
        match argv:
            case ["/usr/bin/kubeadm", "init", "phase", "certs", "all", "--config=/root/kubeadm.yaml"]:
                names = [*SHARED, *(f"{name}.{end}" for name in OWN for end in ("crt", "key"))]
                self.make([f"{PKI}/{name}" for name in names])
            case ["/usr/bin/kubeadm", "init", "phase", "kubeconfig", name, "--config=/root/kubeadm.yaml"]:
                self.make([f"/etc/kubernetes/{name}.conf"])
            case _:
                raise AssertionError(argv)
        return Completed(0, b"", "")

    def make(self, paths):
        for path in paths:
            self.files.setdefault(path, (f"{self.name}'s {path}".encode(), 0o600))


def made(*names: str) -> dict[str, Any]:
    return {name: KubeadmHost(name) for name in names}


def documents(text):
    return {document["kind"]: document for document in map(json.loads, text.split("---\n"))}


def test_what_init_prints_is_understood():
    assert Joining.parse(SAID) == Joining("10.8.0.2:6443", "abcdef.0123456789abcdef", "sha256:aaaa")


def test_a_control_node_joins_with_the_certificates_that_it_has_and_downloads_none():
    joining = Joining.parse(SAID)
    assert json.loads(join_config("n2", joining, control=True))["controlPlane"] == {}
    assert "controlPlane" not in json.loads(join_config("w1", joining, control=False))


def test_keys_are_of_autarkys_kind_and_each_host_is_its_own_node():
    found = documents(kubeadm_config("v1.36.4", "n2", "10.8.0.2:6443"))
    assert found["ClusterConfiguration"]["encryptionAlgorithm"] == "ECDSA-P256"
    assert found["ClusterConfiguration"]["controlPlaneEndpoint"] == "10.8.0.2:6443"
    assert found["InitConfiguration"]["nodeRegistration"]["name"] == "n2"
    assert "controlPlaneEndpoint" not in documents(kubeadm_config("v1.36.4", "n1"))["ClusterConfiguration"]


async def test_control_nodes_share_the_first_ones_cas_and_keys_and_have_all_else_of_their_own_before_the_clock_starts():
    hosts = made("n1", "n2", "n3")
    issued = await issue_certificates(hosts)
    for name, host in hosts.items():
        assert host.files.keys() == issued[name].keys() == set(ISSUED)
        of = {path: content.decode().partition("'s ")[0] for path, (content, _) in host.files.items()}
        assert {of[f"{PKI}/{shared}"] for shared in SHARED} == {"n1"}
        assert {who for path, who in of.items() if path.removeprefix(f"{PKI}/") not in SHARED} == {name}
    assert {hosts["n2"].files[f"{PKI}/{name}"][1] for name in SHARED if name.endswith(".key")} == {0o600}


async def test_a_kubelets_credentials_are_left_to_the_clock():
    hosts = made("n1", "n2")
    await issue_certificates(hosts)
    assert not [path for host in hosts.values() for path in host.files if "kubelet.conf" in path]


async def test_a_certificate_that_was_not_issued_before_the_clock_starts_is_no_yardstick(monkeypatch):
    monkeypatch.setattr("_kubeadm.KUBECONFIGS", KUBECONFIGS[:-1])
    with pytest.raises(SystemExit, match=r"has not issued /etc/kubernetes/scheduler\.conf on n1"):
        await issue_certificates(made("n1"))


@pytest.mark.parametrize("path", [f"{PKI}/etcd/peer.crt", "/etc/kubernetes/admin.conf"])
async def test_what_kubeadm_made_again_on_the_clock_is_seen_afterwards(path):
    hosts = made("n1", "n2")
    issued = await issue_certificates(hosts)
    await refuse_others(hosts, issued)
    hosts["n2"].files[path] = (b"another", 0o600)
    with pytest.raises(SystemExit, match=f"not used what it had on n2: {path}$"):
        await refuse_others(hosts, issued)


# --- the clock ------------------------------------------------------------------------------------


def step_taking(seconds: float, answer: object, clock: HandClock) -> Any:
    async def step(*_, **__):
        clock.now += seconds
        return answer

    return step


@pytest.fixture
def steps(monkeypatch):
    """Each takes a second, but those before the clock starts, which take a hundred."""
    clock = HandClock()
    hosts = {name: SimpleNamespace(address=name) for name in ("n1", "n2", "n3", "w1")}
    before = {"_hosts": hosts, "_prepare": None, "issue_certificates": {"n1": {}}}
    for name, answer in before.items():
        monkeypatch.setattr(_kubeadm, name, step_taking(100, answer, clock))
    for name, answer in {"_init": SAID, "_apply": ["kubectl"], "_join": None}.items():
        monkeypatch.setattr(_kubeadm, name, step_taking(1, answer, clock))
    monkeypatch.setattr(_kubeadm, "_flannel", lambda *_: None)
    monkeypatch.setattr(_kubeadm, "time", clock)


async def test_the_last_command_of_one_node_is_that_for_flannel_without_which_nothing_is_ready(steps):
    cluster = await kubeadm_cluster(None, None, Path())
    assert (cluster.begin, cluster.returned) == (300, 302)


async def test_the_last_command_of_several_nodes_is_the_last_join(steps):
    cluster = await kubeadm_ha_cluster(None, None, Path(), ("n1", "n2", "n3"), ("w1",))
    assert (cluster.begin, cluster.returned) == (300, 305)
