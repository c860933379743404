"""What the phases of one operation share: the desired cluster, the ports, and what was learned so far.

Contract: phases read and extend it, in the order of the workflow; nothing in it survives the process.
What must survive lies on the hosts, in the API, or in the cluster's directory (`places.cluster_dir`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

from autarky.control.addons import images_of
from autarky.control.certificates.manifests import leaves
from autarky.control.cluster_file.decide.records import Record, newest
from autarky.control.control_nodes.decide.initial import Memory
from autarky.control.hosts.decide.belonging import Ours, Said
from autarky.engine.phase import Warn
from autarky.errors import CommandFailed, Inaccessible, TimedOut, Unreachable, UserError
from autarky.model import ports
from autarky.model.cluster import Cluster, Node
from autarky.model.facts import HostFacts
from autarky.model.own_add_ons import OwnAddOns
from autarky.model.versions import Version
from autarky.payload import Payload, Release, image_reference, release_of
from autarky.pki import PkiStore
from autarky.pki.fresh import Fresh, IssuingFiles
from autarky.ports import Clock, Host, Kube, Machines, Object, Progress
from autarky.render import cluster_record
from autarky.render.values import Credentials, Inputs, pretty_json

Connect = Callable[[Sequence[str], str], Kube]
"""(URLs of equal servers, certificate name in the pki directory) → a client that uses one that answers."""
T = TypeVar("T")


@dataclass(slots=True)
class Context:
    """See the module's contract."""

    cluster: Cluster
    release: Release
    machines: Machines
    pki: PkiStore
    connect: Connect
    clock: Clock
    directory: Path
    silence: Progress
    file_content: bytes = b""
    """The cluster file as the cluster's directory is to keep it; empty where nothing is to be kept."""
    file_waits: bool = False
    """Whether that waits until hosts that were off have been asked."""
    initial_member: str | None = None
    """The only control node that creates the cluster, while no host remembers who did; None: all of them do."""
    demoted: frozenset[str] = frozenset()
    document: Mapping[str, Any] | None = None
    """The cluster file that is applied, as `config.dump` has it; None for a command that applies none."""
    known: Sequence[Mapping[str, Any]] | None = None
    """The files that this machine knows the cluster by; None for a command that replaces whatever was applied."""
    take_ownership: bool = False
    """Whether edits by others are taken back (`up --take-ownership`)."""
    moves_etcd: bool = False
    """Whether the command moves etcd into the cluster or out of it, which only `autarky etcd migrate` does."""
    brings_api_back: bool = False
    """Whether the API is away because of what the command completes: hosts that do not answer are left out all the
    same."""
    in_file: Cluster | None = None
    """The cluster as its file has it, once `cluster` follows edits of the ControlPlane object."""
    version_in_file: Version | None = None
    """The version of Kubernetes in the file, where `cluster` follows another one that the cluster was upgraded to."""
    upgrades: bool = False
    """Whether the command upgrades the control plane where its file has another version (`autarky up`)."""
    upgrade_from: Version | None = None
    """What the control plane has, where it is to be upgraded to the version of `cluster`."""
    encryption: str = field(default="", repr=False)
    """The encryption configuration of a backup, for the first API server of a recovery, also of one that was cut;
    empty: there is none."""
    soaks: str = ""
    """How the control plane was left, where its new version emulates the minor before it for a while: a sentence."""
    payload: Payload | None = None
    facts: dict[str, HostFacts] = field(default_factory=dict)
    said_addresses: set[str] = field(default_factory=set)
    """Nodes whose address is the one that their own host has said, since the file has none."""
    owners: dict[str, Said] = field(default_factory=dict)
    """Node → which cluster its host says it belongs to; hosts without a marker are not in it."""
    versions: dict[str, str | None] = field(default_factory=dict)
    """Node → the version of Kubernetes in that marker; None if its release wrote none."""
    memories: dict[str, Memory] = field(default_factory=dict)
    """Node → what its host remembers of the cluster's creation."""
    records: dict[str, Record] = field(default_factory=dict)
    """Control node, or `records.API` → the record of the cluster that it has."""
    api_seen: bool = False
    """Whether the API has been asked which nodes are in the cluster, and for its record."""
    joined: frozenset[str] = frozenset()
    """Nodes that the API had when it was asked for them: they joined before this run."""
    active_in_api: frozenset[str] = frozenset()
    """Those of them with the label that makes a node a control node, which no kubelet may set. None where the API did
    not answer."""
    absent: dict[str, str] = field(default_factory=dict)
    """Node → why its host could not be asked, or why it was left out after that."""
    lender: str | None = None
    """The control node that lends what this state directory lacks (`borrow`), and signs."""
    unlisted: tuple[Node, ...] = ()
    """Nodes that are in the cluster and not in its file."""
    labelled: frozenset[str] = frozenset()
    """Workers of the file that a label has made control nodes. Known only to commands that only look."""
    distrusted: frozenset[str] = frozenset()
    """Workers that are being removed and are no longer members: what their hosts say or fail to do stops nothing."""
    warnings: list[str] = field(default_factory=list)
    own_add_ons: OwnAddOns | None = None
    """What is in the directory of add-ons beside the cluster file; None for a command that names no file: then they
    stay as they are."""
    applied: dict[tuple[str, str], Object] = field(default_factory=dict)
    """(kind, name) of a hosted workload → its template, as the API had it when it was applied."""
    _kube: Kube | None = None

    # --- what is known of the hosts ---

    @property
    def all_seen(self) -> bool:
        """Whether all were asked whose word on the cluster file counts. No worker can stop a move of etcd half-way."""
        silent = set(self.absent)
        return not (silent & {node.name for node in self.control_nodes} if self.moves_etcd else silent)

    @property
    def complete(self) -> Cluster:
        """The cluster with its unlisted nodes, which certificates, load balancers and the join inventory must fit as
        well. A node leaves by `autarky node remove`, not by a missing line in the file."""
        known = tuple(node for node in self.unlisted if node.address is not None)
        return replace(self.cluster, nodes=(*self.cluster.nodes, *known)) if known else self.cluster

    @property
    def ours(self) -> Ours:
        """The cluster of this state directory: by its CA, if it has one yet."""
        return Ours(self.cluster.name, self.pki.fingerprint())

    @property
    def founded(self) -> bool:
        """Whether the cluster's API had ever answered when the hosts were asked. A worker's host may say anything."""
        controls = {node.name for node in self.cluster.control_nodes}
        return any(memory.founded for name, memory in self.memories.items() if name in controls)

    def leave_out(self, name: str, why: str) -> None:
        """As if the node's host did not answer: nothing that it said counts."""
        self.absent[name] = why
        for said in (self.facts, self.owners, self.versions, self.memories, self.records):
            said.pop(name, None)

    def use_version(self, version: Version) -> None:
        """From here on the cluster is of that version of Kubernetes, and not of the one in its file."""
        if version == self.cluster.kubernetes_version:
            return
        self.version_in_file = self.version_in_file or self.cluster.kubernetes_version
        self.cluster = replace(self.cluster, kubernetes_version=version)
        self.release = release_of(version, self.cluster.etcd_version)
        self.payload = None

    def present(self, nodes: Iterable[Node]) -> tuple[Node, ...]:
        """Those whose host answers, or has not been asked yet."""
        return tuple(node for node in nodes if node.name not in self.absent)

    @property
    def addresses_known(self) -> bool:
        """Whether rendering is possible: the addresses of every node, and of a lab's etcd host, are known."""
        etcd_host = self.cluster.etcd_host
        nodes = [*self.cluster.nodes, *([etcd_host] if etcd_host is not None else [])]
        return all(node.address is not None for node in nodes)

    def host(self, node: Node) -> Host:
        """The node's host; UserError when its machine does not exist."""
        host = self.machines.host(node.name)
        if host is None:
            raise UserError(
                f"the machine of node {node.name} ({node.host}) does not exist",
                fix="run `autarky up` from its first phase",
            )
        return host

    @property
    def first(self) -> Node:
        """The control node that is brought up first: one that answers, where there is one."""
        initial_members = self.cluster.initial_members or self.cluster.control_nodes
        return next(iter(self.present(initial_members)), initial_members[0])

    @property
    def control_nodes(self) -> tuple[Node, ...]:
        """Those of the file, and after them those that are known to be made by a label."""
        found = [node for node in self.cluster.nodes if node.control_plane or node.name in self.labelled]
        return tuple(sorted(found, key=lambda node: not node.control_plane))

    @property
    def trusted_control_nodes(self) -> tuple[Node, ...]:
        """Those of the file, and workers there that the API has as control nodes: none by what its own host says."""
        return tuple(node for node in self.cluster.nodes if node.control_plane or node.name in self.active_in_api)

    def require_payload(self) -> Payload:
        """The payload, which an earlier phase must have got."""
        if self.payload is None:
            raise UserError("the components are not in the store", fix="run `autarky payload get`")
        return self.payload

    # --- rendering ---

    def inputs(self) -> Inputs:
        """What the renderers need; the addresses must be known and the certificates issued."""
        images = {name: image_reference(self.release, name) for name in images_of(self.cluster)}
        files = {**self.pki.files(), **external_etcd_files(self.cluster)}
        credentials = Credentials(with_first_leaves(self.complete, files))
        return Inputs(self.complete, images, credentials, self.facts, self._record(), self.encryption)

    def _record(self) -> bytes:
        """What control nodes keep of the cluster; nothing while its nodes' addresses are not known."""
        return self.record_of(self.complete.nodes) if self.addresses_known else b""

    def record_of(self, nodes: Sequence[Node]) -> bytes:
        """What control nodes keep of a cluster of these nodes; nothing where no file is applied."""
        if self.document is None:
            return b""
        return cluster_record.record(self.document, memory_of(nodes), newest(self.records))

    # --- the API ---

    @property
    def servers(self) -> list[str]:
        """The load balancers of all control nodes; first those whose hosts answer. Each of them leads to every API
        server, so a client that knows all of them can do without any one control node."""
        nodes = sorted(
            self.complete.control_nodes, key=lambda node: (node.name in self.absent, not node.initial_member)
        )
        return [f"https://{node.address}:{ports.NLLB_API}" for node in nodes if node.address is not None]

    def kube(self) -> Kube:
        """The API through the control nodes' load balancers, as super-admin."""
        if self._kube is None:
            self._kube = self.connect(self.servers, "super-admin")
        return self._kube

    async def api_answers(self) -> bool:
        """Whether the API can be used now. Never raises; False while addresses or keys are missing."""
        if not self.servers or not self.pki.complete("super-admin"):
            return False
        return await self.kube().healthy("/readyz") is None

    async def close(self) -> None:
        if self._kube is not None:
            await self._kube.close()
        await self.machines.close()


def memory_of(nodes: Sequence[Node]) -> bytes:
    """What is to be remembered of these nodes, whose addresses are known."""
    return pretty_json(
        {
            node.name: {
                "host": str(node.host),
                "address": node.known_address(),
                "controlPlane": node.control_plane,
                "founder": node.initial_member,
            }
            for node in nodes
        }
    )


def with_first_leaves(cluster: Cluster, files: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """The files, and the hosts' first leaf certificates, issued on demand: agents and kubelets renew them later."""
    # Of all nodes, since a label can make any of them a control node. Only what is asked for is issued.
    specs = [(spec, timedelta(seconds=life)) for spec, life in leaves.first_specs(cluster, cluster.nodes)]
    return IssuingFiles(files, Fresh(specs, cluster.certificates.key_algorithm, datetime.now(UTC)))


def external_etcd_files(cluster: Cluster) -> dict[str, bytes]:
    """The client certificate of the user's own etcd, under the names that ours would have."""
    external = cluster.external_etcd
    if external is None or external.lab_host is not None:
        return {}
    sources = {
        "etcd/ca.crt": external.ca_file,
        "apiserver-etcd-client.crt": external.cert_file,
        "apiserver-etcd-client.key": external.key_file,
    }
    try:
        return {name: Path(source).read_bytes() for name, source in sources.items()}
    except OSError as error:
        raise UserError(
            f"cannot read {error.filename}: {error.strerror}", fix="correct the paths in spec.etcd.external"
        ) from error


async def for_each(items: Iterable[Node], work: Callable[[Node], Awaitable[T]]) -> dict[str, T]:
    """Run the work for all nodes side by side; the first failure cancels the rest and is raised alone."""
    tasks: dict[str, asyncio.Task[T]] = {}

    async def one(node: Node) -> T:
        return await work(node)

    try:
        async with asyncio.TaskGroup() as group:
            for node in items:
                tasks[node.name] = group.create_task(one(node), name=f"node {node.name}")
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return {name: task.result() for name, task in tasks.items()}


def left_out_since(context: Context, before: Collection[str]) -> list[Warn]:
    """Nodes that were left out since then: a plan has no other way to report them."""
    return [Warn(left_out(context, name), in_plan=True) for name in context.absent if name not in before]


def left_out(context: Context, name: str) -> str:
    """What is said of a node that is left out."""
    return f"{name} is left out: {context.absent[name]}"


def _not_done(seconds: float | None) -> str:
    return "it was not done in time" if seconds is None else f"it was not done within {seconds:.0f} s"


async def for_each_or_left_out(
    context: Context,
    nodes: Iterable[Node],
    work: Callable[[Node], Awaitable[T]],
    progress: Progress | None = None,
    *,
    seconds: float | None = None,
) -> dict[str, T]:
    """The same, except for workers that joined before: a failure there, or work that takes longer than `seconds`, may
    be what somebody with root there intends, and does not fail the command. From here on that worker is left out, like
    one whose host does not answer; the others' results are returned. A refusal of the API is not the worker's doing,
    and is raised.

    A control node is never left out, not even one that joins as a worker: what must be true on all control nodes would
    be checked only on the others (rule 1)."""
    control = {node.name for node in context.cluster.control_nodes}
    workers = context.joined - control

    async def one(node: Node) -> T | None:
        if node.name not in workers:
            return await work(node)
        try:
            async with asyncio.timeout(seconds):
                return await work(node)
        except (CommandFailed, Inaccessible, Unreachable, TimedOut, TimeoutError) as error:
            context.absent[node.name] = str(error) or _not_done(seconds)
            if progress is not None:
                progress.note(left_out(context, node.name))
            return None

    found = await for_each(nodes, one)
    return {name: cast(T, result) for name, result in found.items() if name not in context.absent}
