"""The user's own add-ons, from the directory `addons/` beside the cluster file.

Contract: file by file in the order of their names, each one applied completely and healthy before the next; by
server-side apply under a field manager of its own. Edits of others stand, and are reported, until the file itself says
something new of that field (`ownership`). What the API understands is compared, not what the file spells: that is
asked by a dry run, which changes nothing. Nothing is deleted here (`inventory`).

What is autarky's own is refused before the first write. What the API refuses is an error that names file and document;
what may pass (a kind that is not served yet, a webhook that starts) is tried again for a while.

A DaemonSet that lacks pods on workers only, and gets no further, is named with them, and the next file is applied, and
so is a Deployment that lacks only those on one of them: a worker must not be able to keep add-ons from the cluster
(`held_up`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autarky.control.addons import health
from autarky.control.addons.own import FIRST, as_stored, is_one_of_ours, marked
from autarky.control.drift.decide import applied
from autarky.control.drift.decide.field_owners import OURS, other_writers
from autarky.control.inventory.decide.pruning import ADD_ONS
from autarky.engine.deadline import NotYet, poll_until
from autarky.engine.phase import Change, Kept, Warn
from autarky.errors import ApiError, Problems, UserError
from autarky.model import patience
from autarky.model.own_add_ons import OwnObject
from autarky.phases import ownership
from autarky.phases.context import Context
from autarky.phases.held_up import HeldUp
from autarky.phases.ownership import Look, subject_of
from autarky.ports import Kube, Object, Progress

MANAGER = f"{OURS}{ADD_ONS}"
REFUSED = (400, 403, 413, 422)
"""What the API answers where trying again is of no use."""
NAMED = 3
"""How many objects a message names."""
MOST_PODS = 100_000
"""One more healthy object is more progress than any number of pods."""


@dataclass(frozen=True, slots=True)
class ApplyAddOns:
    name: str = "apply-add-ons"
    title: str = "Apply your own add-ons"
    timeout: float = 3600
    needs: tuple[str, ...] = ("record-applied", "apply-objects", "join-nodes")

    async def plan(self, context: Context) -> Sequence[Change | Kept | Warn]:
        own = context.own_add_ons
        if own is None or not own.objects:
            return []
        if not await context.api_answers():
            return [Change(f"apply the add-ons in {own.directory}, once the API answers")]
        return [finding for one in own.objects for finding in await _findings(context, one)]

    async def run(self, context: Context, progress: Progress) -> None:
        own = context.own_add_ons
        for file, objects in () if own is None else own.files():
            await _apply_file(context, file, objects, progress)


def refuse_ours(context: Context) -> None:
    """Problems with all objects in the directory that are autarky's own."""
    own = context.own_add_ons
    wrong = [] if own is None else [one for one in own.objects if is_one_of_ours(dict(one.content))]
    if own is not None and wrong:
        raise Problems(
            f"the add-ons in {own.directory} have objects of autarky's own",
            [
                UserError(
                    f"{subject_of(dict(one.content))} is part of the cluster itself",
                    where=one.where,
                    fix="remove it, or give it another name; what autarky applies is changed in the cluster file or"
                    " with `kubectl edit`",
                )
                for one in wrong
            ],
        )


# --- looking -----------------------------------------------------------------------------------------


async def located(kube: Kube, one: OwnObject) -> Object:
    """The object as it is applied: marked, and in the namespace `default` where it needs one and names none."""
    obj: Object = {**one.content, "metadata": {**one.content["metadata"]}}
    meta = obj["metadata"]
    try:
        await kube.get(obj["apiVersion"], obj["kind"], meta["name"], meta.get("namespace"))
    except ValueError:  # whether the kind has namespaces
        if meta.pop("namespace", None) is None:
            meta["namespace"] = "default"
    except ApiError as error:
        if error.status != 404:
            raise  # 404: its kind is not served yet
    return marked(obj, one.file)


async def look(kube: Kube, wanted: Object, *, take_ownership: bool) -> Look:
    """Beside the live one, in the API's own spelling."""
    meta = wanted["metadata"]
    live = await kube.get(wanted["apiVersion"], wanted["kind"], meta["name"], meta.get("namespace"))
    spelled = wanted if live is None else await _spelled(kube, wanted)
    return ownership.judge(spelled, live, take_ownership=take_ownership)


async def _spelled(kube: Kube, wanted: Object) -> Object:
    try:
        stored = await kube.apply(wanted, manager=MANAGER, dry_run=True)
    except ApiError as error:
        if error.status == 400:  # a webhook that knows no dry runs
            return wanted
        raise
    return {**as_stored(stored, wanted), **{name: wanted[name] for name in ("apiVersion", "kind", "metadata")}}


async def _findings(context: Context, one: OwnObject) -> list[Change | Kept]:
    try:
        wanted = await located(context.kube(), one)
        found = await look(context.kube(), wanted, take_ownership=context.take_ownership)
    except ApiError as error:
        if error.status != 404:
            raise _refusal(one, error) from error
        return [Change(f"apply {subject_of(dict(one.content))} of {one.file}, once the API serves its kind")]
    said = ownership.findings(found)
    if found.to_apply is None and (lacks := health.lacking(found.live, absent=len(context.absent))) is not None:
        said.append(Change(f"wait: {subject_of(wanted)} {lacks}"))
    return [_with_losses(finding, found) for finding in said]


def _with_losses(finding: Change | Kept, found: Look) -> Change | Kept:
    """Where nothing says what was applied last, edits of others cannot be seen apart from it, and go with it."""
    if not isinstance(finding, Change) or found.live is None or found.to_apply is None:
        return finding
    others = other_writers(found.live)
    if applied.record_of(found.live) is not None or not others:
        return finding
    return Change(f"{finding.sentence}, over what {', '.join(others)} has written")


def _refusal(one: OwnObject, error: ApiError) -> Exception:
    """A UserError where trying again is of no use."""
    if error.status not in REFUSED:
        return error
    return UserError(
        f"the API refuses {subject_of(dict(one.content))}: {error}",
        where=one.where,
        fix="correct it; what cannot be changed in place (a Job, a selector) has to be deleted first, or renamed",
    )


# --- applying ----------------------------------------------------------------------------------------


async def _apply_file(context: Context, file: str, objects: Sequence[OwnObject], progress: Progress) -> None:
    changed = 0
    for one in sorted(objects, key=lambda one: one.content["kind"] not in FIRST):
        changed += await _apply(context, one, progress)
    all_healthy = await _until_healthy(context, file, objects, progress)
    if changed:
        progress.note(f"{file}: {changed} of {len(objects)} objects changed{', all healthy' if all_healthy else ''}")


async def _apply(context: Context, one: OwnObject, progress: Progress) -> bool:
    """Whether something was changed."""
    kube, changed = context.kube(), False

    async def attempt() -> str | None:
        nonlocal changed
        try:
            found = await look(kube, await located(kube, one), take_ownership=context.take_ownership)
            if found.live is None:  # its record has the API's own spelling from the start
                found = ownership.judge(await _spelled(kube, found.wanted), None, take_ownership=False)
            changed = await ownership.carry_out(kube, found, MANAGER) is not None
        except ApiError as error:
            raise _refusal(one, error) from error
        return None

    what = f"{subject_of(dict(one.content))} of {one.file} is applied"
    await poll_until(what, attempt, timeout=patience.WRITTEN, progress=progress, clock=context.clock)
    return changed


async def _until_healthy(context: Context, file: str, objects: Sequence[OwnObject], progress: Progress) -> bool:
    """Whether all of it is; otherwise all but what workers hold up, which is named."""
    kube, absent, held_up = context.kube(), len(context.absent), HeldUp(context)
    excused = dict[str, str]()

    async def missing() -> NotYet | None:
        lacking, come = list[str](), 0
        excused.clear()
        for one in objects:
            wanted = await located(kube, one)
            meta = wanted["metadata"]
            live = await kube.get(wanted["apiVersion"], wanted["kind"], meta["name"], meta.get("namespace"))
            if (why := health.failed(live)) is not None:
                raise UserError(f"{subject_of(wanted)} {why}", where=one.where, fix="see its events and logs")
            lacks = health.lacking(live, absent=absent)
            if lacks is not None and (workers := await held_up.by(subject_of(wanted), live)):
                excused[subject_of(wanted)] = f"{lacks}, and only on workers: {_some(workers)}"
                lacks = None
            lacking += [] if lacks is None else [f"{subject_of(wanted)} {lacks}"]
            come += health.come(live)
        come += (len(objects) - len(lacking)) * MOST_PODS
        return NotYet(_some(lacking, "; "), come) if lacking else None

    await poll_until(
        f"what {file} of your add-ons applies is healthy",
        missing,
        timeout=patience.WORKLOADS,
        still=patience.STEP,
        progress=progress,
        clock=context.clock,
    )
    for subject, why in excused.items():
        progress.note(f"warning: {file}: {subject} {why}; it is not waited for any longer")
    return not excused


def _some(what: Sequence[str], between: str = ", ") -> str:
    more = f"{between}and {len(what) - NAMED} more" if len(what) > NAMED else ""
    return between.join(what[:NAMED]) + more
