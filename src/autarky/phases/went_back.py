"""Whether what this operation has applied to a workload has gone back since: then it has failed, though all that is
live now is available.

Contract: only what this process has applied, or has found to be as wanted while it applied, is compared; an edit by
somebody else is no failure of ours. The operator reports what went back, in the condition RolledBack.
"""

from __future__ import annotations

from dataclasses import dataclass

from autarky.control.common.shapes import condition
from autarky.errors import UserError
from autarky.model import patience
from autarky.phases.context import Context
from autarky.phases.ownership import Look
from autarky.phases.version_check import live_control_plane
from autarky.ports import Object
from autarky.render.values import SYSTEM

APPS, KINDS = "apps/v1", ("DaemonSet", "Deployment")


def remember_as_wanted(context: Context, found: Look) -> None:
    """What is live as it would be applied, whoever applied it: the operator, for example, which reads the ControlPlane.
    Edits by others are theirs."""
    if found.to_apply is None and not found.kept:
        remember(context, found.live)


def remember(context: Context, live: Object | None) -> None:
    """What the API has, where it has just been applied."""
    if live is not None and live["kind"] in KINDS and live["metadata"].get("namespace") == SYSTEM:
        context.applied[live["kind"], live["metadata"]["name"]] = live["spec"]["template"]


async def changed(context: Context) -> list[str]:
    """The workloads that are there with another template than was applied: "DaemonSet kube-apiserver"."""
    names = []
    for (kind, name), template in context.applied.items():
        live = await context.kube().get(APPS, kind, name, SYSTEM)
        if live is not None and live["spec"]["template"] != template:
            names.append(f"{kind} {name}")
    return names


@dataclass(slots=True)
class WentBack:
    """Looks again and again, in one wait."""

    context: Context
    _since: float | None = None

    async def look(self) -> str | None:
        """None where nothing has gone back; a sentence while the operator may yet report it. UserError once it has."""
        names = await changed(self.context)
        if not names:
            self._since = None
            return None
        reported = await _reported(self.context)
        if back := [name for name in names if f"{name.split()[1]}: " in reported]:
            raise UserError(
                f"what was applied to {', '.join(back)} has gone back: {reported}",
                fix="fix what the cluster file says of it, and run `autarky up` again",
            )
        now = self.context.clock.monotonic()
        self._since = now if self._since is None else self._since
        is_somebodys_edit = now - self._since >= patience.REPORTED
        return None if is_somebodys_edit else f"{', '.join(names)}: somebody has changed what was applied"


async def _reported(context: Context) -> str:
    """What the operator says of rollouts that went back; empty where it says nothing."""
    plane = await live_control_plane(context.kube()) or {}
    back = condition(plane, "RolledBack")
    return " ".join(str(back.get("message", "")).split()) if back.get("status") == "True" else ""
