"""Unpivot: hosted workloads of levels that are not (or no longer) hosted are removed, once their standbys serve.

Contract: rule 1: nothing is deleted before the standby on every control node answers by itself (level 3) and
through the load balancer (level 2). Which standbys run is decided and done by the pivot and the node agents;
this only removes what they have replaced. Rule 10: it does so for a change of level, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autarky.control.common.pods import pod_health
from autarky.control.levels import act as hosting
from autarky.control.levels.decide import moves as levels
from autarky.control.slots.decide.pivot import Health
from autarky.engine.deadline import NotYet, poll_until
from autarky.engine.phase import Change
from autarky.model import patience
from autarky.model.cluster import Node
from autarky.model.components import API_SERVER, COMPONENTS, STANDBY, WITH_STANDBY
from autarky.phases.context import Context
from autarky.phases.pivot import hosted_pods, is_balanced
from autarky.ports import Progress
from autarky.render.values import SYSTEM

SERVE_SECONDS = patience.STANDBY_SERVES
END_SECONDS = patience.HOSTED_ENDS


@dataclass(frozen=True, slots=True)
class RetireHosted:
    name: str = "retire-hosted"
    title: str = "Remove what is no longer hosted"
    timeout: float = patience.most(SERVE_SECONDS, END_SECONDS)

    async def plan(self, context: Context) -> Sequence[Change]:
        if not await context.api_answers():
            return []
        return [
            Change(f"delete {COMPONENTS[component].kind} {SYSTEM}/{component}, once its standby serves")
            for component in await superfluous(context)
        ]

    async def run(self, context: Context, progress: Progress) -> None:
        for component in await superfluous(context):
            await _until_standbys_serve(context, component, progress)
            await hosting.retire(context.kube(), component)
            await _until_hosted_pods_ended(context, component, progress)
            progress.note(f"{component} runs as static pods only")


async def superfluous(context: Context) -> list[str]:
    """The components whose level is not hosted and whose hosted workload is there."""
    unwanted = [c for c in WITH_STANDBY if not context.cluster.hosts_level(COMPONENTS[c].level)]
    return [c for c in unwanted if await context.kube().get(hosting.APPS, COMPONENTS[c].kind, c, SYSTEM) is not None]


async def _until_standbys_serve(context: Context, component: str, progress: Progress) -> None:
    memory = levels.Memory()

    async def serve() -> NotYet | None:
        nonlocal memory
        standbys = {
            node.name: await _serves(context, node, component)
            for node in context.present(context.cluster.control_nodes)
        }
        seen = levels.Seen(hosted=False, workload=True, standbys=standbys)
        decision = levels.decide(seen, memory, context.clock.monotonic())
        memory = decision.memory
        return None if decision.step is levels.Step.RETIRE else NotYet(decision.sentence, sum(standbys.values()))

    what = f"the standby of {component} serves on every control node"
    await poll_until(what, serve, timeout=SERVE_SECONDS, still=patience.STEP, progress=progress, clock=context.clock)


async def _serves(context: Context, node: Node, component: str) -> bool:
    if component == API_SERVER:
        servers = (f"{node.name}-standby", f"{node.name}-spare")
        return any([await is_balanced(context, node, server) for server in servers])
    labels = COMPONENTS[component].selector(STANDBY)
    pods = context.kube().each("v1", "Pod", namespace=SYSTEM, labels=labels)
    return any([pod_health(pod) is Health.READY async for pod in pods if pod["spec"].get("nodeName") == node.name])


async def _until_hosted_pods_ended(context: Context, component: str, progress: Progress) -> None:
    async def ended() -> NotYet | None:
        names = [pod["metadata"]["name"] for pod in await hosted_pods(context.kube(), component)]
        return NotYet(f"still there: {', '.join(names)}", -len(names)) if names else None

    what = f"the hosted pods of {component} have ended"
    await poll_until(what, ended, timeout=END_SECONDS, still=patience.STEP, progress=progress, clock=context.clock)
