"""Applying the rendered objects: server-side apply, each part under its own field manager.

Contract: an object is applied when it is absent, or when what we render for it has changed since it was last applied.
Edits by others of anything else stand (see `ownership`). While an upgrade is under way, the operator alone decides on
the versions of what it steps through: these workloads are left alone. None of them is taken to an earlier version from
here: that is an upgrade's work, in its order (rule 4). Only an image that somebody has set goes with all other edits
that are taken back, where the operator says which version the control plane has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from autarky.control.common.skew import image_version
from autarky.control.drift.decide.field_owners import Edit
from autarky.control.upgrade.decide import reported
from autarky.control.upgrade.decide.steps import ORDER
from autarky.engine.deadline import poll_until
from autarky.engine.phase import Change, Kept, Warn
from autarky.errors import ApiError, Conflict
from autarky.model import patience
from autarky.phases import etcd_asked, ownership, renewals, went_back
from autarky.phases.admit import judging
from autarky.phases.context import Context
from autarky.phases.ownership import Look
from autarky.phases.refused import warnings_of_new_policies
from autarky.phases.version_check import live_control_plane
from autarky.ports import Object, Progress
from autarky.render import access
from autarky.render.objects import Part, parts
from autarky.render.values import MANAGED_BY, Inputs


@dataclass(frozen=True, slots=True)
class ApplyObjects:
    name: str = "apply-objects"
    title: str = "Apply the hosted components"
    timeout: float = 180
    # An upgrade that is refused must not be done in one pass by what is applied.
    needs: tuple[str, ...] = ("upgrade-control-plane", "start-control-plane", "record-applied")

    async def plan(self, context: Context) -> Sequence[Change | Kept | Warn]:
        under_way = await _upgrade_under_way(context)
        former = [Change(f"delete {name}, which an earlier release created") for name in await _former(context)]
        return [*await _all(context).plan(context), *former, *under_way, *await warnings_of_new_policies(context)]

    async def run(self, context: Context, progress: Progress) -> None:
        await renewals.refuse_former(context, progress)
        async with judging(context, context.present(context.cluster.nodes), progress):
            await _all(context).run(context, progress)
            for name in await _former(context):
                await context.kube().delete(*_FORMER[name])
                progress.note(f"deleted {name}, which an earlier release created")


async def _upgrade_under_way(context: Context) -> list[Warn]:
    plane = await live_control_plane(context.kube()) if await context.api_answers() else None
    if plane is None or not _is_the_upgrades(context, plane, planned=True):
        return []
    is_noted = bool(reported.noted_versions(plane))
    state = f"is under way{_soaks(plane)}" if is_noted else "was asked for through the API"
    what = f"an upgrade to {reported.wanted_version(plane)} {state}"
    return [
        Warn(
            f"{what}: {', '.join(ORDER)} are left to it"
            " (`autarky upgrade status`); run `autarky up` again when it is complete"
        )
    ]


def _soaks(plane: Object) -> str:
    found = reported.read(plane)
    return f" ({found.message})" if found is not None and found.state is reported.State.SOAKING else ""


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
            for part in await self._parts(context, planned=True)
            for found in await _look_at(context, part, planned=True)
            for finding in ownership.findings(found)
        ]

    async def run(self, context: Context, progress: Progress) -> None:
        for part in await self._parts(context):
            await _apply_part(context, part, progress)

    async def _parts(self, context: Context, *, planned: bool = False) -> list[Part]:
        parts = self.render(await etcd_asked.with_own_image(context, context.inputs()))
        if not any(_is_stepped_through(obj) for part in parts for obj in part.objects):
            return parts
        if not await _is_left_to_an_upgrade(context, planned=planned):
            return parts
        return [replace(part, objects=tuple(o for o in part.objects if not _is_stepped_through(o))) for part in parts]


def _is_stepped_through(obj: Object) -> bool:
    """Whether an upgrade changes it, version by version."""
    return obj["kind"] in ("DaemonSet", "Deployment") and obj["metadata"]["name"] in ORDER


async def _is_left_to_an_upgrade(context: Context, *, planned: bool = False) -> bool:
    """What an upgrade steps through."""
    plane = await live_control_plane(context.kube())
    return plane is not None and _is_the_upgrades(context, plane, planned=planned)


def _is_the_upgrades(context: Context, plane: Object, *, planned: bool) -> bool:
    """Whether an upgrade is under way, or is about to be, since another version is asked for than we render. While
    ownership is taken, the file's own version takes that back: only what is noted counts then. planned: as it will be
    when an upgrade of ours, which a dry run does not make, is complete."""
    ours, asked = context.cluster.kubernetes_version, reported.wanted_version(plane)
    if reported.noted_versions(plane):
        return True
    is_taken_back = context.take_ownership and (context.version_in_file or ours) == ours
    is_to_come = planned and context.upgrade_from is not None
    return asked is not None and asked != ours and not is_taken_back and not is_to_come


async def _look_at(context: Context, part: Part, *, planned: bool = False) -> list[Look]:
    return list(await asyncio.gather(*(_look(context, obj, planned=planned) for obj in part.objects)))


async def _look(context: Context, obj: Object, *, planned: bool = False) -> Look:
    try:
        found = await ownership.look(context.kube(), obj, take_ownership=context.take_ownership)
        if not _lowers(found) or (planned and context.upgrade_from is not None):
            return found
        is_an_edit = found.taken and await _is_known_to_the_operator(context)
        return found if is_an_edit else _left_alone(found)
    except ApiError as error:
        if error.status == 404:  # its CRD is not there yet
            return ownership.judge(obj, None, take_ownership=False)
        raise


async def _is_known_to_the_operator(context: Context) -> bool:
    """Which version the control plane has. A ControlPlane object that was deleted and made again says only ours."""
    plane = await live_control_plane(context.kube())
    return plane is not None and reported.complete_version(plane) is not None


def _lowers(found: Look) -> bool:
    """Whether one that an upgrade steps through would get an image of an earlier version."""
    if found.live is None or found.to_apply is None or not _is_stepped_through(found.wanted):
        return False
    has, gets = (image_version(_image(one)) for one in (found.live, found.to_apply))
    return has is not None and gets is not None and gets < has


def _left_alone(found: Look) -> Look:
    assert found.live is not None  # noqa: S101 # it would be lowered
    name = found.wanted["metadata"]["name"]
    field = f"spec.template.spec.containers[{name}].image"
    edit = Edit(ownership.subject_of(found.wanted), field, _image(found.wanted), _image(found.live))
    kept = [one for one in (*found.kept, *found.taken) if one.field != field]
    return replace(found, to_apply=None, kept=(*kept, edit), taken=(), unlisted=())


def _image(workload: Object) -> str:
    """Of the component's own container."""
    name, containers = workload["metadata"]["name"], workload["spec"]["template"]["spec"]["containers"]
    return next((str(one.get("image", "")) for one in containers if one["name"] == name), "")


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
        if _is_stepped_through(found.wanted):
            await _apply_beside_upgrades(context, found.wanted, manager, progress)
        else:
            went_back.remember(context, await ownership.carry_out(context.kube(), found, manager))
        return None

    what = f"{describe(found.wanted)} is applied"
    await poll_until(what, attempt, timeout=patience.WRITTEN, progress=progress, clock=context.clock)


async def _apply_beside_upgrades(context: Context, wanted: Object, manager: str, progress: Progress) -> None:
    """Looked at again first, then at the ControlPlane: an upgrade may begin at any moment, by an edit and without any
    lock of ours. Its note comes before its first step; so a step that we have not seen makes our write a conflict, and
    after one that we have seen there is the note. Controllers write to the object's status all the time, which is a
    conflict as well."""
    left = ownership.EXCHANGE_TRIES
    while True:
        left -= 1
        found = await _look(context, wanted)
        if await _is_left_to_an_upgrade(context):
            progress.note(f"{describe(wanted)} is left to the upgrade that was asked for meanwhile")
            return
        went_back.remember_as_wanted(context, found)
        try:
            went_back.remember(context, await ownership.carry_out(context.kube(), _as_seen(found), manager))
        except Conflict:
            if not left:
                raise
        else:
            return


def _as_seen(found: Look) -> Look:
    """To be applied only to the object as it was looked at."""
    if found.live is None or found.to_apply is None:
        return found
    meta = {**found.to_apply["metadata"], "resourceVersion": found.live["metadata"]["resourceVersion"]}
    return replace(found, to_apply={**found.to_apply, "metadata": meta})


describe = ownership.subject_of
"""A name for an object, as plans have it."""
