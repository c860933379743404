"""The controller that decides which nodes have an etcd member, and protects the quorum against drains.

Contract: it writes EtcdMembers and never changes etcd itself; the node agents do the rest. `decide.wanted` says
what is written: what a user sets in `spec.state` stands until the operator's own intent for that node changes, and an
absent object has no effect (rule 10). `ControlNodes`, which reconciles before this, decides which nodes leave. Where
level 1 is not hosted, nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from autarky.control.base.controller import MANAGER, ClusterController
from autarky.control.base.operator_view import View, current
from autarky.control.common.pods import internal_address
from autarky.control.control_nodes.decide.procedure import Step
from autarky.control.etcd.decide import wanted as etcd_wanted
from autarky.control.etcd.decide.figures import is_only_slow
from autarky.control.etcd.decide.membership import SILENT
from autarky.control.etcd.decide.wanted import ControlNode, Existing, InForce, Write
from autarky.control.etcd.manifests import members as etcd_members
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.etcd.manifests.members import GUARD, IDEA, KIND, should_be_member
from autarky.control.status.decide import EtcdMembers as Settled
from autarky.control.status.decide import Unseen
from autarky.errors import Conflict
from autarky.model.etcd_members import Phase
from autarky.ports import Kube, Object
from autarky.render.crds import API_VERSION
from autarky.render.values import CONTROL_PLANE_ACTIVE, CONTROL_PLANE_REQUESTED, SYSTEM, content_hash

GUARDED = "autarky.dev/guard"
"""Annotation of the guard's Deployment: the hash of what was applied. A different hash means: apply again."""


@dataclass(slots=True)
class EtcdMembers(ClusterController):
    """steps: node → what was decided for it in this reconcile of the operator; empty where nothing was."""

    view: View
    kube: Kube
    steps: Callable[[], Mapping[str, Step]]
    name: ClassVar[str] = "etcd members"
    seen: Settled | Unseen | None = field(default=Unseen("it has not been looked at yet"), init=False)
    """As of the last reconcile, for the status; None where EtcdMembers do not describe etcd."""
    _bound: tuple[str, ...] | None = field(default=None, init=False)

    async def reconcile(self) -> None:
        view, plane = self.view, self.view.control_plane
        if plane is None or not current([view.planes, view.nodes, view.etcd_members, view.inventory]):
            return
        if not view.hosts_etcd(plane):
            self.seen = None
            return
        objects = list(view.etcd_members.items.values())
        nodes = _control_nodes(view, self.steps())
        asked = (plane["spec"].get("etcd") or {}).get("members")
        existing, unfinished = [_existing(obj) for obj in objects], _unfinished(view, self.steps())
        found = etcd_wanted.wanted(nodes, existing, asked, _in_force(plane), unfinished)
        self.seen = _settled(objects, found, view.odd_etcd_members)
        if found.refused:
            self.tell(found.refused, "spec.etcd.members")
        await self._bind({*(node.name for node in nodes), *(obj["metadata"]["name"] for obj in objects)})
        created = [obj for write in found.writes if (obj := await self._write(write)) is not None]
        for name in found.forget:
            await self.kube.delete(API_VERSION, KIND, name)
            self.tell("its member has left and its node is a worker or gone: the EtcdMember is deleted", name)
        await self._guard([*objects, *created])

    async def _bind(self, nodes: set[str]) -> None:
        """Applied once per process, and when the nodes change: nobody else writes these bindings."""
        wanted = tuple(sorted(nodes))
        if wanted == self._bound:
            return
        for binding in etcd_members.bindings(wanted):
            await self.kube.apply(binding, manager=MANAGER)
        self._bound = wanted

    async def _write(self, write: Write) -> Object | None:
        """The object, if it was created."""
        if write.create:
            inventory = self.view.known_addresses
            if write.address not in inventory.get(write.name, frozenset()):
                self.tell(f"no etcd member: the join inventory does not list {write.address} for this node", write.name)
                return None
            member = etcd_members.member(write.name, write.address, present=write.idea)
            try:
                await self.kube.create(member)
            except Conflict:
                self.tell(
                    "an EtcdMember of this name already exists and is malformed: correct or delete it", write.name
                )
                return None
            self.tell(_IDEAS[write.idea], write.name)
            return member
        patch: Object = {"metadata": {"annotations": {IDEA: etcd_members.state(present=write.idea)}}}
        if write.present is not None:
            patch["spec"] = {"state": etcd_members.state(present=write.present)}
            self.tell(_IDEAS[write.present], write.name)
        await self.kube.patch(API_VERSION, KIND, write.name, patch)
        return None

    # --- the quorum guard ---

    async def _guard(self, objects: list[Object]) -> None:
        """One beside every voting member. An unhealthy member keeps its guard, which then is not Ready.

        Deleting EtcdMembers removes no guard: etcd still has its members. While one that was written again has no
        status yet, the guards stay as they are."""
        if not current([self.view.deployments, self.view.pods, self.view.etcd_guards]) or not objects:
            return
        voting = sorted(obj["metadata"]["name"] for obj in objects if _guarded(obj))
        live = self.view.deployments.items.get((SYSTEM, GUARD))
        if live is not None and not all(_has_said(obj) for obj in objects):
            return
        if len(voting) < 2:
            if live is not None:
                await self._unguard()
            return
        taints, budget = self._taints(voting), etcd_members.guard_budget(etcd_wanted.guard_budget(len(voting)))
        # As rendered, except for the image: a later release may render it differently.
        mark = content_hash([etcd_members.guard("", voting, taints), budget])
        there = (SYSTEM, GUARD) in self.view.etcd_guards.items
        if live is None or not there or (live["metadata"].get("annotations") or {}).get(GUARDED) != mark:
            await self._put_guard(voting, taints, budget, mark)

    async def _put_guard(self, voting: list[str], taints: list[str], budget: Object, mark: str) -> None:
        template = await self.kube.get("v1", "ConfigMap", etcd.TEMPLATE, SYSTEM)
        if template is None:
            self.tell(f"no quorum guard: ConfigMap {SYSTEM}/{etcd.TEMPLATE} does not exist: run `autarky up`", "guard")
            return
        deployment = etcd_members.guard(template["data"][etcd.GUARD_IMAGE_KEY], voting, taints)
        deployment["metadata"]["annotations"] = {GUARDED: mark}
        await self.kube.apply(budget, manager=MANAGER)
        await self.kube.apply(deployment, manager=MANAGER)
        self.tell(f"the quorum of {', '.join(voting)} is guarded against drains", "guard")

    async def _unguard(self) -> None:
        """A single member has no quorum to protect: whoever drains its node knows that it is the only one."""
        await self.kube.delete("apps/v1", "Deployment", GUARD, SYSTEM)
        await self.kube.delete("policy/v1", "PodDisruptionBudget", GUARD, SYSTEM)
        self.tell("the quorum guard is deleted: fewer than two members vote", "guard")

    def _taints(self, names: list[str]) -> list[str]:
        nodes = (self.view.nodes.items.get((None, name)) or {} for name in names)
        return sorted({taint["key"] for node in nodes for taint in node.get("spec", {}).get("taints") or ()})


_IDEAS = {True: "it should have an etcd member", False: "its etcd member should leave"}


def _control_nodes(view: View, steps: Mapping[str, Step]) -> list[ControlNode]:
    found = []
    for node in view.nodes.items.values():
        meta, address = node["metadata"], internal_address(node)
        labels = meta.get("labels") or {}
        if CONTROL_PLANE_ACTIVE in labels and address is not None and "deletionTimestamp" not in meta:
            standing = etcd_wanted.standing(steps.get(meta["name"]), requested=CONTROL_PLANE_REQUESTED in labels)
            found.append(ControlNode(meta["name"], address, standing))
    return found


def _unfinished(view: View, steps: Mapping[str, Step]) -> set[str]:
    """The Nodes of which it was not decided just now that nothing is to be done."""
    return {node["metadata"]["name"] for node in view.nodes.items.values()} - {
        name for name, step in steps.items() if step is Step.NOTHING
    }


def _in_force(plane: Object) -> InForce | None:
    """The list that was in force last, according to the status."""
    said = (plane.get("status") or {}).get("etcd")
    if not isinstance(said, Mapping):
        return None
    names = said.get("members")
    return InForce(tuple(sorted(str(name) for name in names)) if isinstance(names, list) else None)


def _existing(obj: Object) -> Existing:
    meta, phase = obj["metadata"], (obj.get("status") or {}).get("phase")
    idea = (meta.get("annotations") or {}).get(IDEA)
    present = {"Member": True, "Removed": False}
    known = None if idea is None else present.get(idea)
    gone, blocked = phase == Phase.REMOVED.value, phase == Phase.BLOCKED.value
    return Existing(meta["name"], should_be_member(obj), known, gone, blocked, votes=phase == Phase.MEMBER.value)


def _outdated(obj: Object) -> bool:
    wanted, status = obj["spec"].get("revision"), obj.get("status") or {}
    return bool(wanted) and wanted not in (status.get("revision"), status.get("failedRevision"))


def _guarded(obj: Object) -> bool:
    """It votes, according to its status, and is not about to leave."""
    return should_be_member(obj) and (obj.get("status") or {}).get("phase") == Phase.MEMBER.value


def _has_said(obj: Object) -> bool:
    """Whether its node's agents have reported on it, if it should be a member."""
    return not should_be_member(obj) or "phase" in (obj.get("status") or {})


def _settled(objects: list[Object], found: etcd_wanted.Wanted, odd: Mapping[str, str]) -> Settled:
    wanted = [obj["metadata"]["name"] for obj in objects if should_be_member(obj)]
    moving = [
        f"{name} is ignored: {clause}; correct it with `kubectl edit etcdmember {name}`"
        for name, clause in sorted(odd.items())
    ]
    silent = set[str]()
    for obj in sorted(objects, key=lambda one: str(one["metadata"]["name"])):
        status = obj.get("status") or {}
        phase, message = status.get("phase", Phase.PENDING.value), status.get("message", "")
        if phase != (Phase.MEMBER.value if should_be_member(obj) else Phase.REMOVED.value) or message:
            moving.append(f"{obj['metadata']['name']} is {phase}{f': {message}' if message else ''}")
            if should_be_member(obj) and (phase, message) == (Phase.MEMBER.value, SILENT):
                silent.add(moving[-1])
        elif should_be_member(obj) and _outdated(obj):
            moving.append(f"{obj['metadata']['name']} is not made from the present template yet")
    said = {
        obj["metadata"]["name"]: (obj.get("status") or {}).get("trouble", "")
        for obj in objects
        if should_be_member(obj)
    }
    troubles = tuple(f"{name}: {trouble}" for name, trouble in sorted(said.items()) if trouble)
    force: Object | None = None
    if found.in_force is not None:
        names = found.in_force.names
        force = {"everyControlNode": True} if names is None else {"members": list(names)}
    only_slow = all(is_only_slow(trouble) for trouble in said.values() if trouble)
    even = etcd_wanted.even_count(wanted)
    changing = tuple(one for one in moving if one not in silent)
    return Settled(
        len(wanted), tuple(moving), even, found.refused, force, troubles, only_slow=only_slow, changing=changing
    )
