"""An etcd of somebody else, with a CA of its own, moves into the cluster under load: the control node joins it with a
certificate of that CA. And out again, to a member that somebody starts as the page says.

The tests build on each other.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from ha import member_phases
from harness import Show, TestCluster
from migrations import dialled, members, moved

from autarky.payload import default_version, find_binary, load_release

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(900, func_only=True)]

NODE = {"name": "n1", "host": "lab", "roles": ["control-plane", "worker"]}
INSIDE: dict[str, Any] = {"selfHosted": "1-4", "nodes": [NODE]}
STORE = "n2"
"""The host of the other etcd, which is no node."""
_DIRECTORY = "/srv/etcd"
_START = """\
systemd-run --unit=somebodys-etcd --property=Restart=always {programs}/etcd --name=db1 --data-dir={directory}/data \\
  --listen-client-urls=https://{address}:2379 --advertise-client-urls=https://{address}:2379 \\
  --listen-peer-urls=https://{address}:2380 --initial-advertise-peer-urls=https://{address}:2380 \\
  --initial-cluster={initial} --initial-cluster-state={state} --initial-cluster-token=somebodys \\
  --client-cert-auth --trusted-ca-file={directory}/ca.crt \\
  --cert-file={directory}/db1.crt --key-file={directory}/db1.key \\
  --peer-client-cert-auth --peer-trusted-ca-file={directory}/ca.crt \\
  --peer-cert-file={directory}/db1.crt --peer-key-file={directory}/db1.key
"""


@dataclass
class Authority:
    """Somebody's CA, and what it has issued, in a directory."""

    directory: Path
    existing: Path | None = None
    """Where `ca.crt` and `ca.key` are that it is."""

    def __post_init__(self) -> None:
        self._key, ca = _made() if self.existing is None else _read(self.existing)
        self._name = ca.subject
        self._write("ca", ca, self._key)

    def issue(self, name: str, *addresses: str) -> None:
        """A certificate for servers and clients; without addresses for clients."""
        key = ec.generate_private_key(ec.SECP256R1())
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if addresses else [])]
        builder = _builder(_named(name), self._name, key).add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        if addresses:
            names = [x509.IPAddress(ipaddress.ip_address(one)) for one in addresses]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        self._write(name, builder.sign(self._key, hashes.SHA256()), key)

    def _write(self, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        (self.directory / f"{name}.crt").write_bytes(certificate.public_bytes(pem))
        kept = key.private_bytes(pem, serialization.PrivateFormat.TraditionalOpenSSL, plain)
        (self.directory / f"{name}.key").write_bytes(kept)

    def path(self, name: str) -> str:
        return str(self.directory / name)


def _made() -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key, name = ec.generate_private_key(ec.SECP256R1()), _named("somebody's CA")
    constraint = x509.BasicConstraints(ca=True, path_length=None)
    return key, _builder(name, name, key).add_extension(constraint, critical=True).sign(key, hashes.SHA256())


def _read(directory: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = serialization.load_pem_private_key((directory / "ca.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key, x509.load_pem_x509_certificate((directory / "ca.crt").read_bytes())


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    found = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    found = found.serial_number(x509.random_serial_number())
    return found.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=2))


def address_of(cluster: TestCluster, host: str) -> str:
    said = cluster.shell(host, "ip -4 -o addr show scope global | sed 's|.*inet ||; s|/.*||' | head -n 1")
    return said.strip()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster], authority: Authority) -> TestCluster:
    cluster = make_cluster("t-migration-own", **INSIDE)
    cluster.autarky("payload", "get")
    cluster.autarky("lab", "up", cluster.name, "--hosts", "2")
    address = address_of(cluster, STORE)
    authority.issue("db1", address, "127.0.0.1")
    authority.issue("apiserver")
    authority.issue("peer", address_of(cluster, "n1"))
    _start(cluster, authority, address)
    cluster.spec = outside(authority, address)
    cluster.up()
    return cluster


def outside(authority: Authority, address: str) -> dict[str, Any]:
    external = {
        "endpoints": [f"https://{address}:2379"],
        "caFile": authority.path("ca.crt"),
        "certFile": authority.path("apiserver.crt"),
        "keyFile": authority.path("apiserver.key"),
    }
    return {**INSIDE, "selfHosted": "2-4", "etcd": {"external": external}}


def _start(cluster: TestCluster, authority: Authority, address: str, initial: str = "", state: str = "new") -> None:
    """On a host that autarky knows nothing of, with etcd of the payload."""
    programs = "/usr/local/lib/somebodys"
    cluster.shell(STORE, f"install -d -m 700 {_DIRECTORY} {programs}")
    for name in ("ca.crt", "db1.crt", "db1.key"):
        content = (authority.directory / name).read_text()
        cluster.shell(STORE, f"umask 077; cat >{_DIRECTORY}/{name} <<'PEM'\n{content}PEM\n")
    into_host(cluster, STORE, etcd_program(), f"{programs}/etcd")
    initial = initial or f"db1=https://{address}:2380"
    values = {"programs": programs, "directory": _DIRECTORY, "address": address, "initial": initial, "state": state}
    cluster.shell(STORE, _START.format(**values))


def etcd_program() -> Path:
    """Of the release, in the store."""
    found = find_binary(load_release(default_version()), "etcd")
    assert found is not None
    return found.path


def into_host(cluster: TestCluster, host: str, source: Path, path: str) -> None:
    """By the host's file system, which this machine sees."""
    target = Path(f"/proc/{cluster.host_process(host)}/root{path}")
    target.write_bytes(source.read_bytes())
    target.chmod(0o755)


def options(authority: Authority) -> list[str]:
    files: Mapping[str, str] = {"--peer-cert": "peer.crt", "--peer-key": "peer.key", "--peer-ca": "ca.crt"}
    return [word for option, name in files.items() for word in (option, authority.path(name))]


@pytest.mark.chain("own")
def test_without_a_certificate_of_its_ca_nobody_joins_and_nothing_is_touched(cluster: TestCluster) -> None:
    outside = cluster.spec
    cluster.spec = INSIDE
    before = dialled(cluster)
    refused = cluster.autarky("etcd", "migrate", "-f", str(cluster.file), "--yes", "-o", "plain", check=False)
    assert refused.status == 6
    assert "do not trust each other's certificates" in refused.stderr
    assert "--peer-cert" in refused.stderr
    assert dialled(cluster) == before
    assert not [name for name in cluster.static_pods("n1") if "etcd" in name]
    cluster.spec = outside
    cluster.autarky("etcd", "migrate", "-f", str(cluster.file), "--yes", "-o", "plain")
    assert dialled(cluster) == before
    assert "nothing was changed" in cluster.up().stdout


@pytest.mark.chain("own")
def test_with_one_it_moves_into_the_cluster_under_load(cluster: TestCluster, authority: Authority, show: Show) -> None:
    moved(cluster, show, INSIDE, *options(authority))
    assert list(members(cluster, "n1")) == ["n1"]
    assert dialled(cluster) == {"https://127.0.0.1:2378"}
    assert member_phases(cluster) == {"n1": "Member"}
    assert "nothing was changed" in cluster.up().stdout


@pytest.mark.chain("own")
def test_its_certificates_are_the_clusters_own_at_the_end(cluster: TestCluster) -> None:
    pki = "/etc/kubernetes/pki/etcd"
    issuer = cluster.shell("n1", f"openssl x509 -noout -issuer -in {pki}/peer.crt || cat {pki}/peer.crt")
    assert "somebody" not in issuer
    trusted = cluster.shell("n1", "cat /var/lib/etcd/member/peer-ca.crt")
    assert trusted.count("BEGIN CERTIFICATE") == 1
    assert trusted == cluster.shell("n1", f"cat {pki}/ca.crt")
    assert not cluster.shell("n1", f"ls {pki} | grep peers-ca || true").strip()


@pytest.mark.chain("own")
def test_it_moves_out_again_to_a_member_that_was_started_as_the_page_says(
    cluster: TestCluster, tmp_path: Path, show: Show
) -> None:
    address = address_of(cluster, STORE)
    cluster.shell(
        STORE, f"systemctl stop somebodys-etcd; systemctl reset-failed; mv {_DIRECTORY}/data {_DIRECTORY}/old"
    )
    page = (Path(__file__).parents[2] / "docs/etcd.md").read_text()
    [block] = [one for one in re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL) if "member add" in one]
    said = cluster.shell("n1", block.replace("192.0.2.50", address))
    [initial] = re.findall(r'^ETCD_INITIAL_CLUSTER="(.*)"$', said, re.MULTILINE)
    same = Authority(tmp_path, cluster.directory / "pki/etcd")
    same.issue("db1", address, "127.0.0.1")
    same.issue("apiserver")
    _start(cluster, same, address, initial, "existing")
    moved(cluster, show, outside(same, address))
    assert dialled(cluster) == {f"https://{address}:2379"}
    assert not cluster.shell("n1", "pgrep -x etcd || true").strip()
    assert "nothing was changed" in cluster.up().stdout
