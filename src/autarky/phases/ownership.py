"""Who owns a field, when objects are applied: edits of others stand until our own value changes.

Contract: a workload (and the ControlPlane) is compared with what is recorded on it as applied last
(`control.drift.decide.owners`). A newly wanted value is applied, also over an edit; every other edit is reported and
left alone, unless `--take-ownership` is given. A workload that a change of levels has removed counts as it was then:
its edits come back with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autarky.control.cluster_file.decide.running_version import by_the_api
from autarky.control.drift.decide import applied
from autarky.control.drift.decide.field_owners import Edit, edits
from autarky.control.drift.decide.owners import ABSENT, Comparison, Path, compare, without
from autarky.control.levels import act as hosting
from autarky.engine.phase import Change, Kept
from autarky.errors import Conflict
from autarky.model.cluster import Cluster, Level, Rollback
from autarky.model.components import ETCD, WITH_STANDBY
from autarky.phases.context import Context
from autarky.phases.version_check import live_control_plane, refuse_other_than
from autarky.ports import Kube, Object, Progress
from autarky.render.crds import control_plane
from autarky.render.values import RENDERED_HASH

EXCHANGE_TRIES = 5


@dataclass(frozen=True, slots=True)
class Look:
    """One object that is wanted, beside the live one.

    wanted: as rendered. to_apply: what is to be applied, or None. kept: edits that are left alone, taken: those
    that are reverted. unlisted: fields to remove, which applying would leave in place.
    """

    wanted: Object
    live: Object | None
    to_apply: Object | None
    kept: tuple[Edit, ...] = ()
    taken: tuple[Edit, ...] = ()
    unlisted: tuple[Path, ...] = ()


def subject_of(obj: Object) -> str:
    """ "DaemonSet kube-system/kube-apiserver"."""
    meta = obj["metadata"]
    namespace = f"{meta['namespace']}/" if "namespace" in meta else ""
    return f"{obj['kind']} {namespace}{meta['name']}"


def judge(wanted: Object, live: Object | None, *, take_ownership: bool) -> Look:
    """Compare one object with the live one (None: it is absent)."""
    if live is None:
        return Look(wanted, None, _recorded(wanted, wanted))
    same_rendering = _rendering(live) == _rendering(wanted)
    if not applied.is_recorded(wanted):
        return Look(wanted, live, None if same_rendering else wanted)
    # Without a record, the same rendering was applied last if it carries the same hash; else everything is new.
    base = applied.record_of(live) or (applied.projection(wanted) if same_rendering else {"metadata": {}, "spec": {}})
    comparison = compare(base, applied.projection(wanted), applied.projection(live))
    drifted = tuple(edits(subject_of(wanted), comparison.drifted, live))
    if take_ownership and drifted:
        return Look(wanted, live, _recorded(wanted, wanted), taken=drifted, unlisted=_unlisted_paths(comparison))
    if comparison.up_to_date:
        return Look(wanted, live, None, kept=drifted)
    merged = {**wanted, "metadata": {**wanted["metadata"]}, "spec": comparison.merged["spec"]}
    return Look(
        wanted, live, _recorded(merged, wanted), kept=drifted, unlisted=_unlisted_paths(comparison, but_drift=True)
    )


def _recorded(obj: Object, wanted: Object) -> Object:
    return applied.with_record(obj, wanted) if applied.is_recorded(wanted) else obj


def _rendering(obj: Object) -> str | None:
    text: str | None = (obj["metadata"].get("annotations") or {}).get(RENDERED_HASH)
    return text


def _unlisted_paths(comparison: Comparison, *, but_drift: bool = False) -> tuple[Path, ...]:
    """What is live and not wanted: server-side apply removes only what nobody else owns."""
    ours = [one for one in comparison.differences if not but_drift or one not in comparison.drifted]
    return tuple(one.path for one in ours if one.wanted is ABSENT and one.live is not ABSENT)


# --- looking and acting ------------------------------------------------------------------------------


async def look(kube: Kube, wanted: Object, *, take_ownership: bool) -> Look:
    """The object as it is now; one that a change of levels removed, as it was then."""
    meta = wanted["metadata"]
    live = await kube.get(wanted["apiVersion"], wanted["kind"], meta["name"], meta.get("namespace"))
    if live is not None or wanted["kind"] not in hosting.KINDS:
        return judge(wanted, live, take_ownership=take_ownership)
    retired = await hosting.retired_workload(kube, wanted)
    if retired is None:
        return judge(wanted, None, take_ownership=take_ownership)
    found = judge(wanted, retired, take_ownership=take_ownership)
    return replace(found, live=None, to_apply=found.to_apply or _as_it_was(wanted, retired), unlisted=())


def _as_it_was(wanted: Object, retired: Object) -> Object:
    """What was retired, as we would apply it: nothing new is wanted, so all its edits come back."""
    base = applied.projection(wanted)
    merged = compare(base, base, applied.projection(retired)).merged
    return _recorded({**wanted, "spec": merged["spec"]}, wanted)


async def carry_out(kube: Kube, found: Look, manager: str) -> Object | None:
    """Apply what is to be applied; returns what the API has then. Conflict when the object is changed meanwhile."""
    if found.to_apply is None:
        return None
    result = await kube.apply(found.to_apply, manager=manager)
    if found.unlisted:
        result = await _take_out(kube, result, found.unlisted)
    if found.live is None and found.wanted["kind"] in hosting.KINDS:
        await hosting.forget_retired(kube, found.wanted)
    return result


async def _take_out(kube: Kube, live: Object, unlisted: Sequence[Path]) -> Object:
    """Controllers write to the object's status all the time, which is no reason to give up."""
    left = EXCHANGE_TRIES
    while True:
        left -= 1
        try:
            return await kube.replace(without(live, unlisted))
        except Conflict:
            meta = live["metadata"]
            found = await kube.get(live["apiVersion"], live["kind"], meta["name"], meta.get("namespace"))
            if found is None or not left:
                raise
            live = found


def findings(found: Look) -> list[Change | Kept]:
    """What the plan says of the object."""
    changes: list[Change | Kept] = [Change(f"take back {_clause(edit)}") for edit in found.taken]
    if found.to_apply is not None and not found.taken:
        changes.append(Change(f"apply {subject_of(found.wanted)}"))
    return [*changes, *(_kept(edit) for edit in found.kept)]


def _clause(edit: Edit) -> str:
    who = f", by {edit.manager}" if edit.manager else ""
    return f"{edit.subject}: {edit.field}: {edit.applied} (now {edit.live}{who})"


def _kept(edit: Edit) -> Kept:
    return Kept(edit.subject, edit.field, edit.applied, edit.live, edit.manager, edit.since)


# --- the ControlPlane ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FollowControlPlane:
    """From here on, `context.cluster` has the edits of the ControlPlane object that the file does not contradict.

    The version is not followed: an upgrade is more than applying other images. Another one in the file was refused
    before the first write (`version_check`), and is here where the API answers for the first time.
    """

    name: str = "follow-control-plane"
    title: str = "Follow the ControlPlane object"
    timeout: float = 60

    async def plan(self, context: Context) -> Sequence[Change]:
        if not await context.api_answers():
            return []
        record = await follow(context)
        if record is not None:
            refuse_other_than(by_the_api(record["spec"].get("version")), context.cluster.kubernetes_version)
        return []

    async def run(self, context: Context, progress: Progress) -> None:
        """There is never anything to run: what was followed is applied by the phases that come after."""


async def follow(context: Context) -> Object | None:
    """Look at the ControlPlane and, unless ownership is taken, follow its edits. Returns what was applied to it last;
    None where that is not known."""
    wanted = control_plane(context.cluster)
    live = await live_control_plane(context.kube())
    record = None if live is None else applied.record_of(live)
    if live is None or record is None or context.take_ownership:
        return record
    comparison = compare(record, applied.projection(wanted), applied.projection(live))
    context.in_file = context.cluster
    context.cluster = with_spec(context.cluster, comparison.merged["spec"])
    return record


def with_spec(cluster: Cluster, spec: Object) -> Cluster:
    """The cluster with the levels, rollback and hosted components' arguments of a ControlPlane's spec. What runs on
    hosts is the file's: it is prepared before the API can be asked."""
    rollback, given = spec.get("rollback") or {}, spec.get("componentArguments") or {}
    hosted = (*WITH_STANDBY, *((ETCD,) if int(spec["selfHosted"][0]) <= Level.ETCD else ()))
    arguments = {name: values for name, values in cluster.extra_args.items() if name not in hosted}
    arguments |= {name: dict(given[name]) for name in hosted if given.get(name)}
    return replace(
        cluster,
        self_hosted=Level(int(spec["selfHosted"][0])),
        extra_args=arguments,
        rollback=Rollback(rollback.get("enabled", True), rollback.get("limitSeconds", 90)),
    )
