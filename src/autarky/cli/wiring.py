"""The composition root of the CLI: the one place where ports meet adapters.

Imports of adapters are inside the functions, so that `autarky --help` stays fast.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from autarky import places
from autarky.clock import SystemClock
from autarky.errors import Problems, UserError
from autarky.ports import Host, Kube, Progress

if TYPE_CHECKING:
    from autarky.engine.host_lock import HostLocks
    from autarky.lab import Lab, Seed
    from autarky.model.cluster import Cluster
    from autarky.model.defaults import Had
    from autarky.payload import Release
    from autarky.phases.context import Context


STANDARD_INPUT = Path("-")
API_PATIENCE = 10.0
"""Seconds for which a command keeps trying an API that answered before."""


class Silence:
    """A Progress that shows nothing, for work that only looks."""

    def note(self, sentence: str) -> None: ...

    def progress(self, what: str, done: float, total: float) -> None: ...

    def waiting(self, what: str, deadline: float, last: str) -> None: ...


@dataclass
class ClusterMachines:
    """Implements ports.Machines for all drivers."""

    cluster: Cluster
    release: Release
    gone: frozenset[str] = frozenset()
    """Nodes whose machines are reported gone: their hosts need no lock."""
    _hosts: dict[str, Host] = field(default_factory=dict)
    _locks: HostLocks | None = None

    @asynccontextmanager
    async def locked(
        self,
        command: str,
        tell: Callable[[str], None],
        *,
        minority: bool = False,
        passes_workers: Collection[str] = (),
    ) -> AsyncIterator[None]:
        from autarky.engine.host_lock import Holder, hosts_locked

        clock = SystemClock()
        holder = Holder.this(command, clock.time())
        workers = {node.name for node in self.cluster.workers if node.name in passes_workers}
        locked = hosts_locked(places.HOST_LOCK, holder, clock, tell, minority=minority, workers=frozenset(workers))
        async with locked as locks:
            self._locks = locks
            try:
                await self._lock_hosts()
                yield
            finally:
                self._locks = None

    async def _lock_hosts(self) -> None:
        if self._locks is not None:
            controls = self._locks.minority
            names = [node.name for node in self.cluster.nodes if node.control_plane or not controls]
            names += [] if controls else [*self._lab_nodes()]
            hosts = {name: self.host(name) for name in names if name not in self.gone}
            await self._locks.take({name: host for name, host in hosts.items() if host is not None})

    def _lab_nodes(self) -> dict[str, str]:
        """Node name → lab host name, an external etcd's host included."""
        nodes = {node.name: node.host.target or node.name for node in self.cluster.nodes if node.host.driver == "lab"}
        external = self.cluster.external_etcd
        if external is not None and external.lab_host is not None:
            nodes[external.lab_host] = external.lab_host
        return nodes

    def _lab(self) -> Lab:
        from autarky.lab import Lab

        return Lab.open(self.cluster.name)

    async def missing(self) -> Sequence[str]:
        lab_nodes = self._lab_nodes()
        if not lab_nodes:
            return []
        running = {name for name, record in self._lab().records().items() if record.running}
        return [f"create or power on lab host {host}" for host in lab_nodes.values() if host not in running]

    async def ensure(self, progress: Progress) -> None:
        runc, seed = await lab_supplies(self.release, progress)
        await self._lab().ensure(list(self._lab_nodes().values()), runc=runc, seed=seed, progress=progress)
        self._hosts.clear()
        await self._lock_hosts()

    def host(self, name: str) -> Host | None:
        if name not in self._hosts:
            host = self._find(name)
            if host is None:
                return None
            self._hosts[name] = host
        return self._hosts[name]

    def _find(self, name: str) -> Host | None:
        from autarky.hosts import LabHost, LocalHost, SshHost

        lab_nodes = self._lab_nodes()
        if name not in lab_nodes:
            reference = self.cluster.node(name).host
            if reference.driver == "local":
                return LocalHost(name)
            sockets = places.cluster_dir(self.cluster.name) / "ssh"
            return SshHost(name, str(reference), sockets=sockets, config=self.cluster.ssh_config)
        record = self._lab().records().get(lab_nodes[name])
        if record is None or not record.running:
            return None
        return LabHost(name, record.pid, record.start_time, address=record.address)

    async def discard(self, name: str, progress: Progress) -> bool:
        host = self._lab_nodes().get(name)
        if host is None or host not in self._lab().records():
            return False
        if self._locks is not None:
            await self._locks.release(name)
        self._hosts.pop(name, None)
        await self._lab().remove(host)
        progress.note(f"lab host {host} is gone")
        return True

    async def removable(self) -> Sequence[str]:
        if not self._lab_nodes():
            return []
        return [f"remove lab host {name}" for name in self._lab().records()]

    async def remove(self, progress: Progress) -> None:
        if self._locks is not None:
            await self._locks.release(*self._lab_nodes())
        await self._lab().down()
        progress.note(f"lab {self.cluster.name} is gone")

    async def close(self) -> None:
        for host in self._hosts.values():
            await host.close()


async def refuse_unfit_machine(cluster: Cluster) -> None:
    """UserError if this machine cannot run the cluster's test hosts: raised before a build that takes minutes."""
    from autarky.lab import Lab, refuse_unfit_machine

    if cluster.etcd_host is not None or any(node.host.driver == "lab" for node in cluster.nodes):
        await refuse_unfit_machine(Lab.open(cluster.name).directory)


async def lab_supplies(release: Release, progress: Progress) -> tuple[Path, Seed]:
    """What a lab needs of the payload: runc, and how to fill a new host with images."""
    from autarky.payload import containerd_template, copy_template, get_payload

    payload = await get_payload(release, progress, groups=("cluster", "test"))
    template = await containerd_template(payload, progress)

    async def seed(directory: Path) -> None:
        await copy_template(template, directory)

    return payload.binaries["runc"].path, seed


def known_clusters() -> list[str]:
    """The names of the clusters that `up` has started on this machine."""
    root = places.state_dir() / "clusters"
    return sorted(path.parent.name for path in root.glob("*/cluster.json"))


def refuse_clusters_of_unknown_versions() -> None:
    """Problems with each cluster of this machine of which it is not known what it is made of."""
    if problems := [problem for name in known_clusters() if (problem := _unknown_version(name)) is not None]:
        raise Problems("what these clusters are made of is not known, so nothing is removed", problems)


def _unknown_version(name: str) -> UserError | None:
    from autarky.payload import known_etcd_versions, known_versions

    try:
        cluster = load_cluster(None, name, any_release=True)
    except UserError as error:
        return error
    kubernetes, etcd = cluster.kubernetes_version, cluster.etcd_version
    unknown = [f"Kubernetes {kubernetes}"] if kubernetes not in known_versions() else []
    unknown += [f"etcd {etcd}"] if etcd is not None and etcd not in known_etcd_versions() else []
    if not unknown:
        return None
    return UserError(
        f"cluster {name} is of {' and '.join(unknown)}, of which there is no usable release file here",
        where=str(places.cluster_dir(name) / "cluster.json"),
        fix="set AUTARKY_RELEASES to the directory that has it, or install it with `autarky payload release add FILE`",
    )


def directory_of(file: Path | None, name: str | None) -> Path:
    """The cluster's directory, by its file, its name, or because there is only one."""
    return (
        places.cluster_dir(load_cluster(file, None, any_release=True).name)
        if file is not None
        else cluster_directory(name)
    )


def load_cluster(file: Path | None, name: str | None, *, any_release: bool = False) -> Cluster:
    """The cluster of `-f FILE`, or of `--cluster NAME`, or the only one there is. `-`: standard input, whose paths
    are relative to the working directory. any_release: also of a Kubernetes version that is not known (any more), for
    commands that need no components."""
    cluster = _parsed_cluster(file, name, any_release=any_release)
    if not any_release:
        from autarky.payload import load_release, with_etcd

        with_etcd(load_release(cluster.kubernetes_version), cluster.etcd_version)  # raises if that cannot be used
    return cluster


def _parsed_cluster(file: Path | None, name: str | None, *, any_release: bool) -> Cluster:
    from autarky.config import load, loads
    from autarky.payload import default_version, versions_of_files

    default, known = default_version(), None if any_release else versions_of_files()
    if file == STANDARD_INPUT:
        text = _standard_input()
        return loads(text, "standard input", default_version=default, known_versions=known, founded=founded)
    path = file if file is not None else cluster_directory(name) / "cluster.json"
    return load(path, default_version=default, known_versions=known, founded=founded)


@cache
def _standard_input() -> str:
    """Read once; later calls get the same text."""
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError("it is not UTF-8 text", where="standard input", fix="send UTF-8") from error


def founded(name: str) -> Had | None:
    """The cluster's defaults, for what its file leaves out; None if this machine knows no such cluster. A kept file
    that was not applied, since its `up` failed, does not count."""
    from autarky.model.defaults import had
    from autarky.phases import kept_file

    found = map(had, kept_file.applied(places.cluster_dir(name)))
    return next((one for one in found if one is not None), None)


def cluster_directory(name: str | None) -> Path:
    """The directory of the named cluster, or of the only one there is."""
    root = places.state_dir() / "clusters"
    known = known_clusters()
    if name is None and len(known) == 1:
        return root / known[0]
    if name is None:
        if not known:
            fix = "`autarky up -f FILE` brings one up; `autarky login HOST` fetches one that another machine brought up"
            raise UserError("there is no cluster yet", fix=fix)
        raise UserError(f"there are several clusters: {', '.join(known)}", fix="name one with --cluster NAME")
    if name not in known:
        raise UserError(
            f"there is no cluster {name}; known: {', '.join(known) or 'none'}", fix="see `autarky up --help`"
        )
    return root / name


def connect(directory: Path, servers: Sequence[str], certificate: str) -> Kube:
    """A client of equal servers that acts as the named certificate of the cluster's pki directory."""
    from autarky.kube import KubeClient

    pki = directory / "pki"
    return KubeClient(
        servers,
        ca_pem=(pki / "ca.crt").read_bytes(),
        client_cert_pem=(pki / f"{certificate}.crt").read_bytes(),
        client_key_pem=(pki / f"{certificate}.key").read_bytes(),
        patience=API_PATIENCE,
    )


def build_context(
    cluster: Cluster, *, demoted: Sequence[str] = (), take_ownership: bool = False, gone: Sequence[str] = ()
) -> Context:
    """Everything the phases need, from real adapters. `gone`: nodes whose machines are reported gone."""
    from autarky.payload import release_of
    from autarky.phases.context import Context
    from autarky.pki import PkiStore

    directory = places.cluster_dir(cluster.name)
    release = release_of(cluster.kubernetes_version, cluster.etcd_version)
    return Context(
        cluster=cluster,
        release=release,
        machines=ClusterMachines(cluster, release, frozenset(gone)),
        pki=PkiStore(directory / "pki"),
        connect=lambda servers, certificate: connect(directory, servers, certificate),
        clock=SystemClock(),
        directory=directory,
        demoted=frozenset(demoted),
        take_ownership=take_ownership,
        silence=Silence(),
    )
