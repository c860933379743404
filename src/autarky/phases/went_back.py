"""Whether what this operation has applied to a workload has gone back since: then it has failed, though all that is
live now is available.

Contract: only what this process has applied, or has found to be as wanted, is compared; an edit by somebody else is no
failure of ours. Before the operator takes a revision back, it notes so in the Secret with the last good one: which of
both it was is known as soon as the change is seen. The condition RolledBack may come later, or be of something earlier.

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
from autarky.control.rollout.manifests import failure_in, secret_name, template_in
from autarky.errors import UserError
from autarky.model import patience
from autarky.model.components import COMPONENTS, JUDGED
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

    async def look(self) -> None:
        """UserError once something has gone back."""
        names = await changed(self.context)
        if back := {name: why for name in names if (why := await _why_back(self.context, name))}:
            raise UserError(
                f"what was applied to {', '.join(back)} has gone back: {'; '.join(back.values())}",
                fix="fix what the cluster file says of it, and run `autarky up` again",
            )
        self.edited = names


async def _why_back(context: Context, workload: str) -> str:
    """Why the operator has taken back what was applied; empty where it has not. workload: "DaemonSet kube-proxy"."""
    kind, name = workload.split()
    live = await context.kube().get(APPS, kind, name, SYSTEM)
    secret = await context.kube().get("v1", "Secret", secret_name(name), SYSTEM) if name in JUDGED else None
    good, failure = template_in(secret), failure_in(secret, revision_of(context.applied[kind, name]))
    if live is None or good is None or failure is None or live["spec"]["template"] != good:
        return ""
    return f"{name}: {failure.sentence}; {failure.again(COMPONENTS[name].for_kubectl)}"


# --- what may yet go back --------------------------------------------------------------------------------------------


async def unjudged(context: Context, workloads: Sequence[Object]) -> list[str]:
    """Those whose verdict is to be waited for, as far as one look says: "DaemonSet kube-proxy". workloads: as rendered.
    What is as wanted and on trial counts, though this process has not applied it: the `up` that did was interrupted."""
    plane = await live_control_plane(context.kube())
    if _all_is_judged(plane):
        return []
    await _remember_unjudged(context, workloads)
    return await _on_trial(context, plane)


async def _remember_unjudged(context: Context, workloads: Sequence[Object]) -> None:
    for wanted in workloads:
        kind, name = wanted["kind"], wanted["metadata"]["name"]
        live = None if (kind, name) in context.applied else await context.kube().get(APPS, kind, name, SYSTEM)
        if live is not None and await _may_go_back(context, name, live["spec"]["template"]):
            remember_as_wanted(context, await ownership.look(context.kube(), wanted, take_ownership=False))


async def _on_trial(context: Context, plane: Object | None) -> list[str]:
    """The workloads that were applied while another revision is the last good one."""
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


def _all_is_judged(plane: Object | None) -> bool:
    """By the operator's word."""
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
        plane = await live_control_plane(self.context.kube())
        names = await self._names(plane)
        if not names:
            return None
        now = self.context.clock.monotonic()
        if not _all_is_judged(plane):
            self._since = None
        elif self._since is None:
            self._since = now
        elif now - self._since >= patience.REPORTED:
            return None
        return f"{', '.join(names)}: on trial; until it has proved healthy, the operator may take it back"

    async def names(self) -> list[str]:
        """But for what is somebody's edit."""
        return await self._names(await live_control_plane(self.context.kube()))

    async def _names(self, plane: Object | None) -> list[str]:
        return [one for one in await _on_trial(self.context, plane) if one not in self.applied.edited]
