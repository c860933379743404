"""Whether what this operation has applied to a workload has gone back since: then it has failed, though all that is
live now is available.

Contract: only what this process has applied, or has found to be as wanted, is compared; an edit by somebody else is no
failure of ours. The operator reports what went back, in the condition RolledBack.

It may go back as long as the operator judges it, which takes longer than until it is available: until it is kept as
the last good revision. Where there is none yet, as at a first `up`, or rollbacks are switched off, nothing can go back.
What is healthy and cannot be kept has been judged as well: then only the condition RolloutsSettled says so, and that
counts once it has for a while, since it may be from before the change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autarky.control.common.shapes import condition, within
from autarky.control.rollout.decide.good_revision import revision_of
from autarky.control.rollout.manifests import secret_name, template_in
from autarky.errors import UserError
from autarky.model import patience
from autarky.model.components import JUDGED
from autarky.phases import ownership
from autarky.phases.context import Context
from autarky.phases.ownership import Look
from autarky.phases.version_check import live_control_plane
from autarky.ports import Object
from autarky.render.values import SYSTEM

APPS, KINDS = "apps/v1", ("DaemonSet", "Deployment")
JUDGED_EVERY = 2.0
"""Between two looks at what is on trial, which read Secrets; a verdict takes 40 s and more."""


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
    edited: Sequence[str] = ()
    """Those that somebody else has changed, as of the last look."""
    _since: float | None = None

    async def look(self) -> str | None:
        """None where nothing has gone back; a sentence while the operator may yet report it. UserError once it has."""
        names = await changed(self.context)
        if not names:
            self._since, self.edited = None, ()
            return None
        reported = await _reported(self.context)
        if back := [name for name in names if f"{name.split()[1]}: " in reported]:
            raise UserError(
                f"what was applied to {', '.join(back)} has gone back: {reported}",
                fix="fix what the cluster file says of it, and run `autarky up` again",
            )
        now = self.context.clock.monotonic()
        self._since = now if self._since is None else self._since
        self.edited = names if now - self._since >= patience.REPORTED else ()
        return None if self.edited else f"{', '.join(names)}: somebody has changed what was applied"


async def _reported(context: Context) -> str:
    """What the operator says of rollouts that went back; empty where it says nothing."""
    plane = await live_control_plane(context.kube()) or {}
    back = condition(plane, "RolledBack")
    return " ".join(str(back.get("message", "")).split()) if back.get("status") == "True" else ""


# --- what may yet go back --------------------------------------------------------------------------------------------


async def unjudged(context: Context, workloads: Sequence[Object]) -> list[str]:
    """Those whose verdict is to be waited for, as far as one look says: "DaemonSet kube-proxy". workloads: as rendered.
    What is as wanted and on trial counts, though this process has not applied it: the `up` that did was interrupted."""
    if await _all_is_judged(context):
        return []
    await _remember_unjudged(context, workloads)
    return await on_trial(context)


async def _remember_unjudged(context: Context, workloads: Sequence[Object]) -> None:
    for wanted in workloads:
        kind, name = wanted["kind"], wanted["metadata"]["name"]
        live = None if (kind, name) in context.applied else await context.kube().get(APPS, kind, name, SYSTEM)
        if live is not None and await _may_go_back(context, name, live["spec"]["template"]):
            remember_as_wanted(context, await ownership.look(context.kube(), wanted, take_ownership=False))


async def on_trial(context: Context) -> list[str]:
    """The workloads that were applied while another revision is the last good one."""
    plane = await live_control_plane(context.kube())
    if within(plane, "spec", "rollback", "enabled") is False:
        return []
    applied = context.applied.items()
    return [f"{kind} {name}" for (kind, name), template in applied if await _may_go_back(context, name, template)]


async def _may_go_back(context: Context, name: str, template: Object) -> bool:
    """Whether another revision of that component is known to be good."""
    if name not in JUDGED:
        return False
    good = template_in(await context.kube().get("v1", "Secret", secret_name(name), SYSTEM))
    return good is not None and revision_of(good) != revision_of(template)


async def _all_is_judged(context: Context) -> bool:
    """By the operator's word."""
    plane = await live_control_plane(context.kube())
    return condition(plane, "RolloutsSettled").get("status") == "True"


@dataclass(slots=True)
class Trial:
    """Looks again and again, in one wait, after `applied` has looked. What has changed since then is for its next
    look: it may have gone back."""

    context: Context
    applied: WentBack
    _since: float | None = None
    """Since when the operator has said that all is judged."""

    async def look(self) -> str | None:
        """None where nothing may go back any more; else a sentence."""
        names = await self.names()
        if not names:
            return None
        now = self.context.clock.monotonic()
        if not await _all_is_judged(self.context):
            self._since = None
        elif self._since is None:
            self._since = now
        elif now - self._since >= patience.REPORTED:
            return None
        return f"{', '.join(names)}: on trial; until it has proved healthy, the operator may take it back"

    async def names(self) -> list[str]:
        """But for what is somebody's edit."""
        return [one for one in await on_trial(self.context) if one not in self.applied.edited]
