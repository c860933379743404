"""From members on the control nodes to an etcd outside of the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autarky import places
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.etcd.manifests.members import KIND
from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.engine.phase import Change
from autarky.errors import ApiError, Unreachable, UserError
from autarky.etcd.members import Member
from autarky.etcd.tools import EtcdTools, Place
from autarky.model import patience
from autarky.model.cluster import ExternalEtcd, Node
from autarky.model.etcd_members import peer_url
from autarky.model.files import File
from autarky.phases import balancer
from autarky.phases.context import Context
from autarky.phases.etcd_joining import JOIN_SECONDS, admitted, cluster_of, promoted
from autarky.phases.etcd_pods import static_pods
from autarky.phases.external_etcd import install, put_unit
from autarky.phases.migration import peering
from autarky.phases.migration.leaving import Ways, await_end, hand_over, kept, remove_members
from autarky.phases.migration.looking import (
    ROLL_SECONDS,
    anyhow,
    await_rollout,
    by_standby,
    inside,
    on_nodes,
    serves_at,
)
from autarky.phases.recovery.reading import identity_of
from autarky.ports import Host, Progress
from autarky.render import node as render_node
from autarky.render.crds import API_VERSION

_SCRATCH = f"{places.RUN}/etcd-outside"
# DIRECTORY NAME: to a directory of that name in it, which may be a mount.
_ASIDE = """\
[ -d "$1/member" ] || exit 0
install -d -m 700 "$1/$2" && mv -T "$1/member" "$1/$2/member" && sync "$1/$2" "$1"
"""


@dataclass(frozen=True, slots=True)
class JoinOutside:
    """A test host's etcd joins; members of an etcd of the user's must be there already, and have their vote here."""

    name: str = "join-outside"
    title: str = "Let the etcd outside of the cluster join"
    timeout: float = patience.most(*[JOIN_SECONDS] * 2)
    needs: tuple[str, ...] = ("issue-certificates",)

    async def plan(self, context: Context) -> Sequence[Change]:
        external, node = _external(context), context.cluster.etcd_host
        members = (await (await anyhow(context)).membership()).members
        if node is not None:
            voter = node.address is not None and any(serves_at(one, external.endpoints) for one in _voters(members))
            return [] if voter else [Change(f"make {node.name}, outside of the cluster, a member of etcd")]
        _refuse_missing(external, members)
        learners = [one for one in members if one.is_learner and serves_at(one, external.endpoints)]
        return [Change(f"give {one.name} its vote in etcd") for one in learners]

    async def run(self, context: Context, progress: Progress) -> None:
        external, node = _external(context), context.cluster.etcd_host
        tools = await anyhow(context)
        if node is not None:
            await self._start(context, node, tools, progress)
            return
        members = (await tools.membership()).members
        _refuse_missing(external, members)
        await _refuse_unusable(context, external)
        for one in members:
            if one.is_learner and serves_at(one, external.endpoints):
                await promoted(context, tools, one.name, one, progress)

    async def _start(self, context: Context, node: Node, tools: EtcdTools, progress: Progress) -> None:
        host = context.machines.host(node.name)
        if host is None:
            raise UserError(f"test host {node.name} does not exist", fix="run the same command again")
        member = await admitted(context, tools, node.name, peer_url(node.known_address()), progress)
        if not member.name:
            await install(context, host, progress)
            identity = await identity_of(host, places.ETCD_DATA)
            if identity is None or identity.member != member.id:
                await host.run(["systemctl", "stop", "etcd"], timeout=60, check=False)
                await _move_aside(host)
            others = cluster_of((await tools.membership()).members, node.name, node.known_address())
            await put_unit(context, host, node, etcd.Founding(others, "existing"))
        if member.is_learner:
            await promoted(context, tools, node.name, member, progress)
            progress.note(f"{node.name} is a member of etcd")


def _external(context: Context) -> ExternalEtcd:
    assert context.cluster.external_etcd is not None  # noqa: S101 # the workflow has this phase only then
    return context.cluster.external_etcd


def _voters(members: Sequence[Member]) -> list[Member]:
    return [one for one in members if not one.is_learner]


def _refuse_missing(external: ExternalEtcd, members: Sequence[Member]) -> None:
    """A member elsewhere is for the user to start: etcd admits it, and its data comes from the others."""
    missing = [url for url in external.endpoints if not any(serves_at(one, [url]) for one in members)]
    if missing:
        raise UserError(
            f"{', '.join(missing)} is no member of this cluster's etcd, and what is there instead is not copied",
            where="spec.etcd.external.endpoints",
            fix="let it join first, as docs/etcd.md (Moving etcd) says, with an empty directory, and run this again",
        )


async def _refuse_unusable(context: Context, external: ExternalEtcd) -> None:
    """With the certificate that the API servers will have, from every control node."""
    credentials = context.inputs().credentials
    names = {
        "ca.crt": "etcd/ca.crt",
        "server.crt": "apiserver-etcd-client.crt",
        "server.key": "apiserver-etcd-client.key",
    }
    files = [File(f"{_SCRATCH}/{name}", credentials[source], 0o600) for name, source in names.items()]
    for node in context.control_nodes:
        host = context.host(node)
        try:
            await host.run(["install", "-d", "-m", "700", _SCRATCH])
            await host.write_files(files)
            tools = EtcdTools(host, place=Place(pki=_SCRATCH))
            said = {url: await tools.reaches(url) for url in external.endpoints}
        finally:
            await host.remove([file.path for file in files])
        wrong = [f"{url}: {why}" for url, why in said.items() if why is not None]
        if wrong:
            raise UserError(
                f"the etcd outside does not answer {node.name}: {'; '.join(wrong)}",
                where="spec.etcd.external",
                fix="make sure that the endpoints can be reached from the control nodes, that caFile signed their"
                " certificates, and that they accept certFile and keyFile",
            )


async def _move_aside(host: Host) -> None:
    await host.run(["sh", "-c", _ASIDE, "sh", places.ETCD_DATA, kept()], timeout=60)


@dataclass(frozen=True, slots=True)
class LeaveInside:
    """Last: the members on the control nodes, once no API server dials them."""

    name: str = "leave-inside"
    title: str = "Let the members on the control nodes leave etcd"
    timeout: float = patience.most(ROLL_SECONDS, JOIN_SECONDS)
    needs: tuple[str, ...] = ("join-outside",)

    async def plan(self, context: Context) -> Sequence[Change]:
        left = [node for node in context.present(context.control_nodes) if await _has_traces(context, node)]
        return [Change(f"remove the member of etcd on {node.name}; its data is kept") for node in left]

    async def run(self, context: Context, progress: Progress) -> None:
        await await_rollout(context, _external(context).endpoints, progress)
        tools = await by_standby(context)
        if tools is None:
            raise Unreachable("the etcd outside of the cluster does not answer; run the same command again")
        membership = await tools.membership()
        nodes = on_nodes(context, membership)
        leaving = [one for one in membership.members if one.id in nodes]
        # Those outside may have another CA for their clients, of which the members inside have no certificate.
        ways = Ways(tools, [url for one in leaving for url in one.client_urls], await inside(context))
        await hand_over(context, ways, leaving, progress)
        await remove_members(context, ways, leaving, progress)
        for node in context.present(context.control_nodes):
            await _clear(context, node)
            await _forget(context, node)
            progress.note(f"{node.name} has no member of etcd any more")


async def _has_traces(context: Context, node: Node) -> bool:
    """Of a member that is here, or was until a run was cut."""
    host = context.machines.host(node.name)
    if host is None:
        return False
    there = await host.read(nllb.ETCD_CLIENT_PATH) is not None or bool(await static_pods(host))
    return there or bool((await host.run(["ls", etcd.MEMBER_DIRECTORY], check=False)).text.split())


async def _forget(context: Context, node: Node) -> None:
    """Its EtcdMember, which stops no member (rule 10)."""
    try:
        await context.kube().delete(API_VERSION, KIND, node.name)
    except ApiError as error:
        if error.status != 404:  # it has never had one
            raise


async def _clear(context: Context, node: Node) -> None:
    """Its load balancer leads to etcd no more; the data of its member is moved aside, last, when that has ended."""
    host = context.host(node)
    pods = [places.ETCD_CHANGE, *await static_pods(host)]  # first what its agent would put a pod back for
    await host.remove([*pods, places.MEMBERS_FILE, nllb.ETCD_CLIENT_PATH, nllb.ETCD_CA_PATH, places.ETCD_CLUSTER])
    *_, plan = render_node.leaf_files(context.inputs(), node)
    await host.write_files([plan])
    current = await balancer.configured(host)
    if current is not None and current.etcd:
        await balancer.configure(host, replace(current, etcd=(), certificate=""))
    await await_end(host)
    await peering.forget(host)
    await _move_aside(host)
