"""Applying the rendered objects: server-side apply, each part under its own field manager.

Contract: an object is applied when it is absent, or when what we render for it has changed since it was
last applied (its annotation says which rendering it is). Edits by `kubectl` of anything else stand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autarky.engine.deadline import poll_until
from autarky.engine.phase import Change
from autarky.errors import ApiError
from autarky.phases.context import Context
from autarky.ports import Object, Progress
from autarky.render.objects import Part, parts
from autarky.render.values import RENDERED_HASH, Inputs


@dataclass(frozen=True, slots=True)
class ApplyObjects:
    name: str = "apply-objects"
    title: str = "Apply the hosted components"
    timeout: float = 180

    async def plan(self, context: Context) -> Sequence[Change]:
        return await ApplyParts(parts).plan(context)

    async def run(self, context: Context, progress: Progress) -> None:
        await ApplyParts(parts).run(context, progress)


@dataclass(frozen=True, slots=True)
class ApplyParts:
    """Applies what of the rendered parts is not there yet."""

    render: Callable[[Inputs], list[Part]]

    async def plan(self, context: Context) -> Sequence[Change]:
        if not await context.api_answers():
            return [Change("apply all objects, once the API answers")]
        stale = await stale_parts(context, self.render(context.inputs()))
        return [Change(f"apply {describe(obj)}") for part in stale for obj in part.objects]

    async def run(self, context: Context, progress: Progress) -> None:
        for part in await stale_parts(context, self.render(context.inputs())):
            await _apply_part(context, part, progress)


async def _apply_part(context: Context, part: Part, progress: Progress) -> None:
    """All objects side by side; the first failure cancels the rest and is raised alone."""
    try:
        async with asyncio.TaskGroup() as group:
            for obj in part.objects:
                group.create_task(apply_when_possible(context, obj, part.manager, progress))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def stale_parts(context: Context, wanted: Sequence[Part]) -> list[Part]:
    """The parts with only those objects that must be applied, in order."""

    async def stale(obj: Object) -> bool:
        return not await is_applied(context, obj)

    result = []
    for part in wanted:
        verdicts = await asyncio.gather(*(stale(obj) for obj in part.objects))
        objects = tuple(obj for obj, verdict in zip(part.objects, verdicts, strict=True) if verdict)
        if objects:
            result.append(Part(part.name, objects))
    return result


async def is_applied(context: Context, obj: Object) -> bool:
    """Whether the live object carries the annotation of this very rendering."""
    meta = obj["metadata"]
    try:
        live = await context.kube().get(obj["apiVersion"], obj["kind"], meta["name"], meta.get("namespace"))
    except ApiError as error:
        if error.status == 404:  # its definition is not there yet
            return False
        raise
    if live is None:
        return False
    annotations = live["metadata"].get("annotations") or {}
    return bool(annotations.get(RENDERED_HASH) == meta["annotations"][RENDERED_HASH])


async def apply_when_possible(context: Context, obj: Object, manager: str, progress: Progress) -> None:
    """Apply, waiting for what an API server that has just started does not serve yet: RBAC of its own,
    namespaces, a definition that is not established."""

    async def attempt() -> str | None:
        await context.kube().apply(obj, manager=manager)
        return None

    await poll_until(f"{describe(obj)} is applied", attempt, timeout=60, progress=progress, clock=context.clock)


def describe(obj: Object) -> str:
    meta = obj["metadata"]
    namespace = f"{meta['namespace']}/" if "namespace" in meta else ""
    return f"{obj['kind']} {namespace}{meta['name']}"
