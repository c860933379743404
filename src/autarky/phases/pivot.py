"""The pivot: the hosted slots take over from the standbys. `control/slots/decide/pivot.py` decides for the API server
and `control/leadership/decide/leader.py` for level 3, as in the node agents; this only looks and acts.

Look: the hosted pods' readiness as their kubelet saw it on their own port, whether the load balancer considers the
hosted API server healthy, who renews the leases of level 3, which standbys are active. Act: activate, withdraw, and
wait for the pods of a withdrawn standby to end.

Where a node has its agent, only the agent withdraws a standby of level 3: it knows which pods did not lead when they
could have, which single looks do not show. Here it is only waited for, and not for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from autarky.control.common.pods import is_mirror, is_ready, pod_health, said_to_run
from autarky.control.common.slim import slim_pod
from autarky.control.leadership.decide import leader as leadership
from autarky.control.leadership.decide import reported as level_3_told
from autarky.control.slots import manifests as standby
from autarky.control.slots.decide import pivot as slots
from autarky.engine.deadline import NotYet, poll_until
from autarky.engine.phase import Change
from autarky.errors import ApiError, CommandFailed, Unreachable
from autarky.model import patience, ports
from autarky.model.cluster import Node
from autarky.model.components import (
    API_SERVER,
    COMPONENTS,
    HOSTED,
    LED_BY_LEASE,
    NAME_LABEL,
    SLOT_LABEL,
    STANDBY,
    WITH_STANDBY,
)
from autarky.phases.context import Context, for_each
from autarky.phases.prepare import CTR
from autarky.phases.standbys import cares_for_its_slots
from autarky.ports import Host, Kube, Object, Progress
from autarky.render.values import CONTROL_PLANE_ACTIVE, SYSTEM

LEASE = ("coordination.k8s.io/v1", "Lease")
PIVOT_TIMEOUT = patience.PIVOT
AGENT_SECONDS = 20.0
"""How long a node's agent is waited for to withdraw a standby of level 3 that could go, as far as can be seen here."""
POLL_SECONDS = 0.5
"""Each look runs three commands on every control node, while all of them start API servers."""


@dataclass(frozen=True, slots=True)
class Pivot:
    name: str = "pivot"
    title: str = "Pivot to the hosted control plane"
    timeout: float = patience.most(PIVOT_TIMEOUT)

    async def plan(self, context: Context) -> Sequence[Change]:
        if not await context.api_answers():
            return [Change(f"pivot {c} to its wanted slot") for c in WITH_STANDBY]
        return [
            Change(f"pivot {component} on {name} to its {_wanted(context, component)} slot")
            for name, seen in (await look_everywhere(context)).items()
            for component, view in seen.items()
            if not Judge().judge(wanted_slot(context, component), view, 0.0).settled
        ]

    async def run(self, context: Context, progress: Progress) -> None:
        """All nodes side by side: each standby is judged by its own node's hosted slot."""
        await poll_until(
            "the control plane runs in its wanted slots",
            Driver(context, progress).step,
            timeout=PIVOT_TIMEOUT,
            still=patience.STEP,
            progress=progress,
            clock=context.clock,
            interval=POLL_SECONDS,
        )


def pivoting(context: Context) -> tuple[Node, ...]:
    """The nodes whose slots are ours to look after: control nodes made by their label are left to their agents."""
    return context.present(context.cluster.initial_members)


def wanted_slot(context: Context, component: str) -> slots.Slot:
    hosted = context.cluster.hosts_level(COMPONENTS[component].level)
    return slots.Slot.HOSTED if hosted else slots.Slot.STANDBY


def _wanted(context: Context, component: str) -> str:
    return wanted_slot(context, component).value


LEFT_TO_AGENT = "its standby stays until the agent of its node, whose log says more, trusts a hosted pod to lead"
View = slots.Seen | leadership.Seen
"""One observation of a component on a node: of the API server, or of what leads by a lease."""


@dataclass(slots=True)
class Judge:
    """What one component on one node needs, look after look. by_agent: whether the node has an agent of its own. first:
    the lease as it was at the first look."""

    by_agent: bool = False
    _slot: slots.Memory = field(default_factory=slots.Memory)
    _lease: leadership.LeaseMemory = field(default_factory=leadership.LeaseMemory)
    first: leadership.Lease | None = None
    _dispensable_since: float | None = None

    def judge(self, wanted: slots.Slot, view: View, now: float) -> slots.Decision:
        """As the node's own agent does. Where there is none yet, a second of being Ready is enough: the agents cover
        pods that exit later, and the next look brings back a standby whose lease nobody takes. Where there is one, no
        standby of level 3 is withdrawn here, and after a while one that stays counts as settled."""
        if isinstance(view, slots.Seen):
            decision = slots.decide(wanted, view, self._slot, now)
            self._slot = decision.memory
            return decision
        settle = leadership.SETTLE_SECONDS if self.by_agent else slots.SETTLE_SECONDS
        found = leadership.decide(wanted, view, self._lease, now, settle=settle)
        self._lease, self.first = found.memory, self.first or view.lease
        return self._left_to_agent(found.decision, now) if self.by_agent else found.decision

    def _left_to_agent(self, decision: slots.Decision, now: float) -> slots.Decision:
        if slots.Action.WITHDRAW_STANDBY not in decision.actions:
            self._dispensable_since = None
            return decision
        if self._dispensable_since is None:
            self._dispensable_since = now
        if now - self._dispensable_since < AGENT_SECONDS:
            return replace(decision, actions=(), sentence="its standby could go; the agent of its node decides")
        return replace(decision, actions=(), sentence=LEFT_TO_AGENT, settled=True)

    def has_settled(self, wanted: slots.Slot, view: View, decision: slots.Decision) -> bool:
        """Where a lease decides, only when it was seen to be renewed: a lease that is held may be a dead process's."""
        if isinstance(view, slots.Seen) or wanted is slots.Slot.STANDBY or not decision.settled:
            return decision.settled
        return view.lease is not None and bool(view.lease.holder) and view.lease != self.first


async def judges(context: Context) -> dict[tuple[str, str], Judge]:
    """(node, component) → its judge."""
    by_agent = await for_each(pivoting(context), lambda node: cares_for_its_slots(context.host(node)))
    return {(name, component): Judge(found) for name, found in by_agent.items() for component in WITH_STANDBY}


@dataclass(slots=True)
class Driver:
    """Observe → decide → act for all nodes, until every component has settled on each."""

    context: Context
    progress: Progress
    judges: dict[tuple[str, str], Judge] = field(default_factory=dict)
    _told: set[tuple[str, str]] = field(default_factory=set)
    _steps: set[tuple[object, ...]] = field(default_factory=set)
    """Every state in which a component of a node was seen. Their number only grows, also where nodes roll one
    after the other and the next one starts as far back as the one before; and they are few, even if they recur."""

    async def step(self) -> NotYet | None:
        """One reconcile; None when all have settled, else what is still open."""
        if not self.judges:
            self.judges = await judges(self.context)
        seen = await look_everywhere(self.context)
        now = self.context.clock.monotonic()
        open_ = await for_each(pivoting(self.context), lambda node: self._node(node, seen[node.name], now))
        sentences = [sentence for each in open_.values() for sentence in each]
        return NotYet("; ".join(sentences), len(self._steps)) if sentences else None

    async def _node(self, node: Node, seen: Mapping[str, View], now: float) -> list[str]:
        """What is still open."""
        open_ = []
        for component, view in seen.items():
            judge, wanted = self.judges[node.name, component], wanted_slot(self.context, component)
            decision = judge.judge(wanted, view, now)
            for action in decision.actions:
                await self._act(node, component, action, decision.sentence)
            if (state := _state(view)) is not None:
                self._steps.add((node.name, component, *state))
            if not judge.has_settled(wanted, view, decision):
                open_.append(f"{component} on {node.name}: {decision.sentence}")
                continue
            if decision.sentence == LEFT_TO_AGENT and (node.name, component) not in self._told:
                self._told.add((node.name, component))
                self.progress.note(f"{component} on {node.name}: {decision.sentence}")
        return open_

    async def _act(self, node: Node, component: str, action: slots.Action, why: str) -> None:
        verb = {slots.Action.ACTIVATE_STANDBY: "activate", slots.Action.WITHDRAW_STANDBY: "withdraw"}[action]
        self.progress.note(f"{component} on {node.name}: {why}")
        try:
            await self.context.host(node).run([standby.SCRIPT_PATH, verb, component])
        except CommandFailed as error:
            if error.status != standby.NO_LOCK:
                raise
            self.progress.note(f"{component} on {node.name}: tried again, since {error.stderr.strip()}")


def _state(view: View) -> tuple[object, ...] | None:
    """What counts as a step of a wait; None where nothing could be seen."""
    if view.hosted is slots.Health.UNKNOWN:
        return None
    balanced = isinstance(view, slots.Seen) and bool(view.balanced)
    return view.hosted, balanced, view.standby_active


# --- looking ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ApiSeen:
    """What the API said: the hosted pods, the nodes that could lead level 3, and component → its lease."""

    pods: list[Object]
    ready_control_nodes: frozenset[str]
    leases: Mapping[str, Object | None]


async def look_everywhere(context: Context) -> dict[str, dict[str, View]]:
    """One observation of every component on every node: node → component → what was seen. The API server is covered
    where another node has it: hosted, or as its standby."""
    api = await _api_seen(context.kube())
    seen = await for_each(pivoting(context), lambda node: look(context, node, api))
    return {
        name: {
            component: replace(view, covered=_is_elsewhere(seen, name, component))
            if isinstance(view, slots.Seen)
            else view
            for component, view in views.items()
        }
        for name, views in seen.items()
    }


def _is_elsewhere(seen: Mapping[str, Mapping[str, View]], node: str, component: str) -> bool:
    others = [views[component] for name, views in seen.items() if name != node]
    return any(view.standby_active or view.hosted is slots.Health.READY for view in others)


async def look(context: Context, node: Node, api: ApiSeen | None) -> dict[str, View]:
    """One observation of every component on one control node; `api`: None where it could not be read."""
    host = context.host(node)
    listing, balanced, running = await asyncio.gather(
        host.run([standby.SCRIPT_PATH, "list"]),
        is_balanced(context, node, f"{node.name}-hosted"),
        _running(host),
    )
    active = {component: bool(a) for component, (_, a) in standby.parse_list(listing.text).items()}
    pods = None if api is None else api.pods
    seen: dict[str, View] = {}
    for component in WITH_STANDBY:
        hosted = _health(pods, component, node, running)
        if component == API_SERVER:
            seen[component] = slots.Seen(hosted, active.get(component), balanced, balancer_applies=True)
        else:
            hostname = context.facts[node.name].hostname if node.name in context.facts else node.name
            seen[component] = _led(component, node.name, hostname, hosted, active.get(component), api)
    return seen


def _led(
    component: str,
    node: str,
    hostname: str,
    hosted: slots.Health,
    standby_active: bool | None,  # as it was seen
    api: ApiSeen | None,
) -> leadership.Seen:
    """What the node's own agent would see of it."""
    if api is None:
        return leadership.Seen(hosted, None, standby_active, None, readable=False)
    found = api.leases[component]
    lease = None if found is None else leadership.lease_of(found)
    told = level_3_told.Told(level_3_told.candidates(api.pods, api.ready_control_nodes, component))
    own = _own_pods(api.pods, component, node)
    newest = max(own, key=lambda pod: (is_ready(pod), pod["metadata"].get("creationTimestamp", "")), default=None)
    return leadership.Seen(
        hosted=hosted,
        hosted_pod=None if newest is None else newest["metadata"].get("uid"),
        standby_active=standby_active,
        lease=lease,
        readable=True,
        elsewhere=leadership.is_held_elsewhere(lease, hostname),
        candidates=told.elsewhere(node),
    )


async def _api_seen(kube: Kube) -> ApiSeen | None:
    try:
        pods = await hosted_pods(kube)
        nodes = await kube.list("v1", "Node")
        leases = {name: await kube.get(*LEASE, name, SYSTEM) for name in LED_BY_LEASE}
    except (Unreachable, ApiError):
        return None
    of_control = [node for node in nodes if CONTROL_PLANE_ACTIVE in (node["metadata"].get("labels") or {})]
    return ApiSeen(pods, frozenset(node["metadata"]["name"] for node in of_control if is_ready(node)), leases)


async def _running(host: Host) -> frozenset[str] | None:
    """The ids of the containers that run on the host; None when its container runtime does not answer."""
    listed = await host.run([*CTR, "tasks", "ls"], check=False)
    rows = [line.split() for line in listed.text.splitlines()]
    return frozenset(row[0] for row in rows if row[-1:] == ["RUNNING"]) if listed.status == 0 else None


async def hosted_pods(kube: Kube, component: str = "") -> list[Object]:
    """Those that a controller created, not a static pod that poses as one; of all components where none is named."""
    labels = COMPONENTS[component].selector(HOSTED) if component else f"{SLOT_LABEL}={HOSTED}"
    return [pod async for pod in kube.each("v1", "Pod", namespace=SYSTEM, labels=labels) if not is_mirror(pod)]


async def is_balanced(context: Context, node: Node, server: str) -> bool | None:
    """Whether the node's load balancer sends new connections to that server ("n1-hosted"); None when it does
    not answer."""
    script = (
        f"exec 3<>/dev/tcp/127.0.0.1/{ports.NLLB_HEALTH} && "
        f"printf 'GET /{server} HTTP/1.0\\r\\n\\r\\n' >&3 && read -r line <&3 && echo \"$line\""
    )
    answer = await context.host(node).run(["bash", "-c", script], check=False)
    return " 200 " in answer.text if answer.status == 0 else None


def _health(pods: list[Object] | None, component: str, node: Node, running: frozenset[str] | None) -> slots.Health:
    """The best pod of the component on this node."""
    if pods is None:
        return slots.Health.UNKNOWN
    healths = {pod_health(pod, runs=_runs(pod, running)) for pod in _own_pods(pods, component, node.name)}
    order = (slots.Health.READY, slots.Health.UNKNOWN, slots.Health.NOT_READY, slots.Health.TERMINATING)
    return next((health for health in order if health in healths), slots.Health.ABSENT)


def _own_pods(pods: list[Object], component: str, node: str) -> list[Object]:
    of_component = [pod for pod in pods if pod["metadata"]["labels"].get(NAME_LABEL) == component]
    return [pod for pod in of_component if pod["spec"].get("nodeName") == node]


def _runs(pod: Object, running: frozenset[str] | None) -> bool | None:
    return None if running is None else said_to_run(pod) <= running


# --- after ------------------------------------------------------------------------------------------


async def withdrawn_pods(context: Context) -> list[str]:
    """The pods of standbys that were withdrawn and have not ended: an API server drains for a few seconds."""
    pods = context.kube().each("v1", "Pod", namespace=SYSTEM, labels=f"{SLOT_LABEL}={STANDBY}")
    left = [slim_pod(pod) async for pod in pods if _component_of(pod) in WITH_STANDBY]
    nodes = [node for node in pivoting(context) if any(pod["spec"].get("nodeName") == node.name for pod in left)]
    active = await for_each(nodes, lambda node: _active(context, node))
    return sorted(
        pod["metadata"]["name"]
        for pod in left
        if _component_of(pod) not in active.get(pod["spec"].get("nodeName"), WITH_STANDBY)
    )


def _component_of(pod: Object) -> str:
    """By its label; "" for a pod of somebody else that has none."""
    component: str = pod["metadata"]["labels"].get(NAME_LABEL, "")
    return component


async def _active(context: Context, node: Node) -> set[str]:
    """The components whose standby is meant to run on the node."""
    listing = await context.host(node).run([standby.SCRIPT_PATH, "list"])
    return {component for component, (_, activations) in standby.parse_list(listing.text).items() if activations}
