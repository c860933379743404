"""Applying the rendered objects: server-side apply, each part under its own field manager.

Contract: an object is applied when it is absent, or when what we render for it has changed since it was
last applied. Edits by others of anything else stand (see `ownership`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autarky.engine.deadline import poll_until
from autarky.engine.phase import Change, Kept, Warn
from autarky.errors import ApiError
from autarky.model import patience
from autarky.phases import ownership, renewals, went_back
from autarky.phases.admit import judging
from autarky.phases.context import Context
from autarky.phases.ownership import Look
from autarky.phases.refused import warnings_of_new_policies
from autarky.ports import Object, Progress
from autarky.render import access
from autarky.render.objects import Part, parts
from autarky.render.values import MANAGED_BY, Inputs


@dataclass(frozen=True, slots=True)
class ApplyObjects:
    name: str = "apply-objects"
    title: str = "Apply the hosted components"
    timeout: float = 180
    needs: tuple[str, ...] = ("start-control-plane",)

    async def plan(self, context: Context) -> Sequence[Change | Kept | Warn]:
        former = [Change(f"delete {name}, which an earlier release created") for name in await _former(context)]
        return [*await _all(context).plan(context), *former, *await warnings_of_new_policies(context)]

    async def run(self, context: Context, progress: Progress) -> None:
        await renewals.refuse_former(context, progress)
        async with judging(context, context.present(context.cluster.nodes), progress):
            await _all(context).run(context, progress)
            for name in await _former(context):
                await context.kube().delete(*_FORMER[name])
                progress.note(f"deleted {name}, which an earlier release created")


_FORMER = {f"{kind} {name}": (api_version, kind, name) for api_version, kind, name in access.FORMER}


async def _former(context: Context) -> list[str]:
    """Those of ours that still exist; one that somebody else created under such a name is theirs."""
    if not await context.api_answers():
        return []
    found = []
    for description, reference in _FORMER.items():
        live = await context.kube().get(*reference)
        if live is not None and MANAGED_BY.items() <= (live["metadata"].get("labels") or {}).items():
            found.append(description)
    return found


def _all(context: Context) -> ApplyParts:
    return ApplyParts(lambda inputs: parts(inputs, context.in_file))


@dataclass(frozen=True, slots=True)
class ApplyParts:
    """Applies those objects of the rendered parts that are absent or outdated."""

    render: Callable[[Inputs], list[Part]]

    async def plan(self, context: Context) -> Sequence[Change | Kept]:
        if not await context.api_answers():
            return [Change("apply all objects, once the API answers")]
        return [
            finding
            for part in self.render(context.inputs())
            for found in await _look_at(context, part)
            for finding in ownership.findings(found)
        ]

    async def run(self, context: Context, progress: Progress) -> None:
        for part in self.render(context.inputs()):
            await _apply_part(context, part, progress)


async def _look_at(context: Context, part: Part) -> list[Look]:
    return list(await asyncio.gather(*(_look(context, obj) for obj in part.objects)))


async def _look(context: Context, obj: Object) -> Look:
    try:
        return await ownership.look(context.kube(), obj, take_ownership=context.take_ownership)
    except ApiError as error:
        if error.status == 404:  # its CRD is not there yet
            return ownership.judge(obj, None, take_ownership=False)
        raise


async def _apply_part(context: Context, part: Part, progress: Progress) -> None:
    """All objects side by side; the first failure cancels the rest and is raised alone."""
    looks = await _look_at(context, part)
    stale = [found for found in looks if found.to_apply is not None]
    for found in looks:
        went_back.remember_as_wanted(context, found)
    try:
        async with asyncio.TaskGroup() as group:
            for found in stale:
                group.create_task(_apply_when_possible(context, found, part.manager, progress))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def _apply_when_possible(context: Context, found: Look, manager: str, progress: Progress) -> None:
    """Apply, waiting for what an API server that has just started does not serve yet: its own RBAC,
    namespaces, a CRD that is not established."""

    async def attempt() -> str | None:
        went_back.remember(context, await ownership.carry_out(context.kube(), found, manager))
        return None

    what = f"{describe(found.wanted)} is applied"
    await poll_until(what, attempt, timeout=patience.WRITTEN, progress=progress, clock=context.clock)


describe = ownership.subject_of
"""A name for an object, as plans have it."""
