"""Collects what a timeline is drawn of, with little on the clock: the looks of `_timeline_sampler.py`, and
connections to API servers that have not answered yet. Journals, the runtime and the API are asked afterwards.

What cannot be had is said and left out: the rest of the picture is worth its minutes.
"""

from __future__ import annotations

import asyncio
import http.client
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from _autarky import AutarkyCluster
from _kubeadm import lab_host
from _timeline_lanes import MESSAGE_IDS, Mark

from autarky import places
from autarky.cri.client import CriClient
from autarky.errors import AutarkyError
from autarky.kube import KubeClient
from autarky.lab import Lab
from autarky.model import ports
from autarky.model.runtime import Container, ContainerStatus, Sandbox
from autarky.ports import Object

SAMPLER = Path(__file__).with_name("_timeline_sampler.py")
ANSWER_SECONDS = 1.0
API_PORTS = {
    "load balancer": ports.NLLB_API,
    "hosted API server": ports.API_HOSTED,
    "standby API server": ports.API_STANDBY,
    "spare standby": ports.API_STANDBY_SPARE,
}
_T = TypeVar("_T")


@contextmanager
def sampling(file: Path) -> Iterator[None]:
    """Looks go into the file while the block runs. The program ends with its standard input, and so with us."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    with subprocess.Popen([sys.executable, str(SAMPLER), str(file)], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        try:
            _await_first_look(process, file)
            yield
        finally:
            process.stdin.close()
            process.wait()


def _await_first_look(process: subprocess.Popen[bytes], file: Path) -> None:
    """Only what was used after it can be said."""
    while not (file.exists() and file.stat().st_size):
        if process.poll() is not None:
            raise SystemExit(f"{SAMPLER.name} has ended with {process.returncode} before its first look")
        time.sleep(0.02)


# --- the first /readyz of each API server ---------------------------------------------------------


class FirstReady:
    """While the block runs: asks every API server of the control nodes four times a second, until it has answered "ok"
    once. booting: hosts that run when the block begins are left alone, and only what boots after them is asked: an API
    server from before a power cut would answer.

    A thread for each: an address that does not answer yet keeps its own waiting, and delays no other's answer."""

    def __init__(self, cluster: AutarkyCluster, *, booting: bool) -> None:
        self._lab = Lab.open(cluster.name)
        self._before = {name: record.pid for name, record in self._lab.records().items()} if booting else {}
        self._end = threading.Event()
        self._context = ssl.create_default_context()
        self._context.check_hostname, self._context.verify_mode = False, ssl.CERT_NONE
        self._threads = [
            threading.Thread(target=self._ask, args=(name, which, port), name=f"{name}, {which}", daemon=True)
            for name in cluster.control
            for which, port in API_PORTS.items()
        ]
        self.marks: dict[tuple[str, str], Mark] = {}
        """(Host, which one) → when."""

    def __enter__(self) -> FirstReady:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, name: str, which: str, port: int) -> None:
        while not self._end.wait(0.25):
            record = self._lab.records()[name]
            runs = record.pid and record.pid != self._before.get(name)
            if runs and self._is_ready(record.address, port):
                self.marks[name, which] = Mark(time.monotonic(), f"/readyz of the {which}")
                return

    def _is_ready(self, address: str, port: int) -> bool:
        connection = http.client.HTTPSConnection(address, port, timeout=ANSWER_SECONDS, context=self._context)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


# --- afterwards -----------------------------------------------------------------------------------


@dataclass
class OfHost:
    journal: str = ""
    sandboxes: Sequence[Sandbox] = ()
    containers: Sequence[tuple[Container, ContainerStatus]] = ()


@dataclass
class Collected:
    hosts: Mapping[str, OfHost] = field(default_factory=dict)
    pods: Sequence[Object] = ()
    nodes: Sequence[Object] = ()
    leases: Sequence[Object] = ()


async def collected(cluster: AutarkyCluster) -> Collected:
    names = (*cluster.control, *cluster.workers)
    hosts = dict(zip(names, await asyncio.gather(*(_of_host(cluster.name, name) for name in names)), strict=True))
    kube = KubeClient.from_kubeconfig(cluster.kubeconfig)
    try:
        return Collected(
            hosts,
            await _or("the pods", kube.list("v1", "Pod"), []),
            await _or("the nodes", kube.list("v1", "Node"), []),
            await _or("the leases", kube.list("coordination.k8s.io/v1", "Lease"), []),
        )
    finally:
        await kube.close()


async def _of_host(lab: str, name: str) -> OfHost:
    found = OfHost(await _or(f"the journal of {name}", _journal(lab, name), ""))
    pid = Lab.open(lab).records()[name].pid
    # The runtime's socket, as the host's first process sees it.
    cri = CriClient(f"/proc/{pid}/root{places.CONTAINERD_SOCKET}")
    try:
        found.sandboxes = await _or(f"the pods of {name}", cri.pods(), ())
        found.containers = await _or(f"the containers of {name}", _containers(cri), [])
    finally:
        await cri.close()
    return found


async def _journal(lab: str, name: str) -> str:
    """systemd's own messages of this boot: the driver keeps 1 MiB of what is said, and these are fewer."""
    fields = "--output-fields=MESSAGE_ID,UNIT"
    matches = [f"MESSAGE_ID={each}" for each in MESSAGE_IDS]
    argv = ["journalctl", "--boot", "--output=json", fields, "--no-pager", "--quiet", "_PID=1", *matches]
    return (await lab_host(lab, name).run(argv, timeout=60)).text


async def _containers(cri: CriClient) -> list[tuple[Container, ContainerStatus]]:
    """One that is removed meanwhile is left out."""
    found = [(container, await cri.container_status(container.id)) for container in await cri.containers()]
    return [(container, status) for container, status in found if status is not None]


async def _or(what: str, asked: Awaitable[_T], instead: _T) -> _T:
    try:
        return await asked
    except AutarkyError as error:
        print(f"timeline: without {what}: {error}", flush=True)
        return instead
