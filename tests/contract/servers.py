"""Starting real etcd and kube-apiserver on loopback, with certificates of our own pki; and clients of them.

The programs come from the content store; one that is missing fails the test and says what to do. They die
with this process, however it ends, and leave nothing but pytest's temporary directory.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from autarky.errors import AutarkyError
from autarky.etcd import EtcdClient
from autarky.kube import KubeClient
from autarky.model.cluster import CertificateSettings
from autarky.model.files import CertSpec
from autarky.payload import default_version, find_binary, load_release
from autarky.pki import PkiStore

START_LIMIT = 60.0
"""Seconds for a program to answer; 5 s are usual, a busy machine takes longer."""
_SPECS = (
    CertSpec(
        *("apiserver", "ca", "kube-apiserver", (), ("localhost", "kubernetes.default.svc"), ("127.0.0.1",), ("server",))
    ),
    CertSpec("super-admin", "ca", "autarky:super-admin", ("system:masters",)),
    CertSpec("nobody", "ca", "nobody"),
    CertSpec("etcd/server", "etcd/ca", "etcd-server", (), ("localhost",), ("127.0.0.1",), ("server", "client")),
    CertSpec("etcd/client", "etcd/ca", "kube-apiserver-etcd-client"),
)


@dataclass(frozen=True)
class Server:
    """A running program: where it answers, and the certificates to talk to it."""

    url: str
    pki: PkiStore

    def kube(self, *urls: str, identity: str = "super-admin") -> KubeClient:
        """A client of this API server, or of the given URLs, which lead to it."""
        pair, ca = self.pki.read(identity), self.pki.files()["ca.crt"]
        return KubeClient(urls or (self.url,), ca_pem=ca, client_cert_pem=pair.certificate, client_key_pem=pair.key)

    def etcd(self, *urls: str) -> EtcdClient:
        pair, ca = self.pki.read("etcd/client"), self.pki.files()["etcd/ca.crt"]
        return EtcdClient(urls or (self.url,), ca_pem=ca, client_cert_pem=pair.certificate, client_key_pem=pair.key)


@dataclass(frozen=True)
class Member:
    """Where a member of etcd is to be found."""

    name: str
    client: str
    peer: str


def a_member(name: str) -> Member:
    client, peer = (f"https://127.0.0.1:{port}" for port in free_ports(2))
    return Member(name, client, peer)


def etcd_pki(directory: Path) -> PkiStore:
    pki = PkiStore(directory)
    pki.ensure(_SPECS, CertificateSettings(), datetime.now(UTC))
    return pki


def linked_programs(directory: Path, *names: str) -> Path:
    """That directory, with these programs of the payload, as a host has them."""
    directory.mkdir()
    for name in names:
        found = find_binary(load_release(default_version()), name)
        assert found is not None, "autarky payload get"
        (directory / name).symlink_to(found.path)
    return directory


@contextmanager
def running_etcd(directory: Path) -> Iterator[Server]:
    one = a_member("one")
    with running_member(one, [one], etcd_pki(directory / "pki"), directory) as server:
        yield server


@contextmanager
def running_member(
    member: Member,
    cluster: Sequence[Member],
    pki: PkiStore,
    directory: Path,
    *,
    joins: bool = False,
    further: Mapping[str, object] | None = None,
) -> Iterator[Server]:
    """A member of etcd from when it serves; one that joins, from when it answers at all: a learner is not healthy.
    further: arguments."""
    directory.mkdir(exist_ok=True)
    arguments = {
        "name": member.name,
        "data-dir": directory / "data",
        "listen-client-urls": member.client,
        "advertise-client-urls": member.client,
        "listen-peer-urls": member.peer,
        "initial-advertise-peer-urls": member.peer,
        "initial-cluster": ",".join(f"{known.name}={known.peer}" for known in cluster),
        "initial-cluster-state": "existing" if joins else "new",
        "client-cert-auth": "true",
        "trusted-ca-file": pki.directory / "etcd/ca.crt",
        "cert-file": pki.directory / "etcd/server.crt",
        "key-file": pki.directory / "etcd/server.key",
        "peer-client-cert-auth": "true",
        "peer-trusted-ca-file": pki.directory / "etcd/ca.crt",
        "peer-cert-file": pki.directory / "etcd/server.crt",
        "peer-key-file": pki.directory / "etcd/server.key",
        "unsafe-no-fsync": "true",
        "log-level": "warn",
        **(further or {}),
    }
    server = Server(member.client, pki)

    async def health() -> str | None:
        etcd = server.etcd()
        try:
            if not joins:
                return await etcd.healthy()
            await etcd.status()
        except AutarkyError as error:
            return str(error)
        finally:
            await etcd.close()
        return None

    with running("etcd", arguments, directory, health):
        yield server


@contextmanager
def running_api_server(etcd: Server, directory: Path) -> Iterator[Server]:
    (port,) = free_ports(1)
    pki = etcd.pki.directory
    arguments = {
        "secure-port": port,
        "bind-address": "127.0.0.1",
        "advertise-address": "127.0.0.1",
        "endpoint-reconciler-type": "none",
        "etcd-servers": etcd.url,
        "etcd-cafile": pki / "etcd/ca.crt",
        "etcd-certfile": pki / "etcd/client.crt",
        "etcd-keyfile": pki / "etcd/client.key",
        "client-ca-file": pki / "ca.crt",
        "tls-cert-file": pki / "apiserver.crt",
        "tls-private-key-file": pki / "apiserver.key",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": pki / "sa.pub",
        "service-account-signing-key-file": pki / "sa.key",
        "service-cluster-ip-range": "10.96.0.0/24",
        "authorization-mode": "RBAC",
        "allow-privileged": "true",
        # No controller makes the ServiceAccounts that pods would need.
        "disable-admission-plugins": "ServiceAccount",
    }
    server = Server(f"https://127.0.0.1:{port}", etcd.pki)

    async def health() -> str | None:
        kube = server.kube()
        try:
            return await kube.healthy()
        finally:
            await kube.close()

    with running("kube-apiserver", arguments, directory, health):
        yield server


@contextmanager
def running(
    program: str, arguments: Mapping[str, object], directory: Path, health: Callable[[], Awaitable[str | None]]
) -> Iterator[None]:
    """The program, from when it is healthy to the end of the block."""
    release = load_release(default_version())
    binary = find_binary(release, program)
    if binary is None:
        pytest.fail(f"{program} of {release.kubernetes} is not in the store; fix: run `autarky payload get`")
    flags = [f"--{name}={value}" for name, value in arguments.items()]
    # The kernel ends it when this process dies without a chance to do so.
    command = ["setpriv", "--pdeathsig", "KILL", "--", str(binary.path), *flags]
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        asyncio.run(_wait_until(health, lambda: process.poll() is None, program, log))
        yield
    finally:
        process.kill()
        process.wait()


async def _wait_until(
    health: Callable[[], Awaitable[str | None]], lives: Callable[[], bool], program: str, log: Path
) -> None:
    end = time.monotonic() + START_LIMIT
    while (seen := await health()) is not None:
        if not lives() or time.monotonic() > end:
            pytest.fail(f"{program} does not answer: {seen}; its log ends:\n{_tail(log)}")
        await asyncio.sleep(0.1)


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [found.getsockname()[1] for found in sockets]
    for found in sockets:
        found.close()
    return ports
