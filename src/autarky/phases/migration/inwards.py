"""From an etcd outside of the cluster to members on the control nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autarky import places
from autarky.control.etcd.manifests import pods as etcd
from autarky.engine.phase import Change
from autarky.errors import Refused, Unreachable
from autarky.etcd.members import Member
from autarky.etcd.tools import EtcdTools, Place
from autarky.model import patience
from autarky.model.cluster import Node
from autarky.model.etcd_members import peer_url
from autarky.phases.context import Context, for_each
from autarky.phases.etcd_joining import JOIN_SECONDS, admitted, beside, cluster_of, promoted, wait
from autarky.phases.etcd_pods import static_pods
from autarky.phases.external_etcd import is_active
from autarky.phases.migration import peering
from autarky.phases.migration.leaving import Ways, await_end, hand_over, kept, remove_members
from autarky.phases.migration.looking import (
    ROLL_SECONDS,
    THROUGH_BALANCER,
    Migration,
    anyhow,
    await_rollout,
    inside,
    on_nodes,
    why_silent,
)
from autarky.phases.recovery.reading import identity_of
from autarky.phases.recovery.state import on_host
from autarky.ports import Host, Progress
from autarky.render import node as render_node

PEERS_TRUST = "a member joins only where the others accept it"


@dataclass(frozen=True, slots=True)
class JoinInside:
    """All control nodes become members (`judging` refuses others than those that created the cluster). At the end each
    reaches etcd through its own load balancer."""

    migration: Migration
    name: str = "join-inside"
    title: str = "Let the control nodes join etcd"
    timeout: float = patience.most(*[JOIN_SECONDS] * 4)
    needs: tuple[str, ...] = ("issue-certificates",)

    async def plan(self, context: Context) -> Sequence[Change]:
        voters = {node.name for node in (await _voting(context)).values()}
        nodes = context.cluster.initial_members
        joining = [Change(f"make {node.name} a member of etcd") for node in nodes if node.name not in voters]
        balanced = {node.name: await _not_balanced(context, node) is None for node in nodes if node.name in voters}
        return joining + [
            Change(f"wait until the load balancer of {name} leads to etcd") for name, yes in balanced.items() if not yes
        ]

    async def run(self, context: Context, progress: Progress) -> None:
        peering.refuse_unfit(context, self.migration.peers)
        voters = {node.name for node in (await _voting(context)).values()}
        for node in context.cluster.initial_members:
            # The certificate of one that votes is not exchanged: with a wrong one it would be alone.
            peers = None if node.name in voters else self.migration.peers
            await peering.prepare(context, node, peers)
        for node in context.cluster.initial_members:
            await self._join(context, node, progress)
        await for_each(context.cluster.initial_members, lambda node: _await_balancer(context, node, progress))

    async def _join(self, context: Context, node: Node, progress: Progress) -> None:
        tools, host = await anyhow(context), context.host(node)
        peer = peer_url(node.known_address())
        before = (await tools.membership()).members
        if not any(peer in one.peer_urls for one in before):
            await _refuse_strangers(host, beside(before, node.name, node.known_address()))
        member = await admitted(context, tools, node.name, peer, progress)
        if not member.is_learner:
            return
        await self._start(context, node, member, (await tools.membership()).members)
        await promoted(context, tools, node.name, member, progress)
        progress.note(f"{node.name} is a member of etcd")

    async def _start(self, context: Context, node: Node, member: Member, others: Sequence[Member]) -> None:
        """What is there of a former member is moved aside, once its process has ended."""
        host = context.host(node)
        identity = await identity_of(host, places.ETCD_DATA)
        if identity is None or identity.member != member.id:
            await host.remove(list(await static_pods(host)))
            await await_end(host)
            await on_host(host, ["aside", places.ETCD_DATA, f"{places.ETCD_DATA}/{kept()}"])
            await peering.trust(host)
        if await static_pods(host):
            return
        founding = etcd.Founding(cluster_of(others, node.name, node.known_address()), "existing")
        await host.write_files([render_node.manifest(etcd.member_pod(context.inputs(), node, founding))])


async def _voting(context: Context) -> dict[int, Node]:
    tools = await anyhow(context)
    membership = await tools.membership()
    voters = {one.id for one in membership.members if not one.is_learner}
    return {id_: node for id_, node in on_nodes(context, membership).items() if id_ in voters}


async def _refuse_strangers(host: Host, members: Sequence[Member]) -> None:
    """Refused where a member does not accept our certificate as that of a peer, or we do not accept its. Once such a
    learner is admitted, it never comes into sync."""
    peers = Place(ca=await peering.trusted(host), certificate="peer.crt", key="peer.key")
    for url in (url for one in members for url in one.peer_urls):
        said = await EtcdTools(host, place=peers).greets(url)
        if said is not None:
            raise Refused(
                PEERS_TRUST,
                f"the member of etcd at {url} and {host.name} do not trust each other's certificates: {said}",
                "give a certificate of that etcd's CA for the addresses of the control nodes (--peer-cert, --peer-key,"
                " --peer-ca), and run it again",
            )


async def _await_balancer(context: Context, node: Node, progress: Progress) -> None:
    """The node's agent makes it lead to the members once it knows them."""
    what = f"the load balancer of {node.name} leads to etcd"
    await wait(context, what, lambda: _not_balanced(context, node), progress)


async def _not_balanced(context: Context, node: Node) -> str | None:
    return await why_silent(EtcdTools(context.host(node), place=Place(THROUGH_BALANCER)))


@dataclass(frozen=True, slots=True)
class LeaveOutside:
    """Last: the members that are on no node, once no API server dials them."""

    migration: Migration
    name: str = "leave-outside"
    title: str = "Let the members outside of the cluster leave etcd"
    timeout: float = patience.most(ROLL_SECONDS, JOIN_SECONDS)
    needs: tuple[str, ...] = ("join-inside",)

    async def plan(self, context: Context) -> Sequence[Change]:
        host = self.migration.outside()
        ends = [Change(f"stop etcd on {host.name}")] if host is not None and await is_active(host) else []
        leaving = [Change(f"remove {one.name} from etcd") for one in await _outside(context)]
        borrowed = [node for node in context.cluster.initial_members if await peering.is_borrowed(context, node)]
        return [*leaving, *(Change(f"give the member on {node.name} its own certificate") for node in borrowed), *ends]

    async def run(self, context: Context, progress: Progress) -> None:
        leaving = await _outside(context)
        if leaving:
            await await_rollout(context, [THROUGH_BALANCER], progress)
            tools = await inside(context)
            if tools is None:
                raise Unreachable("no member of etcd on a control node answers; run the same command again")
            ways = Ways(
                tools, [url for one in leaving for url in one.client_urls], await peering.borrowed_tools(context)
            )
            await hand_over(context, ways, leaving, progress)
            await remove_members(context, ways, leaving, progress)
        await peering.give_back(context)
        host = self.migration.outside()
        if host is not None:
            await host.run(["systemctl", "disable", "--now", "etcd"], timeout=60, check=False)
            progress.note(f"etcd on {host.name} has ended; its data is still there")


async def _outside(context: Context) -> list[Member]:
    membership = await (await anyhow(context)).membership()
    nodes = on_nodes(context, membership)
    return [one for one in membership.members if one.id not in nodes]
