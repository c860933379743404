"""Looking before a recovery of etcd: what is left where, what is chosen, and what is refused."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path

from autarky import places
from autarky.control.etcd.decide import recovery as decision
from autarky.control.slots import manifests as standby
from autarky.engine.phase import Change, Warn
from autarky.errors import CommandFailed, Refused, Unreachable, UserError
from autarky.etcd.data import Identity, identity_in
from autarky.etcd.log import End, end_of
from autarky.etcd.tools import EtcdTools
from autarky.model.cluster import Node
from autarky.phases.context import Context, for_each
from autarky.phases.etcd_pods import static_pods
from autarky.phases.hosts import observe, refuse_foreign_hosts
from autarky.phases.labelled import find_labelled
from autarky.phases.recovery.state import (
    Found,
    FromKept,
    FromMember,
    FromSnapshot,
    Recovered,
    Recovery,
    fence_on,
    first_revision,
    nodes_of,
    on_host,
)
from autarky.ports import SHORT, Host, Progress

ONLY_WITHOUT_QUORUM = "a new etcd is made from a member's data only when the old one is lost"
ROOM = "the old data is kept beside the new"
_LOG_SECONDS = 120.0
_SCRATCH = f"{places.HOST_ROOT}/scratch/recovery"
_SPARE = 256 * 1024 * 1024
"""Bytes that stay free: etcd's log takes 64 MB at a time."""


@dataclass(frozen=True, slots=True)
class LookForData:
    """Ask all control nodes, choose the source and the seat, and refuse what would do harm. It only looks."""

    recovery: Recovery
    name: str = "look-for-data"
    title: str = "Look at etcd on all control nodes"
    timeout: float = 600

    async def plan(self, context: Context) -> Sequence[Change | Warn]:
        recovery = self.recovery
        await observe(context)
        await refuse_foreign_hosts(context)
        if context.cluster.external_etcd is not None:
            raise UserError("etcd of this cluster is external", fix="recover it where it runs")
        named = frozenset(filter(None, [getattr(recovery.source, "node", None)]))
        disbelieved = await find_labelled(context, api=False, named=named)
        there = [
            node for node in context.present(context.control_nodes) if context.machines.host(node.name) is not None
        ]
        nodes = [node for node in there if node.name in context.owners]
        if not nodes:
            raise Unreachable("; ".join(["no control node's host answers", *map(_disbelieved, disbelieved)]))
        recovery.found = await for_each(nodes, lambda node: _found(context, node))
        in_file = {node.name for node in context.cluster.control_nodes}
        sentences = [*map(_disbelieved, disbelieved), *_resume(recovery, in_file | named)]
        if recovery.made:
            return [Warn(sentence) for sentence in (*sentences, *_resumed(recovery))]
        sentences += await self._choose(context)
        silent = sorted(name for name in context.absent if context.cluster.node(name).control_plane)
        sentences += [
            f"{name} does not answer ({context.absent[name]}): it must not run etcd while this goes on, and joins the"
            " new etcd when it is back"
            for name in silent
        ]
        sentences += [f"{node.name} has nothing of this cluster on it" for node in there if node not in nodes]
        return [Warn(sentence) for sentence in sentences]

    async def run(self, context: Context, progress: Progress) -> None:
        """It has no changes to make."""

    async def _choose(self, context: Context) -> list[str]:
        recovery, source = self.recovery, self.recovery.source
        asked = await _ask_quorum(context, recovery)
        recovery.current = None if asked is None else asked.revision
        if isinstance(source, FromKept):
            return [await _what_was_kept(context, recovery)]
        if isinstance(source, FromSnapshot):
            leader = None if asked is None else asked.leader
            recovery.seat = source.node or leader or nodes_of(context, recovery)[0].name
            if recovery.seat not in recovery.found:
                raise UserError(
                    f"{recovery.seat} is no control node that answers", fix=f"name one of {_names(recovery)}"
                )
            _refuse_full_disk(recovery.found[recovery.seat], 2 * source.size)
            recovery.made_of = _made_of(source)
            first_revision(recovery, source.revision)
            return []
        if asked is not None:
            fenced = ", ".join(sorted(one.node for one in recovery.found.values() if one.fence is not None))
            raise Refused(
                ONLY_WITHOUT_QUORUM,
                f"etcd has a quorum: {asked.node} lists {', '.join(asked.members)}",
                "see `autarky etcd status`; a member that is lost is replaced by `autarky node remove NODE --dead`"
                if not fenced
                else f"run `{standby.SCRIPT_PATH} release-etcd` on {fenced}: a recovery that was cut has left a fence",
            )
        choice = decision.choose(_logs(recovery), source.node)
        if choice.node is None:
            raise UserError(choice.sentence, fix=f"say --from NODE; hosts that answer: {_names(recovery)}")
        recovery.seat = choice.node
        _refuse_full_disk(recovery.found[choice.node], 2 * recovery.found[choice.node].size)
        recovery.made_of = f"made of the data of {choice.node} ({choice.sentence})"
        first_revision(recovery, 0)
        if choice.lost is None:
            return []
        return [f"{choice.lost[1]} has {choice.lost[0]:,} newer entries, which will be lost"]


def _names(recovery: Recovery) -> str:
    return ", ".join(sorted(recovery.found))


def _logs(recovery: Recovery) -> list[decision.Log]:
    return [
        decision.Log(
            one.node,
            one.identity.cluster,
            one.end.newest.term,
            one.end.newest.index,
            damaged=one.end.damaged > 0,
            lost=one.end.lost,
        )
        for one in recovery.found.values()
        if one.identity is not None and one.end is not None
    ]


def _resumed(recovery: Recovery) -> list[str]:
    found = [f"an interrupted recovery is resumed: the new etcd on {recovery.seat}, {recovery.made_of}"]
    source = recovery.source
    if isinstance(source, FromSnapshot) and recovery.made_of != _made_of(source):
        found.append(f"{source.name} is not restored by this run: give the command again when it has ended")
    return found


def _made_of(source: FromSnapshot) -> str:
    return f"made of {source.name}"


def _disbelieved(name: str) -> str:
    return (
        f"{name} says that it is a control node, and no control node of the cluster file that answers knows it as one:"
        " it is left out, unless you name it"
    )


def _resume(recovery: Recovery, trusted: Set[str]) -> list[str]:
    """Take over an interrupted recovery whose data is complete. One whose data is not begins again. trusted: control
    nodes of the file, and whom a person has named: what only others say of a recovery is not resumed. Returns what is
    to be said of that."""
    fences = {one.node: one.fence for one in recovery.found.values() if one.fence is not None}
    known = {fence.recovery for name, fence in fences.items() if name in trusted}
    others = sorted(name for name, fence in fences.items() if not {fence.seat, name} & trusted)
    others = [name for name in others if fences[name].recovery not in known]
    for fence in (fence for name, fence in sorted(fences.items(), key=lambda one: one[0] not in trusted)):
        seat = recovery.found.get(fence.seat)
        if seat is None or fence.recovery not in seat.made or not (fence.seat in trusted or fence.recovery in known):
            continue
        recovery.id, recovery.seat, recovery.made_of = fence.recovery, fence.seat, fence.made_of
        recovery.made, recovery.placed = True, fence.recovery in seat.placed
        return [_unknown_fence(name) for name in others]
    seats = {fence.seat for name, fence in fences.items() if name in trusted}
    away = sorted(seats - recovery.found.keys())
    named = isinstance(recovery.source, FromMember) and recovery.source.node is not None
    if away and not named:
        raise Refused(
            "one etcd at a time",
            f"an interrupted recovery may have made a new etcd on {', '.join(away)}, which does not answer",
            f"power it on and run the same command again; if it is lost for ever, say --from NODE ({_names(recovery)})",
        )
    return [_unknown_fence(name) for name in others]


def _unknown_fence(name: str) -> str:
    return f"{name} has the fence of a recovery that no control node of the cluster file knows: that one is not resumed"


@dataclass(frozen=True, slots=True)
class _Quorum:
    """What etcd says by the member of that node. leader: the node of its leader, if that answers to us."""

    node: str
    revision: int
    members: tuple[str, ...]
    leader: str | None


async def _ask_quorum(context: Context, recovery: Recovery) -> _Quorum | None:
    """None where no member that can be asked reaches one; control nodes of the file come first. All are asked at once:
    without one, each takes its time."""
    found = await for_each(nodes_of(context, recovery), lambda node: _ask(context.host(node), recovery))
    return next((one for one in found.values() if one is not None), None)


async def _ask(host: Host, recovery: Recovery) -> _Quorum | None:
    tools = EtcdTools(host)
    try:
        revision = await tools.revision()
        members = (await tools.membership()).members
        statuses = await tools.statuses(url for one in members for url in one.client_urls)
    except (CommandFailed, Unreachable):
        return None
    leads = {status.leader for status in statuses.values()}
    leader = next((one.name for one in members if one.id in leads and one.name in recovery.found), None)
    return _Quorum(host.name, revision, tuple(sorted(one.name for one in members)), leader)


async def _what_was_kept(context: Context, recovery: Recovery) -> str:
    """Of the recovery that made the etcd which runs now: its seat has that cluster's data."""
    for one in recovery.found.values():
        recovered = one.recovered
        if (
            recovered is None
            or not recovered.kept
            or one.identity is None
            or f"{one.identity.cluster:x}" != recovered.cluster
        ):
            continue
        recovery.seat, recovery.data = one.node, recovered.kept
        recovery.made_of = f"made of what was there before {recovered.at}"
        first_revision(recovery, 0)
        host = context.host(context.cluster.node(one.node))
        sizes, files = await log_files(host, recovered.kept)
        if not files:
            raise UserError(f"{one.node}: there is no data of etcd in {recovered.kept} any more")
        recovery.found[one.node] = replace(one, size=max(one.size, sizes.get("size", 0)))
        _refuse_full_disk(recovery.found[one.node], 2 * sizes.get("size", 0))
        return (
            f"the recovery of {recovered.at} is taken back: its etcd on {one.node} was {recovered.made_of}, and what"
            f" was written since is lost{_damage(files)}"
        )
    raise UserError("no recovery can be taken back: no control node that answers has the data from before one")


def _damage(files: Sequence[bytes]) -> str:
    end = _end(files)
    if end is None or not end.damaged:
        return ""
    return f", and so are {end.lost:,} entries of that data, whose log is damaged"


def _refuse_full_disk(seat: Found, needed: int) -> None:
    if seat.free < needed + _SPARE:
        raise Refused(
            ROOM,
            f"{seat.node} has {seat.free:,} bytes free below {places.ETCD_DATA}, and {needed + _SPARE:,} are needed",
            f"free some space there (data of former members is in {places.ETCD_DATA}/kept.*), or name another node",
        )


# --- one host ------------------------------------------------------------------------------------------


async def _found(context: Context, node: Node) -> Found:
    host = context.host(node)
    made, placed = await _made(host)
    said, files = await log_files(host)
    return Found(
        node=node.name,
        address=node.known_address(),
        fence=await fence_on(host, placed),
        has_pod=bool(await static_pods(host)) or await host.read(places.ETCD_FENCED) is not None,
        identity=_identity(files),
        end=_end(files),
        size=said.get("size", 0),
        free=said.get("free", 0),
        made=made,
        placed=placed,
        recovered=Recovered.read(await host.read(places.ETCD_RECOVERED, most=SHORT)),
    )


async def _made(host: Host) -> tuple[frozenset[str], frozenset[str]]:
    """(the recoveries whose data is complete on this host, those of them whose data is in its place)."""
    lines = [line.split() for line in await on_host(host, ["made", places.ETCD_DATA])]
    return frozenset(words[1] for words in lines), frozenset(words[1] for words in lines if words[0] == "placed")


async def identity_of(host: Host, data: str) -> Identity | None:
    """Whose data it is; None where it is nobody's, or does not say."""
    _, files = await log_files(host, data)
    return _identity(files)


def _identity(files: Sequence[bytes]) -> Identity | None:
    try:
        return identity_in(files[-1]) if files else None
    except ValueError:
        return None


def _end(files: Sequence[bytes]) -> End | None:
    try:
        return end_of(files) if files else None
    except ValueError:
        return None


async def log_files(host: Host, data: str = places.ETCD_DATA) -> tuple[dict[str, int], list[bytes]]:
    """(sizes that the host tells, the last files of the member's log)."""
    try:
        lines = [line.split() for line in await on_host(host, ["log", data, _SCRATCH], timeout=_LOG_SECONDS)]
        files = [await _fetched(host, f"{_SCRATCH}/{words[1]}.gz") for words in lines if words[0] == "log"]
        return {words[0]: int(words[1]) for words in lines if words[0] != "log"}, files
    finally:
        await host.run(["rm", "-rf", _SCRATCH], check=False)


async def _fetched(host: Host, path: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="autarky-recovery-") as scratch:
        local = Path(scratch, "log.gz")
        await host.pull(path, local)
        return gzip.decompress(local.read_bytes())
