"""Nodes that were removed after a backup was made stay removed when it is restored.

The backup's join inventory still has them, with their Nodes and the credentials that they may come back with: whoever
was removed because nobody trusts him any more would be back. So it is noted before the fence who is a member, beside
the new data on the seat; and written back as soon as the API answers. The same for nodes that are control nodes no
more: by the labels in the backup they would get all keys again.

Contract: a node is forgotten only where the API has said that neither a Node nor the inventory has it, and it is no
control node that was found. Where that was not to be learned, it is only said (rule 2).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from autarky.control.backup.decide.loss import Written, kind_of
from autarky.engine.deadline import poll_until
from autarky.engine.phase import Change, Warn
from autarky.errors import ApiError, Unreachable
from autarky.model import patience
from autarky.model.files import File
from autarky.parsing import parsed
from autarky.phases import forget
from autarky.phases.context import Context
from autarky.phases.promote import etcd_members
from autarky.phases.recovery.state import FromMember, Members, Recovery, seat_of
from autarky.phases.trusted import Trusted, trust_only, trusted
from autarky.ports import Kube, Object, Progress
from autarky.render.values import CONTROL_PLANE_ACTIVE, CONTROL_PLANE_REQUESTED

_SHOWN = 20
"""Names in one sentence."""


@dataclass(frozen=True, slots=True)
class NoteMembers:
    """When the new data is made, and before the old etcd is fenced."""

    recovery: Recovery
    name: str = "note-members"
    title: str = "Note who is in the cluster"
    timeout: float = 120

    async def plan(self, context: Context) -> Sequence[Change | Warn]:
        recovery = self.recovery
        recovery.members = read(await seat_of(context, recovery).read(_path(recovery)))
        if recovery.members is not None or recovery.placed or _is_newest(recovery):
            return []
        recovery.members = await _ask(context)
        if recovery.members is not None:
            return [Change(f"note on {recovery.seat} which nodes are in the cluster: who was removed stays removed")]
        return [
            Warn(
                "the API does not say who is in the cluster now: nodes that were removed since then come back, and are"
                " named at the end"
            )
        ]

    async def run(self, context: Context, progress: Progress) -> None:
        recovery = self.recovery
        if recovery.members is not None:
            await seat_of(context, recovery).write_files([file(_path(recovery), recovery.members)])


@dataclass(frozen=True, slots=True)
class ForgetRemoved:
    """then: the keys of the backup, where they are known before it is restored."""

    recovery: Recovery
    then: Callable[[], Mapping[str, Written]] | None = None
    name: str = "forget-removed"
    title: str = "Forget the nodes that were removed since then"
    timeout: float = 600

    async def plan(self, context: Context) -> Sequence[Change | Warn]:
        recovery = self.recovery
        if not recovery.placed:  # a dry run
            return self._beforehand(context)
        if recovery.members is None and _is_newest(recovery):
            return []
        if not await context.api_answers():
            return [] if recovery.members is None else [Change(self.title.lower())]
        names = await _names(context.kube())
        if recovery.members is None:
            return _warned(_strange(context, recovery, names))
        changes = [Change(f"forget node {name}, which was removed") for name in _gone(recovery, names)]
        if await trusted(context.kube()) != recovery.members.trusted:
            changes.append(Change("write back which nodes are members, and with which credentials"))
        demoted = await _demoted(context.kube(), recovery.members)
        return [*changes, *(Change(f"keep node {name} a worker, which it has become") for name in demoted)]

    def _beforehand(self, context: Context) -> Sequence[Change | Warn]:
        recovery = self.recovery
        if self.then is None or _is_newest(recovery):
            known = recovery.members is not None
            return [Change("forget the nodes that were removed since then")] if known else []
        names = {name for kind, name in map(kind_of, self.then()) if kind == "nodes"}
        if recovery.members is None:
            return _warned(_strange(context, recovery, names))
        return [Change(f"forget node {name}, which was removed since") for name in _gone(recovery, names)]

    async def run(self, context: Context, progress: Progress) -> None:
        kube, members = context.kube(), self.recovery.members
        if members is None:
            return

        async def written_back() -> None:
            await trust_only(kube, members.trusted)

        # An API server that has just started does not serve everything yet.
        what = "the members of the cluster are those from before"
        await poll_until(what, written_back, timeout=patience.WRITTEN, progress=progress, clock=context.clock)
        for name in await _demoted(kube, members):
            labels = dict.fromkeys((CONTROL_PLANE_REQUESTED, CONTROL_PLANE_ACTIVE))
            await kube.patch("v1", "Node", name, {"metadata": {"labels": labels}})
            progress.note(f"node {name}, which was a control node in the backup, is a worker, as before the restore")
        for name in _gone(self.recovery, await _names(kube)):
            await forget.forget_objects(kube, name)
            progress.note(f"node {name}, which was removed, is forgotten again: it can renew and create nothing")


def _is_newest(recovery: Recovery) -> bool:
    """Nothing is older than it says. But it may take up a restore that was interrupted, with what that has noted."""
    return isinstance(recovery.source, FromMember)


def _gone(recovery: Recovery, names: Collection[str]) -> list[str]:
    members = recovery.members
    if members is None:
        return []
    return sorted(set(names) - members.nodes - members.trusted.inventory.keys() - recovery.found.keys())


async def _demoted(kube: Kube, members: Members) -> list[str]:
    """Workers that are control nodes again, by their labels."""
    if not members.control:
        return []
    return sorted(_control(await kube.list("v1", "Node")) & members.nodes - members.control)


def _control(nodes: Iterable[Object]) -> frozenset[str]:
    made = {CONTROL_PLANE_REQUESTED, CONTROL_PLANE_ACTIVE}
    return frozenset(node["metadata"]["name"] for node in nodes if made & (node["metadata"].get("labels") or {}).keys())


def _strange(context: Context, recovery: Recovery, names: Collection[str]) -> list[str]:
    return sorted(set(names) - {node.name for node in context.cluster.nodes} - recovery.found.keys())


def _warned(names: Sequence[str]) -> list[Warn]:
    if not names:
        return []
    shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    return [
        Warn(
            f"in the backup there are nodes that are not in the cluster file: {shown}. Whether they were removed since"
            " could not be learned, so they stay: `autarky node remove NAME --dead` removes one"
        )
    ]


async def _names(kube: Kube) -> set[str]:
    """All that the API has of nodes."""
    lists = await trusted(kube)
    nodes = [*await kube.list("v1", "Node"), *await etcd_members(kube)]
    return {obj["metadata"]["name"] for obj in nodes} | lists.inventory.keys() | lists.renewals.keys()


async def _ask(context: Context) -> Members | None:
    """None where nobody says it, or there is no inventory, which somebody may have deleted with everything else."""
    try:
        if not await context.api_answers():
            return None
        nodes = await context.kube().list("v1", "Node")
        lists = await trusted(context.kube())
    except (ApiError, Unreachable):
        return None
    if not lists.inventory:
        return None
    return Members(frozenset(obj["metadata"]["name"] for obj in nodes), lists, _control(nodes))


# --- on the seat ---------------------------------------------------------------------------------------------


def _path(recovery: Recovery) -> str:
    return f"{recovery.work}/members.json"


def file(path: str, members: Members) -> File:
    lists = members.trusted
    found = {
        "nodes": sorted(members.nodes),
        "inventory": dict(lists.inventory),
        "renewals": dict(lists.renewals),
        "control": sorted(members.control),
    }
    return File(path, json.dumps(found, indent=1).encode() + b"\n", 0o600)


def read(content: bytes | None) -> Members | None:
    try:
        found = parsed(content or b"")
        inventory, renewals = ({str(k): str(v) for k, v in found[key].items()} for key in ("inventory", "renewals"))
        control = frozenset(map(str, found.get("control", ())))  # a release before noted none
        members = Members(frozenset(map(str, found["nodes"])), Trusted(inventory, renewals), control)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return members if inventory else None
