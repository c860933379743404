"""Giving up a recovery that was cut: what it has made goes, and the members that it has fenced run again.

Contract: only while its data is not in its place; from then on there is no way back but another recovery. What was made
goes before the first fence: nobody may take that up when the old etcd has gone on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autarky import places
from autarky.control.slots import manifests as standby
from autarky.engine.phase import Change, Warn
from autarky.errors import Refused
from autarky.phases.context import Context, for_each
from autarky.phases.recovery.choosing import of_replaced
from autarky.phases.recovery.looking import look_at_hosts
from autarky.phases.recovery.resuming import OWN_COMMAND
from autarky.phases.recovery.serving import ONE_ETCD, Serving, ask_everywhere
from autarky.phases.recovery.state import OF_FORMER, Found, Recovery
from autarky.ports import Progress

_SECONDS = 60.0


@dataclass(slots=True)
class _Left:
    """works: node → directories that go. fenced: nodes whose members run again. former: those whose data is of an etcd
    that was replaced: only the fence goes, and their agents let them join the other one."""

    works: Mapping[str, Sequence[str]] = field(default_factory=dict)
    fenced: Sequence[str] = ()
    former: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class AbandonRecovery:
    recovery: Recovery
    name: str = "abandon-recovery"
    title: str = "Abandon the recovery that was interrupted"
    timeout: float = 300
    left: _Left = field(default_factory=_Left)

    async def plan(self, context: Context) -> Sequence[Change | Warn]:
        _, _, sentences = await look_at_hosts(context, self.recovery)
        serving = await ask_everywhere(context, self.recovery)
        self._refuse(serving)
        self.recovery.replaced = serving.former
        found, left = self.recovery.found, self.left
        left.works = {name: works for name, one in found.items() if (works := _works(one))}
        fenced = [name for name, one in found.items() if one.fence is not None]
        old = of_replaced(self.recovery)
        left.former = [name for name in fenced if name in old]
        left.fenced = [name for name in fenced if name not in old]
        changes = [Change(f"remove what was made on {name}") for name in left.works]
        changes += [Change(f"let the member of etcd on {name} run again") for name in left.fenced]
        changes += [Change(f"remove the fence on {name}, whose etcd was replaced") for name in left.former]
        nothing = [] if changes else ["no control node that answers has anything of a recovery that was interrupted"]
        return [*(Warn(sentence) for sentence in (*sentences, *nothing)), *changes]

    async def run(self, context: Context, progress: Progress) -> None:
        nodes, left = {node.name: node for node in context.cluster.nodes}, self.left

        async def release(name: str) -> None:
            await context.host(nodes[name]).run([standby.SCRIPT_PATH, "release-etcd"], timeout=_SECONDS)
            progress.note(f"the member of etcd on {name} runs again, as before")

        for name, works in left.works.items():
            await context.host(nodes[name]).run(["rm", "-rf", *works], timeout=_SECONDS)
        await for_each([nodes[name] for name in left.fenced], lambda node: release(node.name))
        for name in left.former:
            await context.host(nodes[name]).remove(OF_FORMER)

    def _refuse(self, serving: Serving) -> None:
        found = self.recovery.found
        for one in found.values():
            if one.fence is None:
                continue
            seat = found.get(one.fence.seat)
            if seat is not None and one.fence.recovery in seat.placed:
                seen = f"the data of a recovery {one.fence.made_of} is in its place on {seat.node} already"
                raise Refused(OWN_COMMAND, seen, "run the same command again")
            of_it = one.identity is not None and one.identity.cluster in serving.clusters
            if seat is None and not of_it:
                seen = f"{one.fence.seat} does not answer, and may have a new etcd by now, {one.fence.made_of}"
                raise Refused(ONE_ETCD, seen, "power it on, and run this again")


def _works(one: Found) -> list[str]:
    """Of recoveries whose data is not in its place."""
    names = {*one.made, *([one.fence.recovery] if one.fence is not None and one.fence.seat == one.node else [])}
    return [f"{places.ETCD_DATA}/recovery.{name}" for name in sorted(names - one.placed)]
