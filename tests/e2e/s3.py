"""A server that speaks S3, on this machine, which test hosts reach over TLS by the address of their lab's bridge."""

from __future__ import annotations

import ipaddress
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from autarky.model.versions import Version
from autarky.payload import find_binary, load_release

KEY_ID, SECRET_KEY, BUCKET = "test-key-id", "test-secret-key", "backups"
RELEASE = "v1.36.4"
"""Whose release file has the server."""


@dataclass(frozen=True)
class S3Server:
    """directory: where the bucket's objects lie as files. ca: of its certificate."""

    endpoint: str
    directory: Path
    ca: Path

    def objects(self) -> list[str]:
        bucket = self.directory / BUCKET
        return sorted(
            str(one.relative_to(bucket)) for one in bucket.rglob("*.*") if ".sgwtmp" not in one.parts and one.is_file()
        )


@contextmanager
def s3_server(address: str, scratch: Path) -> Iterator[S3Server]:
    """address: of this machine, as the test hosts know it."""
    found = find_binary(load_release(Version.parse(RELEASE)), "versitygw")
    assert found is not None, "autarky payload get --group=s3"
    directory = scratch / "objects"
    (directory / BUCKET).mkdir(parents=True)
    _certificates(address, scratch)
    port = _free_port(address)
    argv = [str(found.path), f"--port={address}:{port}", f"--cert={scratch}/server.crt", f"--key={scratch}/server.key"]
    variables = {"ROOT_ACCESS_KEY": KEY_ID, "ROOT_SECRET_KEY": SECRET_KEY, "PATH": os.defpath, "HOME": str(scratch)}
    with (scratch / "log").open("wb") as log:
        process = subprocess.Popen([*argv, "posix", str(directory)], env=variables, stdout=log, stderr=log)
    try:
        _wait_until_it_listens(address, port)
        yield S3Server(f"https://{address}:{port}", directory, scratch / "ca.crt")
    finally:
        process.kill()
        process.wait()


def _free_port(address: str) -> int:
    with closing(socket.socket()) as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def _wait_until_it_listens(address: str, port: int) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection((address, port), timeout=1).close()
        except OSError:
            assert time.monotonic() < deadline, "the S3 server does not listen"
            time.sleep(0.1)
        else:
            return


def _certificates(address: str, directory: Path) -> None:
    """A CA that nobody knows, and a certificate of it for the address."""
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test CA")])
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    is_ca, is_none = x509.BasicConstraints(ca=True, path_length=None), x509.BasicConstraints(ca=False, path_length=None)
    ca = _builder(authority, ca_key).issuer_name(authority).add_extension(is_ca, critical=True)
    server = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test server")])
    leaf = _builder(server, key).issuer_name(authority).add_extension(is_none, critical=True)
    leaf = leaf.add_extension(names, critical=False)
    for name, certificate in (("ca", ca), ("server", leaf)):
        signed = certificate.sign(ca_key, hashes.SHA256())
        (directory / f"{name}.crt").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (directory / "server.key").write_bytes(pem)


def _builder(subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
    )
