"""Who owns a field, when objects are applied: edits of others stand until our own value changes.

Contract: a workload (and the ControlPlane) is compared with what is recorded on it as applied last
(`control.drift.decide.owners`). A newly wanted value is applied, also over an edit; every other edit is reported and
left alone, unless `--take-ownership` is given. A workload that a change of levels has removed counts as it was then:
its edits come back with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autarky.control.cluster_file.decide.running_version import by_the_api
from autarky.control.common.shapes import items, mapping, text, within
from autarky.control.drift.decide import applied
from autarky.control.drift.decide.field_owners import Edit, edits
from autarky.control.drift.decide.owners import ABSENT, Comparison, Path, compare, without
from autarky.control.inventory.decide import references
from autarky.control.levels import act as hosting
from autarky.control.upgrade.decide import reported
from autarky.engine.phase import Change, Kept
from autarky.errors import Conflict
from autarky.model.cluster import Cluster, Rollback
from autarky.model.components import COREDNS, ETCD, KUBELET, WITH_STANDBY
from autarky.model.levels import HostedLevels, Level
from autarky.phases import hosted_version
from autarky.phases.context import Context
from autarky.phases.version_check import live_control_plane, refuse_other_than, version_in
from autarky.ports import Kube, Object, Progress
from autarky.render.crds import control_plane
from autarky.render.values import RENDERED_HASH

EXCHANGE_TRIES = 5
_OF_CONTENT = re.compile(f"{COREDNS}-[0-9a-f]{{10}}")


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


def judge(wanted: Object, live: Object | None, *, take_ownership: bool, applied_last: Object | None = None) -> Look:
    """Compare one object with the live one (None: it is absent). applied_last: what counts as that, whatever the live
    object says."""
    if live is None:
        return Look(wanted, None, _recorded(wanted, wanted))
    same_rendering = _rendering(live) == _rendering(wanted)
    if not applied.is_recorded(wanted):
        return Look(wanted, live, None if same_rendering else wanted)
    # Without a record, the same rendering was applied last if it carries the same hash; else everything is new.
    base = applied.record_of(live) or (applied.projection(wanted) if same_rendering else {})
    if _mounts_their_corefile(base, live):
        base = _with_volumes_of(base, wanted)
    if applied_last is not None:
        base = applied_last
    elif applied.is_editable(wanted):
        base = _with_edits_kept(base, wanted, live)
    comparison = compare(base, applied.projection(wanted), applied.projection(live))
    drifted = tuple(edits(subject_of(wanted), comparison.drifted, live))
    if take_ownership and drifted:
        return Look(wanted, live, _recorded(wanted, wanted), taken=drifted, unlisted=_unlisted_paths(comparison))
    if comparison.up_to_date:
        return Look(wanted, live, None, kept=drifted)
    merged = _recorded(_merged(wanted, comparison), wanted)
    return Look(wanted, live, merged, kept=drifted, unlisted=_unlisted_paths(comparison, but_drift=True))


def _mounts_their_corefile(base: Object, live: Object) -> bool:
    """A release that named the ConfigMap by its content had nothing else to edit: whoever wanted another Corefile had
    to mount another ConfigMap. The name of ours that is new now is no reason to take that back."""
    if (live["kind"], live["metadata"]["name"]) != ("Deployment", COREDNS):
        return False
    was, now = (_config_maps(one) for one in ({"kind": "Deployment", **base}, live))
    ours = {name for name in was if _OF_CONTENT.fullmatch(name)}
    return bool(ours) and not now & {COREDNS, *ours}


def _config_maps(obj: Object) -> set[str]:
    return {name for kind, name in references.of(obj) if kind == "ConfigMap"}


def _with_volumes_of(base: Object, wanted: Object) -> Object:
    template, volumes = base["spec"]["template"], wanted["spec"]["template"]["spec"]["volumes"]
    changed = {**template, "spec": {**template["spec"], "volumes": volumes}}
    return {**base, "spec": {**base["spec"], "template": changed}}


def _with_edits_kept(base: Object, wanted: Object, live: Object) -> Object:
    """As if what is wanted now had been applied wherever somebody has edited since: of what is made to be edited no
    edit is overwritten unasked, also where a release has something new."""
    was, now, new = (one.get("data") or {} for one in (base, live, wanted))
    edited = {name: value for name, value in new.items() if name in was and now.get(name) != was[name]}
    return {**base, "data": {**was, **edited}} if edited else base


def _merged(wanted: Object, comparison: Comparison) -> Object:
    """What is applied where edits of others stand. The labels of our own objects are always ours."""
    compared, meta = comparison.merged, {**wanted["metadata"]}
    if applied.is_own(wanted):
        theirs = applied.projection(wanted)["metadata"]["annotations"]
        ours = {name: value for name, value in meta["annotations"].items() if name not in theirs}
        meta["labels"] = compared["metadata"].get("labels") or {}
        meta["annotations"] = {**(compared["metadata"].get("annotations") or {}), **ours}
    rest = {name: value for name, value in wanted.items() if name not in applied.projection(wanted)}
    return {**rest, **{n: v for n, v in compared.items() if n != "metadata"}, "metadata": meta}


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
        last = None if live is None or not applied.is_editable(wanted) else await _applied_last(kube, wanted, live)
        return judge(wanted, live, take_ownership=take_ownership, applied_last=last)
    retired = await hosting.retired_workload(kube, wanted)
    if retired is None:
        return judge(wanted, None, take_ownership=take_ownership)
    found = judge(wanted, retired, take_ownership=take_ownership)
    return replace(found, live=None, to_apply=found.to_apply or _as_it_was(wanted, retired), unlisted=())


async def _applied_last(kube: Kube, wanted: Object, live: Object) -> Object | None:
    """Of what is made to be edited; None: as the live object says. Its words count only where its workload mounts it:
    under the releases that did not reserve the name, anybody could have made it, with a record of our form."""
    ours, meta = applied.projection(wanted), wanted["metadata"]
    workload = await kube.get("apps/v1", "Deployment", meta["name"], meta["namespace"])
    if workload is None or (wanted["kind"], meta["name"]) not in references.of(workload):
        is_ours = applied.record_of(live) == ours and not compare(ours, ours, applied.projection(live)).differences
        return ours if is_ours else {}
    # Without a record of ours, somebody has put it in the place of what was mounted: an edit.
    return ours if applied.record_of(live) is None and _rendering(live) is None else None


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

    The version was followed, or refused, before the first write (`version_check`); another one is refused here, where
    the API answers for the first time.
    """

    name: str = "follow-control-plane"
    title: str = "Follow the ControlPlane object"
    timeout: float = 60

    async def plan(self, context: Context) -> Sequence[Change]:
        if not await context.api_answers():
            return []
        live = await follow(context)
        if live is None:
            await hosted_version.refuse_others(context)
        elif context.upgrade_from is None:
            refuse_other_than(by_the_api(version_in(live)), context.cluster.kubernetes_version)
        return []

    async def run(self, context: Context, progress: Progress) -> None:
        """There is never anything to run: what was followed is applied by the phases that come after."""


async def follow(context: Context) -> Object | None:
    """Look at the ControlPlane and, unless ownership is taken, follow its edits. Returns it; None if there is none. In
    either case the file's own version is what is wanted of the object, also where the rest goes on with another one."""
    live = await live_control_plane(context.kube())
    if live is None:
        return None
    context.in_file = in_file = _in_file(context, live)
    record = applied.record_of(live)
    if record is None or context.take_ownership:
        return live
    wanted = control_plane(in_file)
    comparison = compare(record, applied.projection(wanted), applied.projection(live))
    context.cluster = with_spec(context.cluster, comparison.merged["spec"])
    return live


def as_applied(context: Context, live: Object | None) -> Object:
    """The ControlPlane as it is once the file is applied: with the edits that stand, and with the parts of `spec.etcd`
    that are none of ours. live: as the API has it, None where there is none."""
    if live is None:
        return control_plane(context.in_file or context.cluster)
    wanted = control_plane(context.in_file or _in_file(context, live))
    if not context.take_ownership:
        wanted = compare(applied.record_of(live) or {}, applied.projection(wanted), applied.projection(live)).merged
    etcd = {**mapping(live["spec"].get("etcd")), **mapping(wanted["spec"].get("etcd"))}
    return {**live, "spec": {**live["spec"], **wanted["spec"], "etcd": etcd}}


def _in_file(context: Context, live: Object) -> Cluster:
    """The file's cluster. Where the file names no version of etcd, it leaves the one that was applied last: without it
    another minor would be asked for, and all of `spec.etcd` be removed."""
    cluster, record = context.cluster, applied.record_of(live) or {}
    had = None if cluster.external_etcd is not None else reported.parsed(within(record, "spec", "etcd", "version"))
    return replace(
        cluster,
        kubernetes_version=context.version_in_file or cluster.kubernetes_version,
        etcd_version=cluster.etcd_version or had,
    )


def with_spec(cluster: Cluster, spec: Object) -> Cluster:
    """The cluster with the levels, rollback, pools, and arguments of hosted components and kubelets of a ControlPlane's
    spec. What else runs on hosts is the file's: it is prepared before the API can be asked."""
    rollback, given = spec.get("rollback") or {}, spec.get("componentArguments") or {}
    levels = HostedLevels.parse(spec["selfHosted"])
    etcd = (ETCD,) if levels.hosts(Level.ETCD) else ()
    followed = (*WITH_STANDBY, KUBELET, *etcd)
    arguments = {name: values for name, values in cluster.extra_args.items() if name not in followed}
    arguments |= {name: dict(given[name]) for name in followed if given.get(name)}
    return replace(
        cluster,
        self_hosted=levels.lowest,
        hosts_kubelet=levels.kubelet,
        extra_args=arguments,
        rollback=Rollback(rollback.get("enabled", True), rollback.get("limitSeconds", 90)),
        kubelets_follow=within(spec, "kubelets", "follow") is True,
        container_runtime=text(within(spec, "kubelets", "runtime")),
        pools=tuple(items(spec.get("pools"))),
    )
