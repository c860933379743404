"""An etcd of somebody else, on a host that autarky knows nothing of, with a CA of its own."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from harness import TestCluster

from autarky.payload import default_version, find_binary, load_release

NODE = {"name": "n1", "host": "lab", "roles": ["control-plane", "worker"]}
INSIDE: dict[str, Any] = {"selfHosted": "1-4", "nodes": [NODE]}
STORE = "n2"
"""The host of the other etcd, which is no node."""
DIRECTORY = "/srv/etcd"
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


def outside(authority: Authority, address: str) -> dict[str, Any]:
    external = {
        "endpoints": [f"https://{address}:2379"],
        "caFile": authority.path("ca.crt"),
        "certFile": authority.path("apiserver.crt"),
        "keyFile": authority.path("apiserver.key"),
    }
    return {**INSIDE, "selfHosted": "2-4", "etcd": {"external": external}}


def start_etcd(
    cluster: TestCluster,
    authority: Authority,
    address: str,
    *,
    program: Path | None = None,
    initial: str = "",
    state: str = "new",
) -> None:
    """On a host that autarky knows nothing of, with the payload's etcd or another one. initial, state: of its cluster;
    it begins one."""
    programs = "/usr/local/lib/somebodys"
    cluster.shell(STORE, f"install -d -m 700 {DIRECTORY} {programs}")
    for name in ("ca.crt", "db1.crt", "db1.key"):
        content = (authority.directory / name).read_text()
        cluster.shell(STORE, f"umask 077; cat >{DIRECTORY}/{name} <<'PEM'\n{content}PEM\n")
    into_host(cluster, STORE, program or etcd_program(), f"{programs}/etcd")
    initial = initial or f"db1=https://{address}:2380"
    values = {"programs": programs, "directory": DIRECTORY, "address": address, "initial": initial, "state": state}
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
