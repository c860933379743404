"""Unpivot: hosted workloads of levels that are not hosted any more are removed. The operator decides and acts
(`control/levels`): it removes each once its standby has served on every control node, and the kubelet's, behind which
the hosts' kubelets wait, at once. This waits for it, and says what it waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autarky.control.common.shapes import condition
from autarky.control.levels import act as hosting
from autarky.control.status.decide import SPEC_APPLIED
from autarky.engine.deadline import NotYet, poll_until
from autarky.engine.phase import Change
from autarky.model import patience
from autarky.model.components import COMPONENTS, MOVED, WITH_STANDBY
from autarky.phases.context import Context
from autarky.phases.pivot import hosted_pods
from autarky.phases.version_check import live_control_plane
from autarky.ports import Progress
from autarky.render.values import SYSTEM

RETIRED_SECONDS = patience.STANDBY_SERVES
END_SECONDS = patience.HOSTED_ENDS


@dataclass(frozen=True, slots=True)
class RetireHosted:
    name: str = "retire-hosted"
    title: str = "Wait until what is no longer hosted is removed"
    timeout: float = patience.most(RETIRED_SECONDS, END_SECONDS)
    needs: tuple[str, ...] = ("start-agents", "apply-agents")

    async def plan(self, context: Context) -> Sequence[Change]:
        if not await context.api_answers():
            return []
        return [
            Change(f"wait until {COMPONENTS[component].kind} {SYSTEM}/{component} is deleted{_once(component)}")
            for component in await unlisted(context)
        ]

    async def run(self, context: Context, progress: Progress) -> None:
        """Unless a control node is off, for which the operator waits as long as it takes."""
        components, off = await unlisted(context), _control_nodes_off(context)
        stay = [one for one in components if one in WITH_STANDBY] if off else []
        for component in components:
            if component not in stay:
                await _until_retired(context, component, progress)
                await _until_hosted_pods_ended(context, component, progress)
                progress.note(f"{component} runs {_where(component)} only")
        if stay:
            progress.note(
                f"{' and '.join(stay)} stays hosted until {', '.join(off)} is back, or no longer a control node;"
                " then the operator goes on"
            )


async def unlisted(context: Context) -> list[str]:
    """The components whose level is not hosted and whose hosted workload is there, in the order in which they go."""
    unwanted = [c for c in MOVED if not context.cluster.hosts_level(COMPONENTS[c].level)]
    return [c for c in unwanted if await _is_there(context, c)]


def _once(component: str) -> str:
    return ", once its standby serves" if component in WITH_STANDBY else ""


def _where(component: str) -> str:
    return "as static pods" if component in WITH_STANDBY else "as a unit of the hosts"


def _control_nodes_off(context: Context) -> list[str]:
    return sorted(node.name for node in context.cluster.control_nodes if node.name in context.absent)


async def _is_there(context: Context, component: str) -> bool:
    live = await context.kube().get(hosting.APPS, COMPONENTS[component].kind, component, SYSTEM)
    return live is not None


async def _until_retired(context: Context, component: str, progress: Progress) -> None:
    async def retired() -> str | None:
        return await _why_not(context) if await _is_there(context, component) else None

    what = f"the operator has removed the hosted {component}"
    await poll_until(
        what, retired, timeout=RETIRED_SECONDS, still=patience.STEP, progress=progress, clock=context.clock
    )


async def _why_not(context: Context) -> str:
    """In the operator's own words."""
    plane = await live_control_plane(context.kube()) or {}
    said = condition(plane, SPEC_APPLIED)
    return str(said.get("message", "")) if said else "the operator has not said anything about it yet"


async def _until_hosted_pods_ended(context: Context, component: str, progress: Progress) -> None:
    async def ended() -> NotYet | None:
        pods = await hosted_pods(context.kube(), component)
        names = [pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName") not in context.absent]
        return NotYet(f"still there: {', '.join(names)}", -len(names)) if names else None

    what = f"the hosted pods of {component} have ended"
    await poll_until(what, ended, timeout=END_SECONDS, still=patience.STEP, progress=progress, clock=context.clock)
