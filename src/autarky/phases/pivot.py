"""The pivot: the hosted slots take over from the standbys. The agents of the nodes decide and act; this waits for them,
says what they do, and names what is missing.

Look: which standbys are in place on each node's disk, and the hosted pods as their kubelets saw them, if their
containers run. A component has settled when only its wanted slot is left. Where it leads by a lease, not every node
needs a hosted pod (there may be fewer of them), but no standby is left, and somebody must have been seen to renew the
lease since: one that is held may be a dead process's.

A standby of level 3 that stays although a hosted pod of its node is Ready is waited for, and not for long: the agent
knows which pods did not lead when they could have, and keeps it for minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autarky.control.common.pods import is_mirror, pod_health, said_to_run
from autarky.control.common.slim import slim_pod
from autarky.control.leadership.decide import leader as leadership
from autarky.control.slots.decide import pivot as slots
from autarky.control.slots.decide import report
from autarky.engine.deadline import NotYet, poll_until
from autarky.engine.phase import Change
from autarky.errors import ApiError, Unreachable
from autarky.model import patience
from autarky.model.cluster import Node
from autarky.model.components import COMPONENTS, HOSTED, LED_BY_LEASE, NAME_LABEL, SLOT_LABEL, STANDBY, WITH_STANDBY
from autarky.phases.context import Context, for_each
from autarky.phases.prepare import CTR
from autarky.phases.standbys import active as active_standbys
from autarky.phases.standbys import in_place
from autarky.ports import Host, Kube, Object, Progress
from autarky.render.values import SYSTEM

LEASE = ("coordination.k8s.io/v1", "Lease")
PIVOT_TIMEOUT = patience.PIVOT
KEPT_SECONDS = 20.0
"""How long a node's agent is waited for to withdraw a standby of level 3 beside which a hosted pod is Ready: twice as
long as it watches such a pod."""
POLL_SECONDS = 0.5
"""Each look runs two commands on every control node, while all of them start API servers."""


@dataclass(frozen=True, slots=True)
class Pivot:
    name: str = "pivot"
    title: str = "Pivot to the hosted control plane"
    timeout: float = patience.most(PIVOT_TIMEOUT)
    needs: tuple[str, ...] = ("apply-objects", "start-agents", "join-nodes")

    async def plan(self, context: Context) -> Sequence[Change]:
        if not await context.api_answers():
            return [Change(f"wait until {c} runs in its wanted slot") for c in WITH_STANDBY]
        return [
            Change(f"wait until {component} on {name} runs in its {wanted_slot(context, component).value} slot")
            for name, views in (await look_everywhere(context)).items()
            for component, view in views.items()
            if missing(component, wanted_slot(context, component), view) is not None
        ]

    async def run(self, context: Context, progress: Progress) -> None:
        await poll_until(
            "the control plane runs in its wanted slots",
            Wait(context, progress).step,
            timeout=PIVOT_TIMEOUT,
            still=patience.STEP,
            progress=progress,
            clock=context.clock,
            interval=POLL_SECONDS,
        )


def pivoting(context: Context) -> tuple[Node, ...]:
    """The nodes whose slots are waited for: control nodes made by their label have a wait of their own (`promote`)."""
    return context.present(context.cluster.initial_members)


def wanted_slot(context: Context, component: str) -> slots.Slot:
    hosted = context.cluster.hosts_level(COMPONENTS[component].level)
    return slots.Slot.HOSTED if hosted else slots.Slot.STANDBY


# --- judging -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class View:
    """One observation of a component on a node.

    standby_active: whether its standby is in place; None where that could not be read. lease: who holds it, where it
    leads by one. reports: whether the node's agent has reported its slots.
    """

    hosted: slots.Health
    standby_active: bool | None
    lease: leadership.Lease | None = None
    reports: bool = False


def missing(component: str, wanted: slots.Slot, view: View) -> str | None:
    """What keeps the wanted slot from being the only one, as a clause; None: nothing does."""
    if view.standby_active is None or view.hosted is slots.Health.UNKNOWN:
        return "what runs there could not be observed"
    if wanted is slots.Slot.STANDBY:
        return None if view.standby_active else "the standby is not in place yet"
    if component in LED_BY_LEASE and view.hosted is slots.Health.ABSENT and not view.standby_active:
        return None  # one of another node leads
    if view.hosted is not slots.Health.READY:
        return f"the hosted pod is {view.hosted.value}"
    if view.standby_active:
        return "the hosted pod is ready, and the standby still in place"
    return None


@dataclass(slots=True)
class Watched:
    """One component on one node, look after look. first: the lease as it was at the first look, or when its standby
    was last seen in place: that may have renewed it."""

    component: str
    first: leadership.Lease | None = None
    _kept_since: float | None = None

    def open(self, wanted: slots.Slot, view: View, now: float) -> str | None:
        """What is waited for, as a clause; None: nothing (any more)."""
        self.first = view.lease if view.standby_active else self.first or view.lease
        clause = missing(self.component, wanted, view)
        if clause is None and wanted is slots.Slot.HOSTED and self.component in LED_BY_LEASE:
            return None if self._is_renewed(view.lease) else "nobody has been seen to renew its lease"
        return None if self._is_kept(wanted, view, now) else clause

    def _is_renewed(self, lease: leadership.Lease | None) -> bool:
        return lease is not None and bool(lease.holder) and lease != self.first

    def _is_kept(self, wanted: slots.Slot, view: View, now: float) -> bool:
        """Whether the node's agent keeps a standby that could go, as far as can be seen here."""
        could_go = wanted is slots.Slot.HOSTED and view.hosted is slots.Health.READY and view.standby_active
        if not could_go or not view.reports or self.component not in LED_BY_LEASE:
            self._kept_since = None
            return False
        self._kept_since = now if self._kept_since is None else self._kept_since
        return now - self._kept_since >= KEPT_SECONDS


KEPT = "its standby stays until the agent of its node, whose log says more, trusts a hosted pod to lead"


@dataclass(slots=True)
class Wait:
    """Looks until every component has settled on each node, and says what has changed."""

    context: Context
    progress: Progress
    _watched: dict[tuple[str, str], Watched] = field(default_factory=dict)
    _kept: set[tuple[str, str]] = field(default_factory=set)
    _active: dict[tuple[str, str], bool] = field(default_factory=dict)
    _steps: set[tuple[object, ...]] = field(default_factory=set)
    """Every state in which a component of a node was seen. Their number only grows, also where nodes roll one
    after the other and the next one starts as far back as the one before; and they are few, even if they recur."""

    async def step(self) -> NotYet | None:
        """None when all have settled, else what is still open."""
        now = self.context.clock.monotonic()
        views = {
            (node, component): view
            for node, of_node in (await look_everywhere(self.context)).items()
            for component, view in of_node.items()
        }
        for one, view in views.items():
            self._tell_change(one, view)
        clauses = {one: self._open(one, view, now) for one, view in views.items()}
        open_ = _grouped({one: said for one, said in clauses.items() if said is not None})
        if not open_:
            return None
        silent = sorted({node for (node, _), view in views.items() if not view.reports})
        no_agent = f"; the agents of {', '.join(silent)} have not reported yet" if silent else ""
        return NotYet("; ".join(open_) + no_agent, len(self._steps))

    def _open(self, one: tuple[str, str], view: View, now: float) -> str | None:
        node, component = one
        watched = self._watched.setdefault(one, Watched(component))
        wanted = wanted_slot(self.context, component)
        clause = watched.open(wanted, view, now)
        if view.hosted is not slots.Health.UNKNOWN:
            self._steps.add((node, component, view.hosted, view.standby_active))
        is_kept = clause is None and wanted is slots.Slot.HOSTED and bool(view.standby_active)
        if is_kept and one not in self._kept:
            self._kept.add(one)
            self.progress.note(f"{component} on {node}: {KEPT}")
        return clause

    def _tell_change(self, one: tuple[str, str], view: View) -> None:
        """What the node's agent has done since the last look."""
        if view.standby_active is None:
            return
        before = self._active.get(one)
        self._active[one] = view.standby_active
        if before is not None and before != view.standby_active:
            done = "activated" if view.standby_active else "withdrawn"
            self.progress.note(f"{one[1]} on {one[0]}: the hosted pod is {view.hosted.value}, its standby was {done}")


def _grouped(clauses: Mapping[tuple[str, str], str]) -> list[str]:
    """(node, component) → clause, as few sentences."""
    groups: dict[tuple[str, str], list[str]] = {}
    for (node, component), clause in clauses.items():
        groups.setdefault((node, clause), []).append(component)
    return [f"{' and '.join(components)} on {node}: {clause}" for (node, clause), components in groups.items()]


# --- looking ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ApiSeen:
    """What the API said: the hosted pods, component → its lease, and the nodes whose agents have reported."""

    pods: list[Object]
    leases: Mapping[str, Object | None]
    reporting: frozenset[str]


async def look_everywhere(context: Context) -> dict[str, dict[str, View]]:
    """One observation of every component on every node: node → component → what was seen."""
    api = await _api_seen(context.kube())
    return await for_each(pivoting(context), lambda node: look(context, node, api))


async def look(context: Context, node: Node, api: ApiSeen | None) -> dict[str, View]:
    """One observation of every component on one control node; `api`: None where it could not be read."""
    host = context.host(node)
    active, running = await asyncio.gather(in_place(host), _running(host))
    return {component: _view(component, node.name, active.get(component), api, running) for component in WITH_STANDBY}


def _view(
    component: str,
    node: str,
    standby_active: bool | None,  # as it was seen
    api: ApiSeen | None,
    running: frozenset[str] | None,
) -> View:
    if api is None:
        return View(slots.Health.UNKNOWN, standby_active)
    found = api.leases.get(component)
    lease = None if found is None else leadership.lease_of(found)
    return View(_health(api.pods, component, node, running), standby_active, lease, node in api.reporting)


async def _api_seen(kube: Kube) -> ApiSeen | None:
    try:
        pods = await hosted_pods(kube)
        nodes = await kube.list("v1", "Node")
        leases = {name: await kube.get(*LEASE, name, SYSTEM) for name in LED_BY_LEASE}
    except (Unreachable, ApiError):
        return None
    metas = [node["metadata"] for node in nodes]
    reporting = {meta["name"] for meta in metas if report.ANNOTATION in (meta.get("annotations") or {})}
    return ApiSeen(pods, leases, frozenset(reporting))


async def _running(host: Host) -> frozenset[str] | None:
    """The ids of the containers that run on the host; None when its container runtime does not answer."""
    listed = await host.run([*CTR, "tasks", "ls"], check=False)
    rows = [line.split() for line in listed.text.splitlines()]
    return frozenset(row[0] for row in rows if row[-1:] == ["RUNNING"]) if listed.status == 0 else None


async def hosted_pods(kube: Kube, component: str = "") -> list[Object]:
    """Those that a controller created, not a static pod that poses as one; of all components where none is named."""
    labels = COMPONENTS[component].selector(HOSTED) if component else f"{SLOT_LABEL}={HOSTED}"
    return [pod async for pod in kube.each("v1", "Pod", namespace=SYSTEM, labels=labels) if not is_mirror(pod)]


def _health(pods: list[Object], component: str, node: str, running: frozenset[str] | None) -> slots.Health:
    """The best pod of the component on this node."""
    healths = {pod_health(pod, runs=_runs(pod, running)) for pod in _own_pods(pods, component, node)}
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
    active = await for_each(nodes, lambda node: active_standbys(context.host(node)))
    return sorted(
        pod["metadata"]["name"]
        for pod in left
        if _component_of(pod) not in active.get(pod["spec"].get("nodeName"), WITH_STANDBY)
    )


def _component_of(pod: Object) -> str:
    """By its label; "" for a pod of somebody else that has none."""
    component: str = pod["metadata"]["labels"].get(NAME_LABEL, "")
    return component
