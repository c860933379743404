"""Looking before a recovery of etcd: what is left where, what is chosen, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from autarky import places
from autarky.control.etcd.decide.upkeep import NOSPACE
from autarky.engine.phase import Change, Warn
from autarky.errors import CommandFailed, Unreachable, UserError
from autarky.model.cluster import Node
from autarky.phases.context import Context, for_each
from autarky.phases.etcd_pods import static_pods
from autarky.phases.hosts import observe, refuse_foreign_hosts
from autarky.phases.labelled import find_labelled
from autarky.phases.migration.looking import THROUGH_BALANCER, dialled
from autarky.phases.migration.marking import refuse_under_way
from autarky.phases.recovery.choosing import choose_member, names_of, refuse_full_disk, refuse_unreadable
from autarky.phases.recovery.reading import with_data
from autarky.phases.recovery.resuming import made_of, refuse_quorum, resume
from autarky.phases.recovery.serving import Quorum, ask_everywhere, refuse_unfenced
from autarky.phases.recovery.state import (
    Found,
    FromKept,
    FromSnapshot,
    Recovered,
    Recovery,
    fence_on,
    first_revision,
    nodes_of,
    on_host,
    stamp,
)
from autarky.phases.recovery.undoing import what_was_kept
from autarky.ports import SHORT, Host, Progress


@dataclass(frozen=True, slots=True)
class LookForData:
    """Ask all control nodes, choose the source and the seat, and refuse what would do harm. It only looks."""

    recovery: Recovery
    name: str = "look-for-data"
    title: str = "Look at etcd on all control nodes"
    timeout: float = 600

    async def plan(self, context: Context) -> Sequence[Change | Warn]:
        recovery = self.recovery
        there, trusted, sentences = await look_at_hosts(context, recovery)
        await refuse_under_way(context)
        serving = await ask_everywhere(context, recovery)
        recovery.replaced = serving.former
        sentences += resume(recovery, trusted, serving)
        if not recovery.placed:
            refuse_unfenced(context, recovery, serving)
        if recovery.made:
            return [Warn(sentence) for sentence in sentences]
        sentences += await self._choose(context, serving.quorum)
        silent = sorted(name for name in context.absent if context.cluster.node(name).control_plane)
        sentences += [
            f"{name} does not answer ({context.absent[name]}): it must not run etcd while this goes on, and joins the"
            " new etcd when it is back"
            for name in silent
        ]
        sentences += [
            f"{node.name} is in the cluster and not in its file: it must not run etcd while this goes on"
            for node in context.unlisted
            if node.control_plane
        ]
        sentences += [
            f"{one.name} has nothing of this cluster on it" for one in there if one.name not in recovery.found
        ]
        return [Warn(sentence) for sentence in sentences]

    async def run(self, context: Context, progress: Progress) -> None:
        """It has no changes to make."""

    async def _choose(self, context: Context, asked: Quorum | None) -> list[str]:
        recovery, source = self.recovery, self.recovery.source
        recovery.current = None if asked is None else asked.revision
        if isinstance(source, FromKept):
            return [await what_was_kept(context, recovery, source)]
        if isinstance(source, FromSnapshot):
            recovery.seat = _seat_for(context, recovery, source, asked)
            refuse_full_disk(recovery.found[recovery.seat], 2 * source.size)
            recovery.made_of = made_of(source)
            first_revision(recovery, source.revision)
            return [*_about_undo(recovery), *_about_alarms(source)]
        if asked is not None:
            refuse_quorum(context, recovery, asked)
        lost = choose_member(recovery, source)
        sentences = [] if lost is None else [f"{lost[1]} has {lost[0]:,} newer entries, which will be lost"]
        if old := recovery.found[recovery.seat].aside:
            sentences.append(f"{recovery.seat}: {old}, is taken: what was written since is lost. A backup may be newer")
        return sentences


def _about_undo(recovery: Recovery) -> list[str]:
    """It takes what the seat has kept, and nothing that is elsewhere."""
    if recovery.found[recovery.seat].in_place:
        return []
    members = [one.node for one in recovery.found.values() if one.in_place]
    go_on = f": name a member's node, with --on {' or '.join(sorted(members))}" if members else ""
    return [f"{recovery.seat} has no data of etcd to keep, and so this restore cannot be taken back{go_on}"]


def _about_alarms(source: FromSnapshot) -> list[str]:
    if not source.alarms:
        return []
    what = f"{source.name} is of an etcd that took no writes (alarm {', '.join(source.alarms)}): the new one takes them"
    if NOSPACE not in source.alarms:
        return [what]
    go_on = "if it is full all the same, delete objects, and raise the quota: spec.etcd.quotaBytes of the ControlPlane"
    return [f"{what} while there is room. Without the history of the old one there is more; {go_on}"]


def _seat_for(context: Context, recovery: Recovery, source: FromSnapshot, asked: Quorum | None) -> str:
    """As asked; else where the same was begun before, or the leader is; else the first one whose disk can be read, and
    which has data to keep. Those that the snapshot knows go first: the agent beside etcd's only member lets the others
    join, and the API that comes back serves no agent of a node that it does not know."""
    refuse_unreadable(recovery, source.node)
    usable = [node.name for node in nodes_of(context, recovery) if not recovery.found[node.name].unreadable]
    usable.sort(key=lambda name: not recovery.found[name].in_place)
    likely = [None if asked is None else asked.leader, *usable]
    likely = [recovery.seat, *(one for one in likely if one in source.members), *likely]
    seat = source.node or next((one for one in likely if one in usable), None)
    if seat is None:
        refuse_unreadable(recovery, min(recovery.found))
    if seat not in recovery.found:
        raise UserError(f"{seat} is no control node that answers", fix=f"name one of {names_of(recovery.found)}")
    return seat


async def look_at_hosts(context: Context, recovery: Recovery) -> tuple[list[Node], Set[str], list[str]]:
    """Fills `recovery.found`. (Control nodes whose hosts answer; whose word on a recovery counts: control nodes of the
    file, and whom a person has named; what is to be said of the others.)"""
    await observe(context)
    await refuse_foreign_hosts(context, leave_out_workers=True)
    if context.cluster.external_etcd is not None:
        raise UserError("etcd of this cluster is external", fix="recover it where it runs")
    named = frozenset(filter(None, [getattr(recovery.source, "node", None)]))
    disbelieved = await find_labelled(context, api=False, named=named)
    there = [node for node in context.present(context.control_nodes) if context.machines.host(node.name) is not None]
    nodes = [node for node in there if node.name in context.owners]
    await _refuse_outside(context, nodes)
    sentences = [_disbelieved(name) for name in disbelieved]
    if not nodes:
        raise Unreachable("; ".join(["no control node's host answers", *sentences]))
    recovery.found = await for_each(nodes, lambda node: _found(context, node))
    recovery.begun = recovery.begun or stamp(context.clock.time())
    sentences += [
        f"{one.node}: its data cannot be read, and what only that has will be lost ({one.unreadable})"
        for one in recovery.found.values()
        if one.unreadable
    ]
    return there, {node.name for node in context.cluster.control_nodes} | named, sentences


async def _refuse_outside(context: Context, nodes: Sequence[Node]) -> None:
    """A file that was never applied may have etcd inside: of data that is made there no API server would know."""
    try:
        used = [await dialled(context.host(node)) for node in nodes]
    except CommandFailed:
        return  # containerd does not run, or there is no standby: it is not known
    if nodes and all(one and THROUGH_BALANCER not in one for one in used):
        raise UserError(
            f"the API servers use an etcd outside of the cluster, at {', '.join(sorted(set().union(*used)))}, whatever"
            " the file says",
            fix="recover it where it runs, and see `autarky etcd migrate`",
        )


def _disbelieved(name: str) -> str:
    return (
        f"{name} says that it is a control node, and no control node of the cluster file that answers knows it as one:"
        " it is left out, unless you name it"
    )


# --- one host ------------------------------------------------------------------------------------------


async def _found(context: Context, node: Node) -> Found:
    try:
        return await _seen_on(context.host(node), node)
    except CommandFailed as error:  # whether a recovery has fenced it must be known
        fix = f"power {node.name} off, and run the same command again"
        raise UserError(f"{node.name} cannot be looked at: {error}", fix=fix) from error


async def _seen_on(host: Host, node: Node) -> Found:
    made, placed = await _made(host)
    found = Found(
        node=node.name,
        address=node.known_address(),
        fence=await fence_on(host, placed),
        has_pod=bool(await static_pods(host)) or await host.read(places.ETCD_FENCED) is not None,
        made=made,
        placed=placed,
        recovered=Recovered.read(await host.read(places.ETCD_RECOVERED, most=SHORT)),
    )
    return await with_data(host, found)


async def _made(host: Host) -> tuple[frozenset[str], frozenset[str]]:
    """(the recoveries whose data is complete on this host, those of them whose data is in its place)."""
    lines = [line.split() for line in await on_host(host, ["made", places.ETCD_DATA])]
    return frozenset(words[1] for words in lines), frozenset(words[1] for words in lines if words[0] == "placed")
