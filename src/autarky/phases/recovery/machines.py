"""A cluster on new machines, from a backup: its CAs and service account key, its etcd, and nothing of the old machines.

Contract: like the first `up` of a new cluster, with two differences: the roots are the backup's, so that everybody's
credentials stay valid; and etcd begins on one control node with the backup's data. All other nodes join that cluster,
control nodes by their label. What the data says of machines that are gone is forgotten before anything joins: first
their places in the join inventory (without which a kubelet's certificate creates and renews nothing), which never is
empty meanwhile, and their credentials; then their Nodes, their EtcdMembers, their pods. Killed anywhere, the same
command resumes: what has been done is on the hosts, and that it was begun with this backup. Machines on which there is
a cluster already that was not are refused: everything in that would be forgotten.

Danger: an old machine that comes back has everything that it ever had, the CA keys included. It must be wiped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from autarky import places
from autarky.control.admission.decide.approval import NO_CREDENTIAL
from autarky.control.cluster_file.decide.records import Record
from autarky.control.control_nodes.decide.initial import Memory
from autarky.control.etcd.decide.lineage import FORMER, former_of
from autarky.control.etcd.manifests import members as etcd_members
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.kubelet.manifests import credentials as kubelet_credentials
from autarky.engine.deadline import poll_until
from autarky.engine.phase import Change
from autarky.errors import Refused, UserError
from autarky.etcd.tools import EtcdTools
from autarky.model import patience, ports
from autarky.model.cluster import Node
from autarky.model.files import File
from autarky.model.fingerprint import fingerprint
from autarky.phases import forget, members
from autarky.phases.borrow import ROOTS
from autarky.phases.context import Context
from autarky.phases.etcd_pods import static_pods
from autarky.phases.hosts import FOUNDED
from autarky.phases.recovery.making import MakeData
from autarky.phases.recovery.starting import note_recovery
from autarky.phases.recovery.state import Found, Recovery, on_host
from autarky.phases.recovery.versions import seat_pod
from autarky.phases.trusted import Trusted, trust_only
from autarky.ports import SHORT, Progress
from autarky.render import access
from autarky.render import node as render_node
from autarky.render.crds import API_VERSION
from autarky.store import write_private

BACKUP = "the backup"
"""Where a record of the cluster file comes from, beside hosts and the API."""
BEGUN = f"{places.HOST_STATE}/etcd-begun.json"
"""On the control node where etcd began with a backup: which data that was."""
ON_NEW_MACHINES = "a backup is recovered on new machines"


def begun_with(former: int, revision: int) -> File:
    """former: the id of the backup's etcd. It has no other data of that revision."""
    content = {"cluster": f"{former:x}", "revision": revision}
    return File(BEGUN, json.dumps(content).encode() + b"\n", 0o600)


async def refuse_existing(context: Context, begun: File) -> None:
    """If there is a cluster on these machines, running or not, that was not begun with this data."""
    nodes = context.present(context.cluster.control_nodes)
    hosts = [host for node in nodes if (host := context.machines.host(node.name)) is not None]
    if any([await host.read(BEGUN, most=SHORT) == begun.content for host in hosts]):
        return
    remember = [node.name for node in nodes if context.memories.get(node.name, Memory()).founded]
    if remember:
        raise Refused(
            ON_NEW_MACHINES,
            f"etcd of this cluster is on {', '.join(remember)} already, and was not begun with this backup",
            "`autarky restore FILE` puts a backup into a cluster that is there; or reset these machines",
        )
    if await context.api_answers():
        raise Refused(
            ON_NEW_MACHINES,
            "an API of this cluster answers at the addresses in the file",
            "`autarky restore FILE` puts a backup into a cluster that runs, and `autarky up` finishes a recovery whose"
            " first machine is off",
        )


@dataclass(frozen=True, slots=True)
class TakeRoots:
    """The backup's CAs and service account key, into the cluster's directory here. files: by their names there. record:
    of the cluster file, which the restored API has as well: what is written now counts as newer. begun: what the first
    control node has noted, where this is resumed."""

    files: Mapping[str, bytes]
    record: Record
    begun: File
    name: str = "take-roots"
    title: str = "Take the CAs from the backup"
    timeout: float = 30

    async def plan(self, context: Context) -> Sequence[Change]:
        ours, theirs = context.pki.fingerprint(), fingerprint(self.files.get("ca.crt"))
        if ours not in (None, theirs):
            raise UserError(
                f"{context.directory} has another cluster named {context.cluster.name}",
                fix="set XDG_STATE_HOME to another directory, or move that one away",
            )
        lacking = [name for name in ("ca.crt", "ca.key", "sa.key") if name not in self.files]
        if lacking:
            raise UserError(f"the backup lacks {', '.join(lacking)}", fix="use another backup")
        await refuse_existing(context, self.begun)
        context.records[BACKUP] = self.record
        context.unlisted = ()  # what this machine, or the API, still knows of old machines
        return [Change(f"write {context.pki.directory / name}") for name in self._missing(context)]

    async def run(self, context: Context, progress: Progress) -> None:
        """The certificate of a CA after its key: with it alone, somebody else would be asked to sign."""
        for name in sorted(self._missing(context), key=lambda one: (one.endswith(".crt"), one == "ca.crt")):
            write_private(context.pki.directory / name, self.files[name])

    def _missing(self, context: Context) -> list[str]:
        return [name for name in ROOTS if name in self.files and not (context.pki.directory / name).exists()]


@dataclass(frozen=True, slots=True)
class RefuseLiving:
    """If the old cluster still runs, where the backup says that it was: for everybody who has credentials, two clusters
    with the same keys would be one."""

    record: Record
    name: str = "refuse-living"
    title: str = "Ask whether the old cluster still runs"
    timeout: float = 60
    needs: tuple[str, ...] = ("issue-certificates",)

    async def plan(self, context: Context) -> Sequence[Change]:
        ours = {node.address for node in context.cluster.nodes}
        addresses = [node.address for node in _control_nodes(self.record) if node.address not in ours]
        if not addresses or not context.pki.complete("super-admin"):
            return []
        kube = context.connect([f"https://{address}:{ports.NLLB_API}" for address in addresses], "super-admin")
        try:
            answers = await kube.healthy("/readyz") is None
        finally:
            await kube.close()
        if answers:
            raise Refused(
                ON_NEW_MACHINES,
                f"the API of the old cluster answers, at one of {', '.join(sorted(map(str, addresses)))}",
                "power its machines off permanently; `autarky restore FILE` puts a backup into a cluster that runs",
            )
        return []

    async def run(self, context: Context, progress: Progress) -> None:
        """It has no changes to make."""


def _control_nodes(record: Record) -> list[Node]:
    try:
        return [node for node in members.nodes_of(record.nodes).values() if node.control_plane]
    except (ValueError, KeyError, TypeError):
        return []


@dataclass(frozen=True, slots=True)
class BeginEtcd:
    """On the first control node. What the host notes last makes it the initial member of an existing cluster."""

    recovery: Recovery
    begun: File
    name: str = "begin-etcd"
    title: str = "Begin etcd with the data of the backup"
    timeout: float = 3 * 3600
    needs: tuple[str, ...] = ("prepare-hosts",)

    async def plan(self, context: Context) -> Sequence[Change]:
        if context.founded:
            return []
        return [Change(f"begin etcd on {context.first.name}, {self.recovery.made_of}")]

    async def run(self, context: Context, progress: Progress) -> None:
        node, recovery = context.first, self.recovery
        host = context.host(node)
        recovery.seat, recovery.found = node.name, {node.name: Found(node.name, node.known_address())}
        await host.remove(list(await static_pods(host)))
        await MakeData(recovery).run(context, progress)
        kept = f"kept.{datetime.now(UTC):%Y%m%dT%H%M%SZ}"  # also by a run of this that was cut
        await on_host(host, ["place", places.ETCD_DATA, recovery.work, kept], timeout=60)
        pod = etcd.founded_again(
            await seat_pod(context, recovery, node),
            node.name,
            node.known_address(),
            recovery.token(context.cluster.name),
        )
        await host.write_files([self.begun, render_node.manifest(pod)])
        await host.run(["rm", "-rf", recovery.work], timeout=60)
        await host.write_files([File(FOUNDED, b"")])
        context.memories[node.name] = Memory(frozenset({node.name}), founded=True)


@dataclass(frozen=True, slots=True)
class ForgetOldMachines:
    """former: the id of the backup's etcd."""

    recovery: Recovery
    former: int
    name: str = "forget-old-machines"
    title: str = "Forget the old machines"
    timeout: float = 600
    needs: tuple[str, ...] = ("start-control-plane",)

    async def plan(self, context: Context) -> Sequence[Change]:
        if not await context.api_answers():
            return [Change("forget the machines that the backup names")]
        if await self._is_noted(context):
            return []  # since then nodes have joined, and one of them may be silent now
        names = [f"forget the old machine {name}" for name in await self._old(context)]
        moved = [f"delete EtcdMember {name}, which has another address" for name in await _moved(context)]
        lists = [
            "trust the nodes of the file, and no credential of any machine",
            "note in etcd which cluster it replaces",
        ]
        return [Change(sentence) for sentence in (*lists[:1], *names, *moved, *lists[1:])]

    async def run(self, context: Context, progress: Progress) -> None:
        kube, host = context.kube(), context.host(context.first)
        await self._trust_new_machines(context, progress)
        for name in await self._old(context):
            await forget.forget_objects(kube, name)
            progress.note(f"the old machine {name} is forgotten: its kubelet can renew and create nothing")
        for name in await _moved(context):
            await kube.delete(API_VERSION, etcd_members.KIND, name)
        await note_recovery(host, {self.former}, self.recovery.made_of)

    async def _trust_new_machines(self, context: Context, progress: Progress) -> None:
        """Before anything of the old ones is deleted. No machine has joined yet, so that nobody has a credential."""
        entries = access.inventory(context.complete)["data"]
        wanted = Trusted(entries, dict.fromkeys(entries, NO_CREDENTIAL))

        async def written() -> None:
            await trust_only(context.kube(), wanted)

        what = "the new machines are the members of the cluster"
        await poll_until(what, written, timeout=patience.WRITTEN, progress=progress, clock=context.clock)

    async def _old(self, context: Context) -> list[str]:
        """Those of which no new machine has registered yet: a kubelet keeps its kubeconfig from then on."""
        found = []
        known = {node.name: node for node in context.cluster.nodes}
        for obj in await context.kube().list("v1", "Node"):
            name = obj["metadata"]["name"]
            host = context.machines.host(name) if name in known and name not in context.absent else None
            if host is None or await host.read(kubelet_credentials.KUBELET_KUBECONFIG) is None:
                found.append(name)
        return sorted(found)

    async def _is_noted(self, context: Context) -> bool:
        return self.former in former_of(await EtcdTools(context.host(context.first)).value(FORMER))


async def _moved(context: Context) -> list[str]:
    """EtcdMembers of nodes whose address is another one now. They cannot be changed, and stop nothing."""
    addresses = {node.name: node.address for node in context.cluster.nodes}
    found = await context.kube().list(API_VERSION, etcd_members.KIND)
    return sorted(
        obj["metadata"]["name"] for obj in found if obj["spec"]["address"] != addresses.get(obj["metadata"]["name"])
    )
