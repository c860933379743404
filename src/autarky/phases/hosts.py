"""The machines: making those of a lab, looking at all of them, refusing what would stop us later."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from autarky import places
from autarky.decide import preflight
from autarky.engine.phase import Change
from autarky.errors import Problems, UserError
from autarky.model.cluster import Node
from autarky.phases.context import Context, for_each
from autarky.ports import Progress

MARKER = f"{places.HOST_STATE}/node.json"
"""Says which cluster and node a host belongs to: written before anything else, removed last."""


@dataclass(frozen=True, slots=True)
class CreateHosts:
    """Lab hosts are made and powered on; other machines must be there."""

    name: str = "create-hosts"
    title: str = "Create or power on the hosts"
    timeout: float = 300

    async def plan(self, context: Context) -> Sequence[Change]:
        return [Change(sentence) for sentence in await context.machines.missing()]

    async def run(self, context: Context, progress: Progress) -> None:
        await context.machines.ensure(progress)


@dataclass(frozen=True, slots=True)
class CheckHosts:
    """Preflight: everything that would stop us later, all at once, before anything is touched.

    It only looks, so that all of it happens in `plan`: a dry run checks the same.
    """

    name: str = "check-hosts"
    title: str = "Check the hosts"
    timeout: float = 60

    async def plan(self, context: Context) -> Sequence[Change]:
        await observe(context)
        refuse_foreign_hosts(context)
        context.warnings = refuse_errors(context)
        return [
            Change(f"check host {node.name} once it exists")
            for node in context.cluster.nodes
            if node.name not in context.facts
        ]

    async def run(self, context: Context, progress: Progress) -> None:
        """Only reached when a host appeared after its plan."""
        await self.plan(context)
        for warning in context.warnings:
            progress.note(warning)


async def observe(context: Context) -> None:
    """Read every existing host once, side by side: its facts, and whose it is."""

    async def one(node: Node) -> None:
        host = context.machines.host(node.name)
        if host is None:
            return
        context.facts[node.name] = await host.facts()
        marker = await host.read(MARKER)
        if marker is not None:
            context.owners[node.name] = json.loads(marker)["cluster"]

    await for_each(context.cluster.nodes, one)
    # An address given in the file stands; preflight says whether the host has it.
    unknown = {node.name for node in context.cluster.nodes if node.address is None}
    addresses = {name: facts.address for name, facts in context.facts.items() if name in unknown}
    etcd_host = context.cluster.etcd_host
    if etcd_host is not None and (host := context.machines.host(etcd_host.name)) is not None:
        addresses[etcd_host.name] = (await host.facts()).address
    context.cluster = context.cluster.with_addresses(addresses)


def refuse_foreign_hosts(context: Context) -> None:
    """A host of another cluster is never touched."""
    foreign = [
        UserError(
            f"host {name} belongs to the cluster {owner}",
            fix=f"take that cluster down first (`autarky down --cluster {owner}`), or name another host",
        )
        for name, owner in context.owners.items()
        if owner != context.cluster.name
    ]
    if foreign:
        raise Problems("some hosts are not free", foreign)


def refuse_errors(context: Context) -> list[str]:
    """Judge what was seen; raise all errors at once, return the warnings as sentences."""
    ours = frozenset(name for name, owner in context.owners.items() if owner == context.cluster.name)
    findings = preflight.checks(context.cluster, context.facts, ours=ours, demoted=context.demoted)
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        raise Problems(
            "the hosts are not ready; any of these can be demoted to a warning by --ignore NAME",
            [UserError(f"[{e.name}] {e.host or 'cluster file'}: {e.what}", fix=e.remedy) for e in errors],
        )
    return [f"[{f.name}] {f.host or 'cluster file'}: {f.what} ({f.remedy})" for f in findings]
