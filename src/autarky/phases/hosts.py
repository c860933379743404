"""The machines: creating those of a lab, looking at all of them, refusing what would fail later."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass

from autarky import places
from autarky.control.cluster_file.decide.records import API
from autarky.control.control_nodes.decide.initial import Memory
from autarky.control.hosts.decide import preflight
from autarky.engine.phase import Change, Kept, Warn
from autarky.errors import CommandFailed, Inaccessible, Problems, Unreachable, UserError
from autarky.model.cluster import Node
from autarky.phases import belonging, kept_file, members
from autarky.phases.borrow import borrow
from autarky.phases.context import Context, for_each
from autarky.phases.etcd_asked import refuse_impossible
from autarky.phases.leafless import refuse_leafless
from autarky.phases.records import (
    refuse_another_cluster,
    refuse_another_network,
    refuse_moved_etcd,
    refuse_old_defaults,
    refuse_old_file,
)
from autarky.phases.standbys import recovered_encryption
from autarky.phases.version_check import settle_version
from autarky.ports import SHORT, Host, Progress
from autarky.render import cluster_record

FOUNDED = f"{places.HOST_STATE}/founded"
"""On initial members: their API has answered, so that nobody creates the cluster a second time."""
LOOK_SECONDS = 40.0
"""For all that is asked of one host: a host that delays each answer must not hold up the phase."""
_OFF = "its machine does not run"
_OLD_MARK = f"{places.STANDBY}/kube-apiserver/current/pod.json"
"""Hosts whose marker names no initial members are from a time when a cluster had one control node."""


@dataclass(frozen=True, slots=True)
class CreateHosts:
    """Lab hosts are created and powered on; other machines must exist."""

    name: str = "create-hosts"
    title: str = "Create or power on the hosts"
    timeout: float = 300

    async def plan(self, context: Context) -> Sequence[Change]:
        return [Change(sentence) for sentence in await context.machines.missing()]

    async def run(self, context: Context, progress: Progress) -> None:
        await context.machines.ensure(progress)


@dataclass(frozen=True, slots=True)
class CheckHosts:
    """Preflight: everything that would fail later, all at once, before anything is touched.

    It only looks, so that all of it happens in `plan`: a dry run checks the same.
    """

    name: str = "check-hosts"
    title: str = "Check the hosts"
    timeout: float = 60

    async def plan(self, context: Context) -> Sequence[Change | Kept | Warn]:
        await look(context)
        refuse_old_defaults(context)
        await refuse_impossible(context)
        context.warnings = refuse_errors(context)
        await self._refuse_silence(context)
        await refuse_leafless(context, awaited=[name for name, why in context.absent.items() if why == _OFF])
        changes = [Change(f"check host {name} once it runs") for name, why in context.absent.items() if why == _OFF]
        changes += kept_file.changes(context, all_seen=context.all_seen) if context.file_waits else []
        warnings = [Warn(sentence) for sentence in context.warnings]
        return [*changes, *warnings, *(taken_out(node) for node in context.unlisted)]

    async def run(self, context: Context, progress: Progress) -> None:
        """Only reached if a host was off when its plan was made, or the cluster's file was not kept before."""
        known = context.warnings
        await self.plan(context)
        for warning in context.warnings:
            if warning not in known:
                progress.note(f"warning: {warning}")
        for name, why in context.absent.items():
            progress.note(f"{name} is left out: {why}")
        if context.absent and not context.brings_api_back and not await context.api_answers():
            missing = [UserError(f"host {name}: {why}", fix="power it on") for name, why in context.absent.items()]
            raise Problems("some hosts are not available", missing)
        await refuse_leafless(context)
        kept_file.keep(context, all_seen=context.all_seen)

    async def _refuse_silence(self, context: Context) -> None:
        """If the API answers, a host that does not is left out; a cluster that is not up needs all of them. A lab host
        that was not created or is off does not count yet."""
        silent = {name: why for name, why in context.absent.items() if why != _OFF}
        if silent and not context.brings_api_back and not await context.api_answers():
            raise Unreachable("; ".join(silent.values()))


def taken_out(node: Node) -> Kept:
    """A node that is in the cluster and not in its file. Without a recorded address it cannot stay in the join
    inventory either: it could claim that of any other node. Nor does a worker whose removal was interrupted."""
    kept = f"kept (`autarky node remove {node.name}` removes it)"
    if node.address is None:
        kept = (
            "in no join inventory, so that its certificates will expire and nothing relies on it "
            f"(`autarky node add {node.name} --host HOST` adds it, `autarky node remove {node.name}` removes it)"
        )
    return Kept(f"node {node.name}", "membership", "none, since it is not in the file", kept)


async def look(
    context: Context,
    *,
    passed_over: str | None = None,
    etcd_moves: bool = False,
    leave_out_workers: bool = False,
) -> None:
    """Observe, refuse what is impossible given what was seen, and borrow what this machine lacks. passed_over: a node
    whose machine is said to be gone; whatever answers in its place may be anybody's. etcd_moves: whether it may be in
    another place than the file has it. leave_out_workers: as in `refuse_foreign_hosts`."""
    await observe(context)
    leaves_out = leave_out_workers or context.moves_etcd
    await refuse_foreign_hosts(context, passed_over=passed_over, leave_out_workers=leaves_out)
    refuse_another_cluster(context.records.get(API), context.ours)
    await settle_version(context)
    await borrow(context)
    if passed_over is not None:
        context.records.pop(passed_over, None)
    refuse_old_file(context)
    refuse_another_network(context)
    if not etcd_moves:
        refuse_moved_etcd(context)


async def observe(context: Context) -> None:
    """Read every existing host once, in parallel: its facts, its cluster, and what it remembers. Those that do not
    answer, cannot be read, or are workers that joined before and let nobody in any more, are noted, with the reason.
    Then put together which nodes are in the cluster."""
    context.absent, context.records = {}, {}
    closed: dict[str, Inaccessible] = {}

    async def one(node: Node) -> None:
        host = context.machines.host(node.name)
        if host is None:
            context.absent[node.name] = _OFF
            return
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await _look_at(context, node, host)
        except (Unreachable, CommandFailed) as error:  # a host that cannot be read is as unknown as a silent one
            context.absent[node.name] = str(error)
        except Inaccessible as error:
            if node.control_plane:
                raise
            closed[node.name] = error
            context.absent[node.name] = str(error)
        except TimeoutError:
            context.absent[node.name] = f"{node.name}: its host needs more than {LOOK_SECONDS:.0f} s to answer"

    await for_each(context.cluster.nodes, one)
    # An address in the file takes precedence; preflight checks that the host has it. For a host that does not answer
    # the remembered one is used.
    unknown = {node.name for node in context.cluster.nodes if node.address is None}
    known = {name: node.address for name, node in members.remembered(context.directory).items()}
    known |= {name: facts.address for name, facts in context.facts.items()}
    context.said_addresses |= unknown & context.facts.keys()
    addresses = {name: address for name, address in known.items() if name in unknown and address is not None}
    etcd_host = context.cluster.etcd_host
    if etcd_host is not None and (host := context.machines.host(etcd_host.name)) is not None:
        addresses[etcd_host.name] = (await host.facts()).address
    context.cluster = context.cluster.with_addresses(addresses)
    await members.learn(context)
    before = context.joined if context.api_seen else members.remembered(context.directory).keys()
    if new := [error for name, error in closed.items() if name not in before]:
        raise new[0]


async def _look_at(context: Context, node: Node, host: Host) -> None:
    facts = await host.facts()
    marker = await host.read(places.NODE_MARKER, most=SHORT)
    said = await belonging.said_by(host, marker) if marker is not None else None
    context.facts[node.name] = facts  # only once its cluster is known: on a host of ours our ports are in use
    if marker is None or said is None:
        context.memories[node.name] = Memory()
        return
    context.owners[node.name] = said
    context.versions[node.name] = said.version
    record = cluster_record.read(await host.read(places.CLUSTER_RECORD)) if node.control_plane else None
    if record is not None:  # a worker's would be its own claim
        context.records[node.name] = record
    if node.control_plane:
        encryption = await recovered_encryption(host)
        context.encryption = context.encryption or encryption
    if said.cluster is None:
        return  # its marker is damaged: what the others remember of the node counts
    context.memories[node.name] = Memory()
    initial_members = _initial_members(marker)
    if initial_members is not None:
        founded = await host.read(FOUNDED) is not None
        context.memories[node.name] = Memory(initial_members, founded)
    elif await host.read(_OLD_MARK) is not None:
        context.memories[node.name] = Memory(frozenset({node.name}), founded=True)


def _initial_members(marker: bytes) -> frozenset[str] | None:
    """None if the marker does not name them, or cannot be read."""
    try:
        return frozenset(json.loads(marker)["founders"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


async def refuse_foreign_hosts(
    context: Context, *, passed_over: str | None = None, leave_out_workers: bool = False
) -> None:
    """A host that is not proven to be of our own cluster is never touched, and nothing is written here either: issuing
    a CA in place of a cluster's own would destroy that cluster. leave_out_workers: for what has to work while a worker
    says what it likes."""
    said_by = {name: said for name, said in context.owners.items() if name != passed_over}
    refused = {name: await belonging.refusal(context, name, said) for name, said in said_by.items()}
    controls = {node.name for node in context.cluster.control_nodes}
    for name, refusal in [*refused.items()] if leave_out_workers else ():
        if refusal is not None and name not in controls:
            context.leave_out(name, f"{name}: its host {refusal.seen}")
            del refused[name]
    if foreign := belonging.problems(refused):
        raise Problems("some hosts cannot be used for this cluster", foreign)


def refuse_errors(context: Context) -> list[str]:
    """Judge what was seen; raise all errors at once, return the warnings as sentences. Workers that joined before are
    left out for theirs."""
    ours = frozenset(context.owners)  # all others have been refused
    etcd_host = context.cluster.etcd_host
    others = [*context.unlisted, *([etcd_host] if etcd_host is not None else [])]
    elsewhere = {node.name: node.address for node in others}
    findings = preflight.checks(context.cluster, context.facts, ours=ours, demoted=context.demoted, elsewhere=elsewhere)
    errors = [finding for finding in findings if finding.severity == "error"]
    addresses = _addresses_of_joined_workers(context)
    refusing, ill = preflight.judge(errors, workers=addresses, joined=context.joined)
    if refusing:
        raise Problems(
            "the hosts are not ready; --ignore CHECK demotes any of these to a warning, by its name in brackets",
            [UserError(f"[{e.name}] {e.host or 'cluster file'}: {e.what}", fix=e.remedy) for e in refusing],
        )
    for name, error in ill.items():  # the address that its host says may be what is wrong
        context.cluster = context.cluster.with_addresses({name: addresses[name]})
        context.leave_out(name, *_warnings([error]))
    return _warnings([one for one in findings if one.severity == "warning" and one.host not in ill])


def _addresses_of_joined_workers(context: Context) -> dict[str, str]:
    """As remembered, else as the file has them. Those whose host alone has said one are left out."""
    joined = [node for node in context.cluster.workers if node.name in context.joined]
    in_file = {node.name: node.address for node in joined if node.name not in context.said_addresses}
    remembered = members.remembered(context.directory)
    known = in_file | {node.name: remembered[node.name].address for node in joined if node.name in remembered}
    return {name: address for name, address in known.items() if address is not None}


def _warnings(findings: Sequence[preflight.Finding]) -> list[str]:
    """One for all hosts with the same finding."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for one in findings:
        alike.setdefault((one.name, one.what, one.remedy), []).append(one.host or "cluster file")
    return [f"[{name}] {', '.join(hosts)}: {what} ({remedy})" for (name, what, remedy), hosts in alike.items()]
