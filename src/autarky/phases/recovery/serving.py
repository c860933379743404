"""Which etcd serves, asked of every address that anybody knows a member of: silence of one host says nothing (rule 2).

Contract: it only looks. Each control node that answers asks all of them, since one that this machine does not reach may
be reached from there: members in the lists of those that answer and in what their agents have noted, control nodes of
the cluster file, of the records of it, and those that are in the cluster and not in the file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from autarky import places
from autarky.control.cluster_file.decide.records import latest
from autarky.control.etcd.decide.lineage import FORMER, former_of
from autarky.control.etcd.decide.refusing import Answer, Voter, cannot_be_fenced
from autarky.errors import AutarkyError, Refused
from autarky.etcd.members import Member, Membership
from autarky.etcd.tools import SECOND_LOCAL, EtcdTools, Place
from autarky.model import ports
from autarky.model.cluster import Node
from autarky.model.etcd_members import client_url
from autarky.parsing import parsed
from autarky.phases import members
from autarky.phases.context import Context
from autarky.phases.recovery.state import Recovery, nodes_of
from autarky.ports import SHORT, Host

ONE_ETCD = "one etcd at a time"
Urls = Mapping[str, str]
"""Client URL → the name of the node, or the address."""


@dataclass(frozen=True, slots=True)
class Quorum:
    """What etcd says by one of its members. said_by: the node of that. leader: the node of its leader, if that
    answers to us. former: the ids of the clusters that it has replaced."""

    said_by: str
    cluster: int
    revision: int
    members: tuple[Member, ...]
    leader: str | None
    former: frozenset[int]

    @property
    def names(self) -> list[str]:
        return sorted(one.name for one in self.members)


@dataclass(frozen=True, slots=True)
class Serving:
    """answers: of every member that answers. quorums: one of each etcd that reads by its quorum."""

    answers: tuple[Answer, ...] = ()
    quorums: tuple[Quorum, ...] = ()

    @property
    def quorum(self) -> Quorum | None:
        return next(iter(self.quorums), None)

    @property
    def former(self) -> frozenset[int]:
        """As others than the cluster itself say: of itself that is nothing (`decide.lineage`)."""
        return frozenset[int]().union(*(one.former - {one.cluster} for one in self.quorums))

    @property
    def clusters(self) -> frozenset[int]:
        return frozenset(one.cluster for one in self.answers if one.reads)


async def ask_everywhere(context: Context, recovery: Recovery) -> Serving:
    """By all control nodes that were found; those of the file come first."""
    nodes = nodes_of(context, recovery)
    urls = {**_written_down(context), **await _said_by_hosts(context, nodes)}
    serving = await _ask_all(context, recovery, urls)
    more = {url: one.name for found in serving.quorums for one in found.members for url in one.client_urls}
    if more.keys() <= urls.keys():
        return serving
    return await _ask_all(context, recovery, {**urls, **more})


def refuse_unfenced(context: Context, recovery: Recovery, serving: Serving) -> None:
    """Where a member serves that this recovery could not stop."""
    hosts = {one.address for one in recovery.found.values()}
    lists = [_voters(one) for one in serving.quorums] or [[]]
    found = sorted({one for voters in lists for one in cannot_be_fenced(serving.answers, voters, hosts)})
    if not found:
        return
    in_file = {node.name for node in context.cluster.nodes}
    others = sorted(one for one in found if one.partition(" ")[0] not in in_file)
    why = f"; of these {', '.join(others)} cannot be found in the cluster file" if others else ""
    raise Refused(
        ONE_ETCD,
        f"etcd serves on {', '.join(found)}, whose host does not answer as one of this cluster's control nodes, so that"
        f" nothing could stop it there: with a new etcd beside it there would be two{why}",
        "make its host reachable" + (" and add it to the cluster file" if others else "") + ", or power it off",
    )


def _voters(quorum: Quorum) -> list[Voter]:
    return [Voter(one.name, address_in(one.peer_urls[0])) for one in quorum.members if not one.is_learner]


# --- addresses --------------------------------------------------------------------------------------------------------


def _written_down(context: Context) -> dict[str, str]:
    """By the cluster file, its records on hosts, and what this machine knows."""
    recorded: list[Node] = []
    for record in latest(context.records).values():
        try:
            recorded += members.nodes_of(record.nodes).values()
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    nodes = [*recorded, *context.unlisted, *context.cluster.nodes]
    control = [node for node in nodes if node.control_plane or node.name in context.labelled]
    return {client_url(node.address): node.name for node in control if node.address is not None}


async def _said_by_hosts(context: Context, nodes: Sequence[Node]) -> dict[str, str]:
    found = await asyncio.gather(*(_said_by(context.host(node)) for node in nodes))
    own = {client_url(node.known_address()): node.name for node in nodes}
    return {**{url: name for urls in found for url, name in urls.items()}, **own}


async def _said_by(host: Host) -> dict[str, str]:
    """By what its agent has noted, and by its own member."""
    found: dict[str, str] = {}
    with suppress(AutarkyError):
        found |= noted(await host.read(places.MEMBERS_FILE, most=SHORT))
    with suppress(AutarkyError):
        listed = (await EtcdTools(host).membership(by_quorum=False)).members
        found |= {url: one.name for one in listed for url in one.client_urls}
    return found


def noted(content: bytes | None) -> dict[str, str]:
    """In an agent's list. What cannot be understood is left out."""
    try:
        return {
            f"https://{one['address']}:{int(one.get('port', ports.ETCD_CLIENT))}": str(one["name"])
            for one in parsed(content or b"[]")
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def address_in(url: str) -> str:
    return url.partition("//")[2].rpartition(":")[0]


# --- answers ----------------------------------------------------------------------------------------------------------


async def _ask_all(context: Context, recovery: Recovery, urls: Urls) -> Serving:
    nodes = nodes_of(context, recovery)
    questions = [(node, url) for node in nodes for url in _with_local(node, urls)]
    said = await asyncio.gather(*(_ask(context, node, url, urls) for node, url in questions))
    answers: dict[str, Answer] = {}
    quorums: dict[int, Quorum] = {}
    for (node, url), (answer, revision) in zip(questions, said, strict=True):
        if answer is None:
            continue
        before = answers.get(answer.address, answer)
        leads, reads = answer.leads or before.leads, answer.reads or before.reads
        answers[answer.address] = replace(answer, leads=leads, reads=reads)
        if answer.reads and answer.cluster not in quorums:
            quorums[answer.cluster] = await _quorum(_tools(context, node, url), answer, revision, recovery)
    return Serving(tuple(answers.values()), tuple(quorums.values()))


def _with_local(node: Node, urls: Urls) -> list[str]:
    """Its own members are asked by the loopback address as well: it may have lost that of its network."""
    return list(dict.fromkeys([Place().local, SECOND_LOCAL, client_url(node.known_address()), *urls]))


def _tools(context: Context, node: Node, url: str) -> EtcdTools:
    return EtcdTools(context.host(node), place=Place(local=url))


async def _ask(context: Context, node: Node, url: str, urls: Urls) -> tuple[Answer | None, int]:
    """(None where nothing answers there, seen from that node; the revision, where it reads by its quorum)."""
    tools = _tools(context, node, url)
    address = node.known_address() if url in (Place().local, SECOND_LOCAL) else address_in(url)
    try:
        status = (await tools.statuses([url])).get(url)
    except AutarkyError:
        return None, 0
    if status is None:
        return None, 0
    answer = Answer(urls.get(client_url(address), "") or address, address, status.cluster, leads=status.leader != 0)
    try:
        return replace(answer, reads=True), await tools.revision()
    except AutarkyError:
        return answer, 0


async def _quorum(tools: EtcdTools, answer: Answer, revision: int, recovery: Recovery) -> Quorum:
    """What it does not say any more is empty: that it has a quorum counts all the same."""
    membership, former, leader = Membership(answer.cluster, ()), frozenset[int](), None
    with suppress(AutarkyError):
        membership = await tools.membership()
        former = former_of(await tools.value(FORMER))
        leader = await _leader(tools, membership, recovery)
    return Quorum(answer.name, answer.cluster, revision, membership.members, leader, former)


async def _leader(tools: EtcdTools, membership: Membership, recovery: Recovery) -> str | None:
    found = await leader_of(tools, membership)
    return found.name if found is not None and found.name in recovery.found else None


async def leader_of(tools: EtcdTools, membership: Membership) -> Member | None:
    """Of the latest term: a former one may not know yet that it leads no more."""
    statuses = await tools.statuses(url for one in membership.members for url in one.client_urls)
    newest = max(statuses.values(), key=lambda one: one.raft_term, default=None)
    return next((one for one in membership.members if newest is not None and one.id == newest.leader), None)
