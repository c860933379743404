"""The pivot: the hosted slots take over from the standbys. `decide/slots.py` decides; this only looks and acts.

Look: the hosted pods' readiness as their kubelet saw it on their own port, whether the load balancer
holds the hosted API server for healthy, which standbys are active. Act: activate, withdraw, and wait for
the pods of a withdrawn standby to end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from autarky.decide import slots
from autarky.decide.pods import pod_health
from autarky.engine.deadline import poll_until
from autarky.engine.phase import Change
from autarky.errors import ApiError, Unreachable
from autarky.model import ports
from autarky.model.cluster import Level, Node
from autarky.phases.context import Context, for_each
from autarky.ports import Host, Kube, Object, Progress
from autarky.render import api_server, standby
from autarky.render.values import SYSTEM

LEVELS = dict.fromkeys(standby.COMPONENTS, Level.CONTROLLERS) | {api_server.COMPONENT: Level.API_SERVER}
PIVOT_TIMEOUT = 240.0
POLL_SECONDS = 0.5
"""Each look runs three commands on every control node, while all of them start API servers."""


@dataclass(frozen=True, slots=True)
class Pivot:
    name: str = "pivot"
    title: str = "Pivot to the hosted control plane"
    timeout: float = 300

    async def plan(self, context: Context) -> Sequence[Change]:
        if not await context.api_answers():
            return [Change(f"pivot {c} to its wanted slot") for c in standby.COMPONENTS]
        return [
            Change(f"pivot {component} on {name} to its {_wanted(context, component)} slot")
            for name, seen in (await look_everywhere(context)).items()
            for component, view in seen.items()
            if not slots.decide(wanted_slot(context, component), view, slots.Memory(), 0.0).settled
        ]

    async def run(self, context: Context, progress: Progress) -> None:
        """All nodes side by side: each standby is judged by its own node's hosted slot."""
        await poll_until(
            "the control plane runs in its wanted slots",
            Driver(context, progress).step,
            timeout=PIVOT_TIMEOUT,
            progress=progress,
            clock=context.clock,
            interval=POLL_SECONDS,
        )


def pivoting(context: Context) -> tuple[Node, ...]:
    """The nodes whose slots are ours to look after: those that join by their label are their agents' own."""
    return context.present(context.cluster.founders)


def wanted_slot(context: Context, component: str) -> slots.Slot:
    hosted = context.cluster.hosts_level(LEVELS[component])
    return slots.Slot.HOSTED if hosted else slots.Slot.STANDBY


def _wanted(context: Context, component: str) -> str:
    return wanted_slot(context, component).value


@dataclass(slots=True)
class Driver:
    """Observe → decide → act for all nodes, until every component has settled on each."""

    context: Context
    progress: Progress
    memory: dict[tuple[str, str], slots.Memory] = field(default_factory=dict)

    async def step(self) -> str | None:
        """One round; None when all have settled, else what is still open."""
        seen = await look_everywhere(self.context)
        now = self.context.clock.monotonic()
        open_ = await for_each(pivoting(self.context), lambda node: self._node(node, seen[node.name], now))
        return "; ".join(sentence for sentence in open_.values() if sentence) or None

    async def _node(self, node: Node, seen: Mapping[str, slots.Seen], now: float) -> str:
        open_ = []
        for component, view in seen.items():
            key = (node.name, component)
            wanted = wanted_slot(self.context, component)
            decision = slots.decide(wanted, view, self.memory.get(key, slots.Memory()), now)
            self.memory[key] = decision.memory
            for action in decision.actions:
                await self._act(node, component, action, decision.sentence)
            if not decision.settled:
                open_.append(f"{component} on {node.name}: {decision.sentence}")
        return "; ".join(open_)

    async def _act(self, node: Node, component: str, action: slots.Action, why: str) -> None:
        verb = {slots.Action.ACTIVATE_STANDBY: "activate", slots.Action.WITHDRAW_STANDBY: "withdraw"}[action]
        self.progress.note(f"{component} on {node.name}: {why}")
        await self.context.host(node).run([standby.SCRIPT_PATH, verb, component])


# --- looking ---------------------------------------------------------------------------------------


async def look_everywhere(context: Context) -> dict[str, dict[str, slots.Seen]]:
    """One observation of every component on every node: node → component → what was seen. A component is covered
    where another node has it: hosted, or as its standby."""
    pods = await _hosted_pods(context.kube())
    seen = await for_each(pivoting(context), lambda node: look(context, node, pods))
    return {
        name: {
            component: replace(view, covered=_is_elsewhere(seen, name, component)) for component, view in views.items()
        }
        for name, views in seen.items()
    }


def _is_elsewhere(seen: Mapping[str, Mapping[str, slots.Seen]], node: str, component: str) -> bool:
    others = [views[component] for name, views in seen.items() if name != node]
    return any(view.standby_active or view.hosted is slots.Health.READY for view in others)


async def look(context: Context, node: Node, pods: list[Object] | None) -> dict[str, slots.Seen]:
    """One observation of every component on one control node; `pods`: the hosted ones, None where unknown."""
    host = context.host(node)
    listing, balanced, booted = await asyncio.gather(
        host.run([standby.SCRIPT_PATH, "list"]),
        is_balanced(context, node, f"{node.name}-hosted"),
        _booted(host),
    )
    active = {component: bool(a) for component, (_, a) in standby.parse_list(listing.text).items()}
    return {
        component: slots.Seen(
            hosted=_health(pods, component, node, booted),
            standby_active=active.get(component),
            balanced=balanced,
            balancer_applies=component == api_server.COMPONENT,
        )
        for component in standby.COMPONENTS
    }


async def _hosted_pods(kube: Kube) -> list[Object] | None:
    try:
        return await kube.list("v1", "Pod", namespace=SYSTEM, labels="autarky.dev/slot=hosted")
    except (Unreachable, ApiError):
        return None


async def _booted(host: Host) -> datetime | None:
    """When this boot of the node began, as its standby script noted; None when it did not."""
    noted = await host.read(standby.BOOT_FILE)
    try:
        return None if noted is None else standby.parse_boot(noted.decode())[1]
    except ValueError:
        return None


async def is_balanced(context: Context, node: Node, server: str) -> bool | None:
    """Whether the node's load balancer sends new connections to that server ("n1-hosted"); None when it does
    not say."""
    script = (
        f"exec 3<>/dev/tcp/127.0.0.1/{ports.NLLB_HEALTH} && "
        f"printf 'GET /{server} HTTP/1.0\\r\\n\\r\\n' >&3 && read -r line <&3 && echo \"$line\""
    )
    answer = await context.host(node).run(["bash", "-c", script], check=False)
    return " 200 " in answer.text if answer.status == 0 else None


def _health(pods: list[Object] | None, component: str, node: Node, booted: datetime | None) -> slots.Health:
    """The best pod of the component: on this node for the API server; for level 3 any node's pod will do,
    since the lease and not the place decides who acts."""
    if pods is None:
        return slots.Health.UNKNOWN
    anywhere = LEVELS[component] is Level.CONTROLLERS
    mine = [
        pod
        for pod in pods
        if pod["metadata"]["labels"].get("k8s-app") == component
        and (anywhere or pod["spec"].get("nodeName") == node.name)
    ]
    healths = {pod_health(pod, booted if pod["spec"].get("nodeName") == node.name else None) for pod in mine}
    order = (slots.Health.READY, slots.Health.NOT_READY, slots.Health.TERMINATING)
    return next((health for health in order if health in healths), slots.Health.ABSENT)


# --- after ------------------------------------------------------------------------------------------


async def withdrawn_pods(context: Context) -> list[str]:
    """The pods of standbys that were withdrawn and have not ended: an API server drains for a few seconds."""
    pods = await context.kube().list("v1", "Pod", namespace=SYSTEM, labels="autarky.dev/slot=standby")
    left = [pod for pod in pods if pod["metadata"]["labels"]["k8s-app"] in standby.COMPONENTS]
    nodes = [node for node in pivoting(context) if any(pod["spec"].get("nodeName") == node.name for pod in left)]
    active = await for_each(nodes, lambda node: _active(context, node))
    return sorted(
        pod["metadata"]["name"]
        for pod in left
        if pod["metadata"]["labels"]["k8s-app"] not in active.get(pod["spec"].get("nodeName"), standby.COMPONENTS)
    )


async def _active(context: Context, node: Node) -> set[str]:
    """The components whose standby is meant to run on the node."""
    listing = await context.host(node).run([standby.SCRIPT_PATH, "list"])
    return {component for component, (_, activations) in standby.parse_list(listing.text).items() if activations}
