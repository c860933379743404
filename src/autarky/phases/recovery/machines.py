"""A cluster on new machines, from a backup: its CAs and service account key, its etcd, and nothing of the old machines.

Contract: like the first `up` of a new cluster, with two differences: the roots are the backup's, so that everybody's
credentials stay valid; and etcd begins on one control node with the backup's data. All other nodes join that cluster,
control nodes by their label. What the data says of machines that are gone is forgotten before anything joins: their
Nodes, their places in the join inventory (without which a kubelet's certificate creates and renews nothing), their
EtcdMembers, their pods. Killed anywhere, the same command resumes: what has been done is on the hosts.

Danger: an old machine that comes back has everything that it ever had, the CA keys included. It must be wiped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autarky import places
from autarky.control.cluster_file.decide.records import Record
from autarky.control.control_nodes.decide.initial import Memory
from autarky.control.etcd.decide.lineage import FORMER, former_of
from autarky.control.etcd.manifests import members
from autarky.control.etcd.manifests import pods as etcd
from autarky.engine.phase import Change
from autarky.errors import UserError
from autarky.etcd.tools import EtcdTools
from autarky.model.files import File
from autarky.model.fingerprint import fingerprint
from autarky.phases import forget
from autarky.phases.borrow import ROOTS
from autarky.phases.context import Context
from autarky.phases.etcd_pods import static_pods
from autarky.phases.hosts import FOUNDED
from autarky.phases.recovery.making import MakeData
from autarky.phases.recovery.starting import note_recovery
from autarky.phases.recovery.state import Found, Recovery, on_host
from autarky.ports import Progress
from autarky.render import node as render_node
from autarky.render.crds import API_VERSION
from autarky.store import write_private

BACKUP = "the backup"
"""Where a record of the cluster file comes from, beside hosts and the API."""


@dataclass(frozen=True, slots=True)
class TakeRoots:
    """The backup's CAs and service account key, into the cluster's directory here. files: by their names there. record:
    of the cluster file, which the restored API has as well: what is written now counts as newer."""

    files: Mapping[str, bytes]
    record: Record
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
        context.records[BACKUP] = self.record
        return [Change(f"write {context.pki.directory / name}") for name in self._missing(context)]

    async def run(self, context: Context, progress: Progress) -> None:
        """The certificate of a CA after its key: with it alone, somebody else would be asked to sign."""
        for name in sorted(self._missing(context), key=lambda one: (one.endswith(".crt"), one == "ca.crt")):
            write_private(context.pki.directory / name, self.files[name])

    def _missing(self, context: Context) -> list[str]:
        return [name for name in ROOTS if name in self.files and not (context.pki.directory / name).exists()]


@dataclass(frozen=True, slots=True)
class BeginEtcd:
    """On the first control node. What the host notes last makes it the initial member of an existing cluster."""

    recovery: Recovery
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
        await on_host(host, ["place", places.ETCD_DATA, recovery.work, "kept.before-recovery"], timeout=60)
        pod = etcd.founded_again(
            etcd.member_pod(context.inputs(), node),
            node.name,
            node.known_address(),
            recovery.token(context.cluster.name),
        )
        await host.write_files([render_node.manifest(pod), File(FOUNDED, b"")])
        await host.run(["rm", "-rf", recovery.work], timeout=60)
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
        names = [f"forget the old machine {name}" for name in await self._old(context)]
        moved = [f"delete EtcdMember {name}, which has another address" for name in await _moved(context)]
        noted = [] if await self._is_noted(context) else ["note in etcd which cluster it replaces"]
        return [Change(sentence) for sentence in (*names, *moved, *noted)]

    async def run(self, context: Context, progress: Progress) -> None:
        kube, host = context.kube(), context.host(context.first)
        for name in await self._old(context):
            await forget.forget(kube, name)
            progress.note(f"the old machine {name} is forgotten: its kubelet can renew and create nothing")
        for name in await _moved(context):
            await kube.delete(API_VERSION, members.KIND, name)
        await note_recovery(host, frozenset({self.former}), "", self.recovery.made_of)

    async def _old(self, context: Context) -> list[str]:
        """Those of which no new machine has registered yet: a kubelet keeps its kubeconfig from then on."""
        found = []
        known = {node.name: node for node in context.cluster.nodes}
        for obj in await context.kube().list("v1", "Node"):
            name = obj["metadata"]["name"]
            host = context.machines.host(name) if name in known and name not in context.absent else None
            if host is None or await host.read(render_node.KUBELET_KUBECONFIG) is None:
                found.append(name)
        return sorted(found)

    async def _is_noted(self, context: Context) -> bool:
        return self.former in former_of(await EtcdTools(context.host(context.first)).value(FORMER))


async def _moved(context: Context) -> list[str]:
    """EtcdMembers of nodes whose address is another one now. They cannot be changed, and stop nothing."""
    addresses = {node.name: node.address for node in context.cluster.nodes}
    found = await context.kube().list(API_VERSION, members.KIND)
    return sorted(
        obj["metadata"]["name"] for obj in found if obj["spec"]["address"] != addresses.get(obj["metadata"]["name"])
    )
