"""The record of the cluster file that control nodes keep, when a node leaves: otherwise another machine that logs in
would join it again. (`up` writes the record with the other files of a host.)

Contract: only this node is taken out of the newest record, whatever file the command works with: another machine's
changes stay. It is done before the node is forgotten, so that an interrupted removal can be resumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autarky import places
from autarky.control.cluster_file.decide.records import Record, newest, without
from autarky.engine.phase import Change
from autarky.model.cluster import Node
from autarky.phases import ownership, records
from autarky.phases.context import Context, for_each
from autarky.ports import Progress
from autarky.render import cluster_record
from autarky.render.objects import record_part


@dataclass(frozen=True, slots=True)
class KeepRecord:
    """On initial members that answer, and in the API."""

    gone: Node
    name: str = "keep-record"
    title: str = "Take the node out of the record that control nodes keep"
    timeout: float = 60

    async def plan(self, context: Context) -> Sequence[Change]:
        wanted = self._wanted(context)
        if wanted is None:
            return []
        changes = [
            Change(f"write {places.CLUSTER_RECORD} on {node.name}") for node in await self._stale(context, wanted)
        ]
        if await records.of_the_api(context.kube()) != wanted:
            [obj] = record_part(cluster_record.written(wanted), context.ours.ca).objects
            changes.append(Change(f"apply {ownership.subject_of(obj)}"))
        return changes

    async def run(self, context: Context, progress: Progress) -> None:
        wanted = self._wanted(context)
        if wanted is None:
            return
        content = cluster_record.written(wanted)
        file = cluster_record.record_file(content)
        await for_each(await self._stale(context, wanted), lambda node: context.host(node).write_files([file]))
        part = record_part(content, context.ours.ca)
        for obj in part.objects:
            found = await ownership.look(context.kube(), obj, take_ownership=False)
            await ownership.carry_out(context.kube(), found, part.manager)

    def _wanted(self, context: Context) -> Record | None:
        last = newest(context.records)
        if last is None:  # the cluster is of a release that kept none
            known = [
                node for node in context.complete.nodes if node.name != self.gone.name and node.address is not None
            ]
            return cluster_record.read(context.record_of(known))
        if not last.has(self.gone.name):
            return last
        nodes = {name: said for name, said in last.nodes.items() if name != self.gone.name}
        return Record(without(last.file, self.gone.name), nodes, last.number + 1)

    async def _stale(self, context: Context, wanted: Record) -> list[Node]:
        nodes = [node for node in context.present(context.complete.nodes) if node.control_plane and node.initial_member]
        keepers = [node for node in nodes if node.name != self.gone.name and node.name in context.owners]
        there = await for_each(keepers, lambda node: context.host(node).read(places.CLUSTER_RECORD))
        return [node for node in keepers if cluster_record.read(there[node.name]) != wanted]
