"""What a look may have missed before a new etcd is made of a member's data: a quorum that comes back, and entries that
members have written until they were fenced.

Contract: from the look to the fence the members run, and where a majority of them finds itself, it acknowledges writes.
So etcd is waited for before the first fence; and when all are fenced, their logs are read again: they are final now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autarky.engine.deadline import poll_until
from autarky.engine.phase import Change
from autarky.errors import TimedOut
from autarky.phases.context import Context, for_each
from autarky.phases.recovery.choosing import choose_member, refuse_unreadable
from autarky.phases.recovery.fencing import release_all
from autarky.phases.recovery.reading import with_data
from autarky.phases.recovery.resuming import refuse_quorum
from autarky.phases.recovery.serving import Serving, ask_everywhere, refuse_unfenced
from autarky.phases.recovery.state import FromMember, Recovery, nodes_of
from autarky.ports import Progress

QUORUM_SECONDS = 15.0
"""An election takes two, a member some to start. What is acknowledged later, until the fence, is seen when the logs are
read again; so it is not longer: nobody has an API meanwhile."""
_BETWEEN_LOOKS = 5.0


@dataclass(frozen=True, slots=True)
class AwaitQuorum:
    """Nothing is done where etcd comes back by itself."""

    recovery: Recovery
    name: str = "await-quorum"
    title: str = "Wait for a quorum of etcd"
    timeout: float = 5 * QUORUM_SECONDS

    async def plan(self, context: Context) -> Sequence[Change]:
        return [] if self.recovery.placed else [Change(f"wait {QUORUM_SECONDS:.0f} s for etcd to come back by itself")]

    async def run(self, context: Context, progress: Progress) -> None:
        serving = Serving()

        async def reads() -> str | None:
            nonlocal serving
            serving = await ask_everywhere(context, self.recovery)
            return None if serving.quorums else "no member reads by its quorum"

        try:
            await poll_until(
                "etcd has a quorum again",
                reads,
                timeout=QUORUM_SECONDS,
                progress=progress,
                clock=context.clock,
                interval=_BETWEEN_LOOKS,
            )
        except TimedOut:
            refuse_unfenced(context, self.recovery, serving)
        if serving.quorum is not None:
            refuse_quorum(context, self.recovery, serving.quorum)


@dataclass(frozen=True, slots=True)
class ReadLogsAgain:
    """When all are fenced. The newest becomes the seat, unless a person has named one, who hears what is lost."""

    recovery: Recovery
    name: str = "read-logs-again"
    title: str = "Read the logs of the fenced members"
    timeout: float = 600

    async def plan(self, context: Context) -> Sequence[Change]:
        return [] if self.recovery.made else [Change("read the logs again, which are final now, and take the newest")]

    async def run(self, context: Context, progress: Progress) -> None:
        try:
            await self._look(context, progress)
        except BaseException:
            await release_all(context, self.recovery, progress)
            raise

    async def _look(self, context: Context, progress: Progress) -> None:
        recovery, source = self.recovery, self.recovery.source
        if not isinstance(source, FromMember):
            return
        fence, seat, nodes = recovery.fence, recovery.seat, nodes_of(context, recovery)
        found = recovery.found
        recovery.found = await for_each(nodes, lambda node: with_data(context.host(node), found[node.name]))
        refuse_unreadable(recovery, seat)  # the newest at the first look: another one has less
        lost = choose_member(recovery, source)
        if lost is not None:
            progress.note(f"{lost[1]} has {lost[0]:,} newer entries, which will be lost")
        if recovery.seat != seat:
            progress.note(f"{recovery.seat} has written more than {seat} meanwhile: the new etcd begins there")
        if recovery.fence != fence:
            await for_each(nodes, lambda node: context.host(node).write_files([recovery.fence.file()]))
