"""An etcd of somebody else, on hosts that autarky knows nothing of, with a CA of its own."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from documented import page, steps_below
from harness import TestCluster

from autarky.payload import default_version, find_binary, load_release

NODE = {"name": "n1", "host": "lab", "roles": ["control-plane", "worker"]}
INSIDE: dict[str, Any] = {"selfHosted": "1-4", "nodes": [NODE]}
STORE = "n2"
"""The host of the other etcd, which is no node."""
DIRECTORY = "/srv/etcd"
_PROGRAMS = "/usr/local/lib/somebodys"
_UNIT = "somebodys-etcd"
_START = """\
systemd-run --unit={unit} --property=Restart=on-failure {programs}/etcd --name={name} --data-dir={directory}/data \\
  --listen-client-urls=https://{address}:2379 --advertise-client-urls=https://{address}:2379 \\
  --listen-peer-urls=https://{address}:2380 --initial-advertise-peer-urls=https://{address}:2380 \\
  --initial-cluster={initial} --initial-cluster-state={state} --initial-cluster-token=somebodys \\
  --client-cert-auth --trusted-ca-file={directory}/ca.crt \\
  --cert-file={directory}/{name}.crt --key-file={directory}/{name}.key \\
  --peer-client-cert-auth --peer-trusted-ca-file={directory}/peers/ca.crt \\
  --peer-cert-file={directory}/peers/{name}.crt --peer-key-file={directory}/peers/{name}.key
"""
"""One that has left ends well, and stays ended."""


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


@dataclass(frozen=True)
class Member:
    """Of somebody's etcd, on a host that is no node."""

    host: str
    name: str
    address: str

    @property
    def client(self) -> str:
        return f"https://{self.address}:2379"

    @property
    def initial(self) -> str:
        """In the list of those with which an etcd begins."""
        return f"{self.name}=https://{self.address}:2380"

    @property
    def etcdctl(self) -> str:
        """How it is called there."""
        certificate = f"--cert={DIRECTORY}/{self.name}.crt --key={DIRECTORY}/{self.name}.key"
        return f"{_PROGRAMS}/etcdctl --endpoints={self.client} --cacert={DIRECTORY}/ca.crt {certificate}"


def address_of(cluster: TestCluster, host: str) -> str:
    said = cluster.shell(host, "ip -4 -o addr show scope global | sed 's|.*inet ||; s|/.*||' | head -n 1")
    return said.strip()


def member_on(cluster: TestCluster, host: str = STORE, name: str = "db1") -> Member:
    return Member(host, name, address_of(cluster, host))


def outside(authority: Authority, *members: Member, inside: Mapping[str, Any] = INSIDE) -> dict[str, Any]:
    """The same with etcd at these members."""
    external = {
        "endpoints": [one.client for one in members],
        "caFile": authority.path("ca.crt"),
        "certFile": authority.path("apiserver.crt"),
        "keyFile": authority.path("apiserver.key"),
    }
    return {**inside, "selfHosted": "2-4", "etcd": {"external": external}}


def start_etcd(
    cluster: TestCluster,
    authority: Authority,
    member: Member,
    *,
    peers: Authority | None = None,
    program: Path | None = None,
    initial: str = "",
    state: str = "new",
) -> None:
    """On a host that autarky knows nothing of, with the payload's etcd or another one. peers: the CA of the members
    among themselves, where that is another one. initial, state: of its cluster; it begins one."""
    host = member.host
    cluster.shell(host, f"install -d -m 700 {DIRECTORY} {DIRECTORY}/peers {_PROGRAMS}")
    for directory, issuer in ((DIRECTORY, authority), (f"{DIRECTORY}/peers", peers or authority)):
        for name in ("ca.crt", f"{member.name}.crt", f"{member.name}.key"):
            content = (issuer.directory / name).read_text()
            cluster.shell(host, f"umask 077; cat >{directory}/{name} <<'PEM'\n{content}PEM\n")
    into_host(cluster, host, program or _program("etcd"), f"{_PROGRAMS}/etcd")
    into_host(cluster, host, _program("etcdctl"), f"{_PROGRAMS}/etcdctl")
    values = {"unit": _UNIT, "programs": _PROGRAMS, "directory": DIRECTORY, "name": member.name}
    initial = initial or member.initial
    cluster.shell(host, _START.format(**values, address=member.address, initial=initial, state=state))


def starts_over(cluster: TestCluster, member: Member) -> None:
    """Nothing runs on its host, and what its former member has left is out of the way."""
    cluster.shell(member.host, f"systemctl stop {_UNIT}; systemctl reset-failed; mv {DIRECTORY}/data {DIRECTORY}/old")


def has_ended(cluster: TestCluster, member: Member) -> None:
    """By itself, as its etcd has removed it."""
    running = f"systemctl is-active {_UNIT}; pgrep -x etcd"
    cluster.wait(
        f"{member.name} has ended",
        lambda: cluster.shell(member.host, f"{{ {running}; }} || true").split() == ["inactive"],
        seconds=60,
    )


def _program(name: str) -> Path:
    """Of the release, in the store."""
    found = find_binary(load_release(default_version()), name)
    assert found is not None
    return found.path


def into_host(cluster: TestCluster, host: str, source: Path, path: str) -> None:
    """By the host's file system, which this machine sees. A program that runs there keeps its file: nobody may write
    into that."""
    target = Path(f"/proc/{cluster.host_process(host)}/root{path}")
    beside = target.with_name(f"{target.name}.new")
    beside.write_bytes(source.read_bytes())
    beside.chmod(0o755)
    beside.replace(target)


# --- moves, as the page says -----------------------------------------------------------------------------------------


def peer_options(authority: Authority) -> list[str]:
    """Of a move into the cluster: a certificate for control nodes that `authority` has issued to "peer"."""
    files = {"--peer-cert": "peer.crt", "--peer-key": "peer.key", "--peer-ca": "ca.crt"}
    return [word for option, name in files.items() for word in (option, authority.path(name))]


def admitted(cluster: TestCluster, member: Member) -> str:
    """As a learner of the cluster's etcd: the list of members that it is started with."""
    found: list[str] = []

    def is_admitted() -> bool:
        said = _typed(cluster, "member add", member)
        found.extend(re.findall(r'^ETCD_INITIAL_CLUSTER="(.*)"$', said, re.MULTILINE))
        return bool(found)

    cluster.wait(f"{member.name} is admitted", is_admitted, seconds=60, pause=1)
    return found[0]


def gets_its_vote(cluster: TestCluster, member: Member) -> None:
    said = f"{member.name} has its vote"
    cluster.wait(said, lambda: "promoted" in _typed(cluster, "member promote", member), seconds=60, pause=1)


def _typed(cluster: TestCluster, command: str, member: Member) -> str:
    """What the page's block with that command says on a control node."""
    [block] = [one.commands for one in steps_below(page("etcd.md"), "Moving etcd") if command in one.commands]
    block = block.replace("192.0.2.50", member.address).replace("db1", member.name)
    return cluster.shell("n1", f"{{\n{block}}} 2>&1 || true")
