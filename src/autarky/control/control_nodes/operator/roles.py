"""The controller that turns labelled nodes into control nodes, and nodes that lost the label into workers.

Contract: `decide.procedure` says what is written when; this reads the live copies and carries it out. Every step may be
interrupted and done again. `decisions` is for the status.
`steps` is what this very reconcile decided, empty when it decided nothing: EtcdMembers follow it.

Danger: removing the active label from a node stops its API server. Labels are written under the resourceVersion that
was decided on, so that a concurrent change of the requested label is not overwritten.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from autarky.control.base.controller import MANAGER, ClusterController
from autarky.control.base.events import report
from autarky.control.base.operator_view import View, current
from autarky.control.checkpoint.manifests import references
from autarky.control.common.pods import internal_address
from autarky.control.common.shapes import node_is_ready
from autarky.control.control_nodes import manifests as objects
from autarky.control.control_nodes.decide import roles as control_nodes
from autarky.control.control_nodes.decide.observed import (
    ANNOTATION,
    LEAVE,
    Member,
    Node,
    Record,
    State,
    labels_and_report,
)
from autarky.control.control_nodes.decide.procedure import Decision, Step, Write
from autarky.control.control_nodes.observe import Ask, SeenToServe, ask_address
from autarky.control.control_nodes.operator import record as node_record
from autarky.control.load_balancer.operator import agreed_address
from autarky.control.rollout.operator.workloads import TWO_SLOTS, workload
from autarky.errors import Conflict
from autarky.kube import Reflector
from autarky.model.components import ETCD, NAME_LABEL, NODE_AGENT, OPERATOR
from autarky.ports import Clock, Kube, Object
from autarky.render.values import CONTROL_PLANE_ACTIVE, CONTROL_PLANE_REQUESTED, SYSTEM, canonical_json

ROLE, BINDING = ("rbac.authorization.k8s.io/v1", "Role"), ("rbac.authorization.k8s.io/v1", "RoleBinding")
"""The kinds of the objects that grant an agent its permissions."""
LOOK_SECONDS = 2.0
"""Between two looks while a node leaves: a deleted pod is seen at once, what its agent does is not."""


@dataclass(slots=True)
class ControlNodes(ClusterController):
    """member_phases: node → the phase of its EtcdMember; it returns None while they are not known. ask: URL of an API
    server → None if it is ready."""

    view: View
    kube: Kube
    clock: Clock
    member_phases: Callable[[], Mapping[str, str] | None]
    ask: Ask
    name: ClassVar[str] = "control-nodes"
    decisions: dict[str, Decision] = field(default_factory=dict, init=False)
    steps: dict[str, Step] = field(default_factory=dict, init=False)
    _serving: SeenToServe = field(init=False)
    _given: dict[str, bytes] = field(default_factory=dict, init=False)
    """Node → the permissions granted to its agent in this term of leadership."""
    _refused: bool = field(default=False, init=False)
    """Whether a Node had changed before it was written. Where only its heartbeat had, nobody says so."""
    _taken: set[str] = field(default_factory=set, init=False)
    """Nodes whose agents are known, in this term, to have only the permissions of a control node."""

    def __post_init__(self) -> None:
        ClusterController.__post_init__(self)
        self._serving = SeenToServe(self._ask_node, self.clock)

    def begin_pass(self) -> None:
        """What a failed one has decided is not for those that follow in this pass."""
        self.steps = {}

    def begin_term(self) -> None:
        """Another leader may have granted permissions meanwhile."""
        self._given.clear()
        self._taken.clear()

    @property
    def unsettled(self) -> list[str]:
        """A sentence for each node whose role does not match its labels yet."""
        return [f"node {name}: {one.sentence}" for name, one in self.decisions.items() if one.step not in _SETTLED]

    async def reconcile(self) -> float | None:
        view = self.view
        self.steps, self._refused = {}, False
        seen = [view.nodes, view.pods, view.inventory, view.control_nodes, view.daemon_sets, view.deployments]
        if not current(seen):
            return None
        recorded = node_record.records(view.control_nodes)
        inventory = view.known_addresses
        live = {obj["metadata"]["name"]: obj for obj in view.nodes.items.values()}
        for name in sorted(control_nodes.forgotten(recorded, live.keys(), inventory.keys())):
            await self._forget(name)
        members = self._members()
        nodes = [self._seen(obj, recorded, inventory, members) for obj in live.values() if not _ends(obj)]
        nodes = await self._with_what_serves(nodes)
        self.decisions = control_nodes.decide(nodes, unfit=self._unfit())
        self.steps = {name: decision.step for name, decision in self.decisions.items()}
        for name, decision in self.decisions.items():
            await self._carry_out(live[name], decision)
        under_way = any(one.step in _UNDER_WAY for one in self.decisions.values())
        return LOOK_SECONDS if under_way or self._refused else None

    # --- looking ---------------------------------------------------------------------------------------

    def _seen(
        self,
        obj: Object,
        recorded: Mapping[str, Record],
        inventory: Mapping[str, frozenset[str]],
        members: Callable[[str], Member],
    ) -> Node:
        meta, address = obj["metadata"], internal_address(obj)
        requested, active, reported = labels_and_report(meta, CONTROL_PLANE_REQUESTED, CONTROL_PLANE_ACTIVE)
        return Node(
            name=meta["name"],
            uid=meta["uid"],
            requested=requested,
            active=active,
            reported=reported,
            ready=node_is_ready(obj),
            fits=None if address is None else address in inventory.get(meta["name"], frozenset()),
            member=members(meta["name"]),
            recorded=recorded.get(meta["name"]),
        )

    async def _with_what_serves(self, nodes: list[Node]) -> list[Node]:
        """Their API servers are asked only while a control node should leave."""
        obstacles = await self._serving.look(sorted(control_nodes.asked_whether_they_serve(nodes)))
        return [replace(node, obstacle=obstacles[node.name]) if node.name in obstacles else node for node in nodes]

    async def _ask_node(self, name: str) -> str | None:
        node = self.view.nodes.items.get((None, name))
        inventory = self.view.known_addresses
        address = None if node is None else agreed_address(node, inventory)
        return "its address is not known" if address is None else await ask_address(self.ask, address)

    def _members(self) -> Callable[[str], Member]:
        """Of a node. A member that etcd removed is gone, whatever its pod looks like: nothing deletes a dead machine's
        pods."""
        phases, plane = self.member_phases(), self.view.control_plane
        if phases is None:
            return lambda _: Member.UNKNOWN
        runs = {pod["spec"].get("nodeName") for pod in self.view.pods_named(ETCD)}
        there = Member.THERE if plane is None or self.view.hosts_etcd(plane) else Member.UNMANAGED

        def of(node: str) -> Member:
            phase = phases.get(node)
            return Member.NONE if phase == "Removed" or (phase is None and node not in runs) else there

        return of

    def _unfit(self) -> str:
        missing = [one.name for one in TWO_SLOTS if workload(self.view, one) is None]
        if missing:
            what = f"{', '.join(missing)} is not hosted, and a control node is made from the hosted workloads"
            return f'{what}; set selfHosted to "2-4" or lower'
        return ""

    def _templates(self) -> list[Object]:
        agents = self.view.daemon_sets.items.get((SYSTEM, NODE_AGENT))
        found = [workload(self.view, component) for component in TWO_SLOTS] + [agents]
        return [live["spec"]["template"] for live in found if live is not None]

    # --- acting ----------------------------------------------------------------------------------------

    async def _carry_out(self, node: Object, decision: Decision) -> None:
        name = node["metadata"]["name"]
        if decision.step is not Step.NOTHING:
            self.tell(f"{decision.step.value}: {decision.sentence}", name)
        hands = self._hands(node, decision) if decision.writes else {}
        for write in decision.writes:
            await hands[write]()

    def _hands(self, node: Object, decision: Decision) -> Mapping[Write, Callable[[], Awaitable[None]]]:
        name = node["metadata"]["name"]
        return {
            Write.RECORD_JOINING: lambda: self._remember(node, self._was(name)),
            Write.RECORD_CONTROL_NODE: lambda: self._remember(node, State.MADE),
            Write.RECORD_DISMISSED: lambda: self._remember(node, State.DISMISSED),
            Write.GRANT_READING: lambda: self._give(name),
            Write.GRANT_LEASES: lambda: self._give_leases(name),
            Write.REVOKE_READING: lambda: self._take_back(name),
            Write.REVOKE_ALL: lambda: self._take_all_back(name),
            Write.SET_REQUESTED: lambda: self._patch(node, labels={CONTROL_PLANE_REQUESTED: ""}),
            Write.SET_ACTIVE: lambda: self._patch(node, labels={CONTROL_PLANE_ACTIVE: ""}),
            Write.SAY_LEAVE: lambda: self._patch(
                node, labels={CONTROL_PLANE_ACTIVE: None}, annotations={ANNOTATION: LEAVE}
            ),
            Write.LET_MEMBER_LEAVE: _follows_the_decision,
            Write.END_PODS: lambda: self._end_what_needs_a_control_node(node),
            Write.FORGET: lambda: self._forget_record(name),
            Write.EXPLAIN: lambda: self._explain(node, decision),
        }

    def _was(self, name: str) -> State:
        """MADE if it has been a control node; JOINING if it is new or has left."""
        record = node_record.records(self.view.control_nodes).get(name)
        return State.MADE if record is not None and record.state is State.MADE else State.JOINING

    async def _remember(self, node: Object, state: State) -> None:
        meta = node["metadata"]
        if node_record.records(self.view.control_nodes).get(meta["name"]) != Record(meta["uid"], state):
            await node_record.remember(self.kube, meta["name"], Record(meta["uid"], state))

    async def _patch(self, node: Object, **changes: Mapping[str, str | None]) -> None:
        """Under the resourceVersion that was decided on. A node that has changed meanwhile is looked at again."""
        meta = node["metadata"]
        try:
            await self.kube.patch(
                "v1", "Node", meta["name"], {"metadata": {"resourceVersion": meta["resourceVersion"], **changes}}
            )
        except Conflict:
            self._refused = True

    async def _give(self, name: str) -> None:
        named = [reference for template in self._templates() for reference in references(template)]
        rights = objects.joining_rights(
            name,
            [one.name for one in named if one.kind == "Secret"],
            [one.name for one in named if one.kind == "ConfigMap"],
        )
        wanted = canonical_json(rights)
        if self._given.get(name) == wanted:
            return
        self._taken.discard(name)  # before the first write: an interrupted grant is taken back as well
        for obj in rights:
            await self.kube.apply(obj, manager=MANAGER)
        await self._give_leases(name)
        self._given[name] = wanted

    async def _give_leases(self, name: str) -> None:
        await self.kube.apply(objects.leases_binding(name), manager=MANAGER)

    async def _take_back(self, name: str) -> None:
        """Once in a term, since another leader may have granted it. Before it is said to leave: its report that it has
        left is not trusted."""
        if name in self._taken:
            return
        self._given.pop(name, None)
        for kind in (BINDING, ROLE):
            await self.kube.delete(*kind, objects.joining_name(name), SYSTEM)
        self._taken.add(name)

    async def _take_all_back(self, name: str) -> None:
        """Whatever is remembered of it: nobody looks at this node again."""
        self._taken.discard(name)
        await self._take_back(name)
        await self.kube.delete(*BINDING, objects.leases_name(name), SYSTEM)

    async def _forget(self, name: str) -> None:
        """Of a node that is gone. The record last: while it is there, this is done again."""
        await self._take_all_back(name)
        await self._forget_record(name)

    async def _forget_record(self, name: str) -> None:
        await node_record.forget(self.kube, name)
        self._taken.discard(name)

    async def _explain(self, node: Object, decision: Decision) -> None:
        said = decision.sentence
        await report(self.kube, node, "ControlNodeRefused", said, by=OPERATOR, token=said, now=self.clock.time())

    async def _end_what_needs_a_control_node(self, node: Object) -> None:
        """Removing a label stops only the pods of DaemonSets. Others are deleted one at a time, the operator's last."""
        reported = (node["metadata"].get("annotations") or {}).get(ANNOTATION)
        if reported != LEAVE or CONTROL_PLANE_ACTIVE in (node["metadata"].get("labels") or {}):
            return
        name = node["metadata"]["name"]
        there = [pod for pod in self.view.pods.items.values() if pod["spec"].get("nodeName") == name]
        unlisted = sorted((pod for pod in there if _needs_a_control_node(pod)), key=_turn)
        if unlisted and not any(_ends(pod) for pod in unlisted):
            pod = unlisted[0]["metadata"]["name"]
            self.tell(f"pod {pod} is deleted: it needs a control node", f"{name} pods")
            await self.kube.delete("v1", "Pod", pod, SYSTEM)


def phases_of(members: Reflector) -> Mapping[str, str] | None:
    """Node → the phase of its EtcdMember, from the watched copy; None while that is not current."""
    return {name: _phase(obj) for (_, name), obj in members.items.items()} if current([members]) else None


def _phase(member: Object) -> str:
    """Removed counts only if it is also requested: otherwise the status is an old one."""
    phase: str = (member.get("status") or {}).get("phase", "Pending")
    return "Pending" if phase == "Removed" and member["spec"].get("state") != "Removed" else phase


_SETTLED = (Step.NOTHING, Step.REMEMBER, Step.FORGET)
_UNDER_WAY = (Step.WAIT, Step.GRANT, Step.REMOVE_MEMBER, Step.DISMISS, Step.MARK)


async def _follows_the_decision() -> None:
    """The EtcdMember follows the operator's decision: `control.etcd.operator`."""


def _ends(obj: Object) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def _needs_a_control_node(pod: Object) -> bool:
    """Of a Deployment whose pods run on control nodes only. Static pods and those of DaemonSets stop without help."""
    owners = {owner["kind"] for owner in pod["metadata"].get("ownerReferences") or ()}
    return CONTROL_PLANE_ACTIVE in (pod["spec"].get("nodeSelector") or {}) and owners == {"ReplicaSet"}


def _turn(pod: Object) -> tuple[bool, str]:
    labels = pod["metadata"].get("labels") or {}
    return labels.get(NAME_LABEL) == OPERATOR, pod["metadata"]["name"]
