"""What control nodes keep of the cluster file, after a node has left: else another machine that logs in would join it
again. (`up` writes it with the other files of a host.)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autarky.engine.phase import Change
from autarky.model.cluster import Node
from autarky.model.files import File
from autarky.phases import ownership
from autarky.phases.context import Context, for_each
from autarky.phases.prepare import changed_files
from autarky.ports import Progress
from autarky.render import cluster_record
from autarky.render.objects import Part, record_part


@dataclass(frozen=True, slots=True)
class KeepRecord:
    """On founders that answer, and in the API."""

    gone: Node
    name: str = "keep-record"
    title: str = "Take the node out of what control nodes keep of the file"
    timeout: float = 60

    async def plan(self, context: Context) -> Sequence[Change]:
        if context.document is None:
            return []
        stale = await for_each(self._keepers(context), lambda node: self._stale(context, node))
        changes = [Change(f"write {file.path} on {name}") for name, files in stale.items() for file in files]
        part = self._part(context)
        looks = [await ownership.look(context.kube(), obj, take_ownership=False) for obj in part.objects]
        return [*changes, *(Change(f"apply {ownership.subject_of(o.wanted)}") for o in looks if o.to_apply is not None)]

    async def run(self, context: Context, progress: Progress) -> None:
        async def one(node: Node) -> None:
            await context.host(node).write_files(await self._stale(context, node))

        await for_each(self._keepers(context), one)
        part = self._part(context)
        for obj in part.objects:
            found = await ownership.look(context.kube(), obj, take_ownership=False)
            await ownership.carry_out(context.kube(), found, part.manager)

    def _nodes(self, context: Context) -> list[Node]:
        return [node for node in context.whole.nodes if node.name != self.gone.name]

    def _keepers(self, context: Context) -> list[Node]:
        nodes = [node for node in context.present(self._nodes(context)) if node.control_plane and node.founder]
        return [node for node in nodes if node.name in context.owners]

    def _record(self, context: Context) -> bytes:
        known = [node for node in self._nodes(context) if node.address is not None]
        return context.record_of(known)

    async def _stale(self, context: Context, node: Node) -> list[File]:
        return await changed_files(context.host(node), [cluster_record.record_file(self._record(context))])

    def _part(self, context: Context) -> Part:
        return record_part(self._record(context), context.ours.ca)
