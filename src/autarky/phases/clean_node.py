"""Cleaning the host of a node that leaves.

Contract: cleans only a host of our cluster whose machine is not said to be gone. A control node stays in the cluster
until its host is clean: it has the CA keys. A worker whose membership was revoked is removed in any case: perhaps
somebody else is root on its host, and must not be able to keep it in the cluster by making a command fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from autarky.engine.phase import Change, Warn
from autarky.errors import AutarkyError
from autarky.model.cluster import Node
from autarky.phases import belonging
from autarky.phases.context import Context
from autarky.phases.teardown import clean
from autarky.ports import Progress

CLEAN_SECONDS = 290.0
"""Less than the timeout of the phase, which would stop the removal."""


@dataclass(frozen=True, slots=True)
class CleanNode:
    """Remove everything of ours from the host of a node, unless its machine is gone. If that fails on a worker, the
    user reads what is left to do, and the node is removed all the same."""

    node: Node
    purge: bool
    dead: bool = False
    name: str = "clean-host"
    title: str = "Clean the host"
    timeout: float = 300

    async def plan(self, context: Context) -> Sequence[Change | Warn]:
        if self.dead:
            return []
        try:
            if not await self._is_ours(context):
                return []
        except AutarkyError as error:
            if self.node.name not in context.distrusted:
                raise
            return [Warn(self._left(error))]
        return [Change(f"remove everything of autarky from host {self.node.name}")]

    async def run(self, context: Context, progress: Progress) -> None:
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        # The disk of a test host goes with it.
        purge = self.purge or self.node.host.driver == "lab"
        try:
            async with asyncio.timeout(CLEAN_SECONDS):
                await clean(context.host(self.node), stamp, progress, purge=purge)
        except (AutarkyError, TimeoutError) as error:
            if self.node.name not in context.distrusted:
                raise
            progress.note(f"warning: {self._left(error)}")

    def _left(self, error: Exception) -> str:
        why = str(error) or f"not done within {CLEAN_SECONDS:.0f} s"
        return (
            f"host {self.node.name} was not cleaned, and may still have autarky's files and running pods ({why}): cut"
            " it off from the nodes' network, and wipe its disk before it is used again"
        )

    async def _is_ours(self, context: Context) -> bool:
        return await belonging.refusals(context, [self.node]) == {self.node.name: None}
