"""The inventory of what `up` has applied, in the ConfigMap kube-system/autarky-applied, and the deletion of what is no
longer wanted (`control.inventory.decide`).

Contract: what is to be applied is noted before it is applied, together with what was noted before; only after the rest
has been deleted the note is of what is wanted. So a command that is killed at any point neither forgets an object nor
deletes one that is wanted. An object is deleted only as it was just looked at, by its uid and resourceVersion.

What cannot be read is as if there were no inventory: then nothing is deleted but what an earlier release is known to
have left.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from autarky.control.common.pods import has_ended
from autarky.control.inventory import manifests
from autarky.control.inventory.decide import references
from autarky.control.inventory.decide.entries import Entry, Identity, entry_of, merged, written
from autarky.control.inventory.decide.pruning import ADD_ONS, Fate, Seen, Verdict, decide, obsolete
from autarky.control.rollout.manifests import secret_name, template_in
from autarky.engine.deadline import NotYet, poll_until
from autarky.engine.phase import Change, Warn
from autarky.errors import ApiError, Conflict, TimedOut
from autarky.model import patience
from autarky.model.cluster import Level
from autarky.model.components import COMPONENTS, COREDNS, JUDGED, NAME_LABEL
from autarky.phases import ownership
from autarky.phases.context import Context
from autarky.phases.own_add_ons import located
from autarky.ports import Object, Progress
from autarky.render.objects import Part, agent_parts, parts
from autarky.render.values import MANAGED_BY, SYSTEM, is_named_by_content, is_ours

TRIES = 5
"""Objects of which controllers write the status change all the time."""
ENDS = 90.0
"""Seconds for pods that still use what is to be deleted."""
WHERE = f"ConfigMap {SYSTEM}/{manifests.NAME}"


@dataclass(frozen=True, slots=True)
class RecordApplied:
    """What was applied and what is going to be, before that."""

    name: str = "record-applied"
    title: str = "Note what is going to be applied"
    timeout: float = 120
    needs: tuple[str, ...] = ("start-control-plane",)

    async def plan(self, context: Context) -> Sequence[Change | Warn]:
        if not await context.api_answers():
            return [Change(f"note in {WHERE} what is applied, once the API answers")]
        noted = await _noted(context)
        new = len(merged(noted.entries, await _wanted(context, noted))) - len(noted.entries)
        if not noted.is_there:
            return [*noted.warnings, Change(f"note in {WHERE} what is applied")]
        return [Change(f"note {new} more objects in {WHERE}")] if new or noted.is_stale else []

    async def run(self, context: Context, progress: Progress) -> None:
        noted = await _noted(context)
        await _note(context, merged(noted.entries, await _wanted(context, noted)), progress)


@dataclass(frozen=True, slots=True)
class PruneObjects:
    name: str = "prune-objects"
    title: str = "Delete what is no longer wanted"
    timeout: float = 900
    needs: tuple[str, ...] = ("record-applied", "apply-objects", "apply-agents", "await-workloads", "apply-add-ons")

    async def plan(self, context: Context) -> Sequence[Change | Warn]:
        if not await context.api_answers():
            return []
        noted = await _noted(context)
        found: list[Change | Warn] = [*_unsaid(context, noted)]
        gone = 0
        for verdict in await _verdicts(context, obsolete(noted.entries, await _wanted(context, noted))):
            gone += not verdict.stays_noted
            found += _said(verdict)
        if gone and noted.is_there and not any(isinstance(one, Change) for one in found):
            found.append(Change(f"take {gone} objects that are no longer applied out of {WHERE}"))
        return found

    async def run(self, context: Context, progress: Progress) -> None:
        noted = await _noted(context)
        wanted = await _wanted(context, noted)
        stay = [entry for entry in obsolete(noted.entries, wanted) if await _prune(context, entry, progress)]
        kept = {entry.identity for entry in [*wanted, *stay]}
        await _note(context, [e for e in merged(noted.entries, wanted) if e.identity in kept], progress)


# --- the note ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Noted:
    """is_there: whether there is an inventory that can be read. is_stale: whether it is written in another form."""

    entries: list[Entry]
    is_there: bool
    is_stale: bool = False
    warnings: list[Warn] = field(default_factory=list)

    @property
    def own(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.part == ADD_ONS]


async def _noted(context: Context) -> _Noted:
    live = await context.kube().get("v1", "ConfigMap", manifests.NAME, SYSTEM)
    entries = manifests.entries_in(live)
    if entries is None:
        why = f"{WHERE} cannot be read: what earlier runs have applied is not known, and stays"
        return _Noted(await _left_behind(context), is_there=False, warnings=[] if live is None else [Warn(why)])
    text = (live or {}).get("data", {}).get(manifests.KEY)
    # Also beside an inventory: an earlier release may have been here again since it was written.
    found = merged(entries, await _left_behind(context))
    return _Noted(found, is_there=True, is_stale=text != written(entries))


async def _left_behind(context: Context) -> list[Entry]:
    """What releases that kept no inventory have left: configurations of CoreDNS that are named by their content."""
    labels = ",".join(f"{name}={value}" for name, value in {**MANAGED_BY, NAME_LABEL: COREDNS}.items())
    found = await context.kube().list("v1", "ConfigMap", namespace=SYSTEM, labels=labels)
    return [entry_of(COREDNS, obj) for obj in found if is_named_by_content(obj)]


async def _note(context: Context, entries: Sequence[Entry], progress: Progress) -> None:
    obj = manifests.config_map(entries)

    async def attempt() -> str | None:
        await context.kube().apply(obj, manager=manifests.MANAGER)
        return None

    await poll_until(f"{WHERE} is written", attempt, timeout=patience.WRITTEN, progress=progress, clock=context.clock)


async def _wanted(context: Context, noted: _Noted) -> list[Entry]:
    """All that is applied now. The user's own add-ons stay as they are where no directory says what they are."""
    ours = [entry_of(part.name, obj) for part in _parts(context) for obj in part.objects]
    own = context.own_add_ons
    if own is None or not own.given:
        return merged(ours, noted.own)
    kube = context.kube()
    return merged(ours, [entry_of(ADD_ONS, await located(kube, one)) for one in own.objects])


def _parts(context: Context) -> list[Part]:
    inputs = context.inputs()
    return [*parts(inputs, context.in_file), *agent_parts(inputs)]


def _unsaid(context: Context, noted: _Noted) -> list[Warn]:
    own = context.own_add_ons
    if own is None or own.given or not noted.own:
        return []
    return [
        Warn(
            f"{own.directory} has no add-ons, and {len(noted.own)} objects of earlier ones are applied: they stay as"
            " they are. To have them deleted, put a file there that has nothing but a comment",
            in_plan=True,
        )
    ]


# --- what is deleted ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Users:
    """Who refers to what: (namespace, kind, name) → the workloads that stay as they are, and what goes or changes."""

    stay: dict[tuple[str, str, str], list[str]]
    go: dict[tuple[str, str, str], list[str]]

    @staticmethod
    async def of(context: Context, entries: Sequence[Entry], going: Collection[Identity] = ()) -> _Users:
        """Of these. going: what is about to be deleted itself."""
        users, named = _Users({}, {}), {(entry.kind, entry.name) for entry in entries}
        for namespace in {entry.namespace for entry in entries if entry.kind in references.KINDS}:
            for api_version, kind in references.WORKLOADS:
                for obj in await _referring(context, api_version, kind, namespace, named):
                    changes = entry_of("", obj).identity in going or await _is_about_to_change(context, obj)
                    users._add(users.go if changes else users.stay, obj)
            for obj in await _kept_as_good(context, going) if namespace == SYSTEM else ():
                users._add(users.go, obj, "the last good revision of ")
            for pod in await _referring(context, "v1", "Pod", namespace, named):
                if not has_ended(pod):
                    users._add(users.go, pod)
        return users

    def _add(self, to: dict[tuple[str, str, str], list[str]], obj: Object, what: str = "") -> None:
        for kind, name in references.of(obj):
            to.setdefault((obj["metadata"]["namespace"], kind, name), []).append(what + ownership.subject_of(obj))


async def _referring(
    context: Context, api_version: str, kind: str, namespace: str, named: Collection[references.Reference]
) -> list[Object]:
    """Those that refer to one of these. The others may be many and large, and are nobody's but their tenant's."""
    async with aclosing(context.kube().each(api_version, kind, namespace=namespace)) as found:
        return [obj async for obj in found if not references.of(obj).isdisjoint(named)]


async def _kept_as_good(context: Context, going: Collection[Identity]) -> list[Object]:
    """The last good revisions of add-ons that are there, which the operator goes back to while another is on trial. As
    it holds copies, one whose ConfigMap is gone after all can go back as well."""
    kube, found = context.kube(), list[Object]()
    for component in (COMPONENTS[name] for name in JUDGED if COMPONENTS[name].level is Level.ADD_ONS):
        live = await kube.get("apps/v1", component.kind, component.name, SYSTEM)
        if live is None or not is_ours(live) or entry_of("", live).identity in going:
            continue
        template = template_in(await kube.get("v1", "Secret", secret_name(component.name), SYSTEM))
        if template is not None:
            found.append({**live, "spec": {**live["spec"], "template": template}})
    return found


async def _verdicts(context: Context, entries: Sequence[Entry]) -> list[Verdict]:
    """As things are now, for a plan."""
    referred_to = [entry for entry in entries if entry.kind in references.KINDS]
    rest = [entry for entry in entries if entry.kind not in references.KINDS]
    of_the_rest = {e.identity: decide(e, await _look(context, e, _Users({}, {}))) for e in rest}
    going = {identity for identity, one in of_the_rest.items() if one.fate in (Fate.DELETE, Fate.WAIT)}
    users = await _Users.of(context, referred_to, going)
    return [*of_the_rest.values(), *[decide(e, await _look(context, e, users)) for e in referred_to]]


async def _is_about_to_change(context: Context, live: Object) -> bool:
    """Whether it is a workload of ours that refers to something else once it is as wanted."""
    for part in _parts(context):
        for obj in part.objects:
            if entry_of("", obj).identity == entry_of("", live).identity:
                found = await ownership.look(context.kube(), obj, take_ownership=context.take_ownership)
                return found.to_apply is not None and references.of(found.to_apply) != references.of(live)
    return False


async def _look(context: Context, entry: Entry, users: _Users) -> Seen | None:
    """None where the API cannot say."""
    try:
        live = await context.kube().get(entry.api_version, entry.kind, entry.name, entry.namespace or None)
    except ValueError:  # the kind has namespaces, or none: there is no such object
        return Seen(None)
    except ApiError as error:
        if error.status != 404:
            raise
        return None  # its kind is not served now
    key = (entry.namespace, entry.kind, entry.name)
    return Seen(live, users.stay.get(key, ()), users.go.get(key, ()))


def _said(verdict: Verdict) -> list[Change | Warn]:
    if not verdict.why:
        return []
    deletes = verdict.fate in (Fate.DELETE, Fate.WAIT)
    return [Change(verdict.why) if deletes else Warn(verdict.why, in_plan=True)]


async def _prune(context: Context, entry: Entry, progress: Progress) -> bool:
    """Whether it stays noted."""
    try:
        verdict = await _until_unused(context, entry, progress)
    except TimedOut as error:
        progress.note(f"{entry.subject} stays until the next `autarky up`: {error}")
        return True
    if verdict.fate is not Fate.DELETE:
        return verdict.stays_noted
    return await _until_gone(context, entry, progress)


async def _until_unused(context: Context, entry: Entry, progress: Progress) -> Verdict:
    """The verdict once no pod is in the way; where it is to be deleted, the deletion has been asked for."""
    found = list[Verdict]()

    async def settled() -> NotYet | None:
        seen = await _look(context, entry, await _Users.of(context, [entry]))
        verdict = decide(entry, seen)
        if verdict.fate is Fate.WAIT and verdict.why and seen is not None:
            return NotYet(f"still used by {seen.pods[0]}", -len(seen.pods))
        if verdict.fate is Fate.DELETE and not await _delete(context, entry, seen):
            return NotYet("it was changed meanwhile")
        found.append(verdict)
        return None

    what = f"{entry.subject} can be deleted"
    await poll_until(what, settled, timeout=ENDS, progress=progress, clock=context.clock)
    return found[-1]


async def _delete(context: Context, entry: Entry, seen: Seen | None) -> bool:
    """False where it was changed since it was looked at."""
    if seen is None or seen.live is None:
        return True
    try:
        await context.kube().delete(
            entry.api_version, entry.kind, entry.name, entry.namespace or None, as_read=seen.live
        )
    except Conflict:
        return False
    return True


async def _until_gone(context: Context, entry: Entry, progress: Progress) -> bool:
    """Whether it is still there: something may hold it, which only its finalizers say."""

    async def gone() -> str | None:
        live = await context.kube().get(entry.api_version, entry.kind, entry.name, entry.namespace or None)
        held = [] if live is None else live["metadata"].get("finalizers") or ["its garbage collector"]
        return f"held by {', '.join(held)}" if held else None

    try:
        what = f"{entry.subject} is gone"
        await poll_until(what, gone, timeout=patience.WRITTEN, progress=progress, clock=context.clock)
    except TimedOut as error:
        progress.note(f"{entry.subject} is being deleted: {error}")
        return True
    progress.note(f"deleted {entry.subject}, which is no longer wanted")
    return False
