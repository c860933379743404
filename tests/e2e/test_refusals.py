"""What goes wrong says what, where and how to mend it, and leaves nothing that a second run cannot use."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import TestCluster, one_node

from autarky.workflows.up import PHASES

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(600)]

_NAMES = [phase.name for phase in PHASES]
ONLY_HOSTS = [f"--skip={name}" for name in _NAMES[_NAMES.index("start-control-plane") :]]
"""Nothing of Kubernetes runs; what comes before it needs minutes less."""


def test_a_port_in_use_is_named_before_anything_is_touched(make_cluster: Callable[..., TestCluster]) -> None:
    cluster = make_cluster("t-port", **one_node())
    cluster.autarky("lab", "up", cluster.name, "--hosts", "1")
    cluster.shell("n1", "systemd-run --unit=squatter socat TCP-LISTEN:6443,fork,reuseaddr /dev/null; sleep 1")
    refused = cluster.up(check=False)
    assert refused.status == 2
    assert "port 6443 is in use" in refused.stderr
    assert "ss -lntp" in refused.stderr
    assert cluster.shell("n1", "ls -A /var/lib/autarky /etc/kubernetes").split() == [
        "/etc/kubernetes:",
        "/var/lib/autarky:",
    ]
    cluster.shell("n1", "systemctl stop squatter")
    cluster.up(*ONLY_HOSTS)


def test_a_ca_whose_key_belongs_to_another_names_both_files(
    make_cluster: Callable[..., TestCluster], tmp_path: Path
) -> None:
    for name in ("ca", "other"):
        argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        argv += [
            "-subj",
            f"/CN={name}",
            "-days",
            "30",
            "-keyout",
            f"{tmp_path}/{name}.key",
            "-out",
            f"{tmp_path}/{name}.crt",
        ]
        subprocess.run(argv, check=True, capture_output=True)
    (tmp_path / "other.key").rename(tmp_path / "ca.key")
    cluster = make_cluster("t-ca", **one_node(certificates={"caDirectory": str(tmp_path)}))
    refused = cluster.up(check=False)
    assert refused.status == 2
    assert str(tmp_path / "ca.crt") in refused.stderr
    assert str(tmp_path / "ca.key") in refused.stderr
    assert "fix:" in refused.stderr


def test_a_network_that_holds_the_hosts_is_refused(make_cluster: Callable[..., TestCluster]) -> None:
    cluster = make_cluster("t-net", **one_node(network={"serviceCIDR": "10.192.0.0/11"}))
    refused = cluster.up(check=False)
    assert refused.status == 2
    assert "lies inside serviceCIDR 10.192.0.0/11" in refused.stderr


def test_an_address_that_the_host_does_not_have_is_refused(make_cluster: Callable[..., TestCluster]) -> None:
    cluster = make_cluster("t-address", nodes=[{"name": "n1", "address": "10.201.255.9"}])
    refused = cluster.up(check=False)
    assert refused.status == 2
    assert "the file says 10.201.255.9" in refused.stderr


def test_an_etcd_that_does_not_answer_is_named_with_what_to_look_at(
    make_cluster: Callable[..., TestCluster], tmp_path: Path
) -> None:
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    argv += ["-subj", "/CN=etcd", "-days", "30", "-keyout", f"{tmp_path}/e.key", "-out", f"{tmp_path}/e.crt"]
    subprocess.run(argv, check=True, capture_output=True)
    external = {
        "endpoints": ["https://127.0.0.1:2399"],
        "caFile": f"{tmp_path}/e.crt",
        "certFile": f"{tmp_path}/e.crt",
        "keyFile": f"{tmp_path}/e.key",
    }
    cluster = make_cluster("t-no-etcd", **one_node(selfHosted="2-4", etcd={"external": external}))
    refused = cluster.up(check=False)
    assert refused.status == 2
    assert "https://127.0.0.1:2399" in refused.stderr
    assert "spec.etcd.external" in refused.stderr


def test_a_host_of_another_cluster_is_not_touched(make_cluster: Callable[..., TestCluster]) -> None:
    cluster = make_cluster("t-owned", **one_node())
    cluster.up(*ONLY_HOSTS)
    cluster.shell("n1", 'echo \'{"cluster": "somebody-else", "node": "n1"}\' > /var/lib/autarky/state/node.json')
    before = _files(cluster)
    refused = cluster.up(check=False)
    assert refused.status == 2
    assert "belongs to the cluster somebody-else" in refused.stderr
    assert _files(cluster) == before


def _files(cluster: TestCluster) -> list[str]:
    """What `up` writes on the host: each file and link, with its mode, size, last change and target. Nothing of
    Kubernetes runs there that might write by itself."""
    places = "/etc/kubernetes /var/lib/autarky /etc/systemd/system"
    found = cluster.shell("n1", f"find {places} ! -type d -printf '%p %m %s %C@ %l\\n'").splitlines()
    assert any(line.startswith("/var/lib/autarky/state/node.json ") for line in found), found
    return sorted(found)
