"""Our HAProxy with our configuration, in the file system of its container, on ports that are free.

It leads to a server of the test's on loopback. 127.0.0.1 is "the node itself" for it; 127.0.0.2 is an address of the
node, at which strangers arrive: they come from any other address of loopback.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from socket import socket as Socket  # noqa: N812

import pytest

from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.control.load_balancer.node import haproxy
from autarky.model import ports
from autarky.model.balancer import ApiNode, Balancer, EtcdNode
from autarky.model.files import File
from fakes.web import trusting_context

SELF, OUTSIDE, NEIGHBOUR = "127.0.0.1", "127.0.0.2", "127.0.0.9"
READY = "/readyz"
START_LIMIT = 60.0
PATIENCE = 20.0
"""Of a client."""
_PORTS = (ports.NLLB_API, ports.NLLB_ETCD, ports.NLLB_HEALTH)
BALANCER = Balancer("n1", True, (ApiNode("n1", "127.0.0.1"),), (EtcdNode("n1", "127.0.0.1"),))


@dataclass
class Running:
    """ours: port of the configuration → the one that stands for it."""

    root: Path
    ours: Mapping[int, int]
    master: int = 0

    @property
    def socket(self) -> str:
        return f"{self.root}/run/haproxy/master.sock"

    def write(self, files: Sequence[File], change: Callable[[str], str] = str) -> str:
        """As the agent does, but for the ports; the name of the configuration."""
        for file in files:
            text = change(file.content.decode())
            for port, instead in self.ours.items():
                text = text.replace(f":{port}\n", f":{instead}\n").replace(f":{port} ", f":{instead} ")
            path = self.root / file.path.replace(nllb.DIRECTORY, "etc/haproxy")
            path.write_text(text)
        return nllb.config_hash(path.read_text())

    async def running(self) -> str | None:
        return await haproxy.running_configuration(self.ours[ports.NLLB_HEALTH])

    async def runs(self, name: str) -> None:
        async with asyncio.timeout(START_LIMIT):
            while await self.running() != name:  # noqa: ASYNC110 # HAProxy tells nobody
                await asyncio.sleep(0.05)

    def connect(self, to: str, source: str, port: int = ports.NLLB_API) -> Socket:
        return socket.create_connection((to, self.ours[port]), PATIENCE, (source, 0))

    async def asked(self, to: str, source: str = SELF, path: str = READY) -> int:
        """The status of an answer of the API, by a new connection."""
        return await asyncio.to_thread(self._ask, to, source, path)

    def _ask(self, to: str, source: str, path: str) -> int:
        with self.connect(to, source) as plain, self.tls().wrap_socket(plain) as tls:
            return self.status(tls, path)

    def tls(self) -> ssl.SSLContext:
        context = trusting_context()
        context.check_hostname = False
        return context

    def status(self, connection: ssl.SSLSocket, path: str = READY) -> int:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        return int(connection.recv(1000).split(b" ")[1])


def the_root(image: Path, directory: Path) -> Path:
    """A root of the test's own, with what the pod mounts."""
    subprocess.run(["cp", "-a", "--reflink=auto", f"{image}/.", directory], check=True)
    for place in ("etc/haproxy", "run/haproxy", "dev"):
        (directory / place).mkdir(parents=True, exist_ok=True)
    (directory / "dev/null").touch()  # it is opened, and nothing else
    return directory


def check(root: Path) -> str:
    """What HAProxy says against the configuration; empty when it takes it."""
    argv = ["chroot", str(root), "/usr/sbin/haproxy", "-c", "-f", "/etc/haproxy/haproxy.cfg"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@asynccontextmanager
async def balancing(
    image: Path,
    directory: Path,
    api: int,
    etcd: int = 9,
    change: Callable[[str], str] = str,
    made_of: Balancer = BALANCER,
) -> AsyncIterator[Running]:
    """It runs, and leads to the servers at these ports. `change`: of the text of a file, before it is written."""
    servers = {ports.API_HOSTED: api, ports.ETCD_CLIENT: etcd}
    found = Running(the_root(image, directory), dict(zip(_PORTS, _free_ports(), strict=True)) | servers)
    name = found.write(nllb.configuration_files(made_of), change)
    log = directory / "log"
    process = await asyncio.to_thread(_started, directory, log)
    found.master = process.pid
    try:
        try:
            await found.runs(name)
            await _listens(found.socket)
        except TimeoutError:
            pytest.fail(f"HAProxy does not run; its log ends:\n{log.read_text(errors='replace')[-2000:]}")
        yield found
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


async def _listens(path: str) -> None:
    """The master, which executes itself again when its first worker runs, and listens to nobody meanwhile."""
    async with asyncio.timeout(10):
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_unix_connection(path)
                writer.close()
                return
            await asyncio.sleep(0.05)


def _free_ports() -> Iterator[int]:
    """On all addresses, as many as are ours; not of those that the kernel gives to clients, of which there are many."""
    found = 0
    for port in random.sample(range(16000, 30000), 1000):
        with suppress(OSError), socket.create_server(("", port)):
            found += 1
            yield port
        if found == len(_PORTS):
            return


def _started(root: Path, log: Path) -> subprocess.Popen[bytes]:
    arguments = ["-W", "-db", "-S", "/run/haproxy/master.sock,mode,600", "-f", "/etc/haproxy/haproxy.cfg"]
    argv = ["setpriv", "--pdeathsig", "KILL", "--", "chroot", str(root), "/usr/sbin/haproxy", *arguments]
    with log.open("wb") as output:
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
