"""Checks before an upgrade: what clients ask for, what is stored, and what else the API depends on. Pure.

The gauge of deprecated requests has two limits. It is of the API server that answers, and of no other one; and it stays
1 until that server starts again, so that a client that was corrected is still in it. Both are what the fix says.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from autarky.control.common.shapes import condition, labels_of, mapping, name_of, number, plain, some, text, within
from autarky.control.common.skew import minor_of
from autarky.control.kubelet.decide import pools
from autarky.control.kubelet.decide import wanted as wanted_of_kubelets
from autarky.control.kubelet.decide.pools import Drain
from autarky.control.upgrade.decide.observed import Finding, Requested, Seen, Stored
from autarky.render.values import MANAGED_BY, SYSTEM

REQUESTED = "apiserver_requested_deprecated_apis"
OBJECTS = "apiserver_resource_objects"
METRICS = (f"{REQUESTED}{{", f"{OBJECTS}{{")
"""How the lines begin that are read."""
_SERIES = re.compile(r"(\w+)\{(.*)\} (\S+)(?: \d+)?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_RELEASE = re.compile(r"(\d{1,9})\.(\d{1,9})")
Resource = tuple[str, str, str]
"""(group, version, plural)"""


def apis(seen: Seen) -> Iterator[Finding]:
    for one in sorted(set(_asked_for_in_vain(seen)), key=lambda one: (one.group, one.version, one.resource)):
        what = f"{plain(one.resource)} of {_group_version(one.group, one.version)}"
        yield Finding(
            "apis",
            f"clients still ask for {what}, which {seen.wanted} does not serve any more",
            "correct them (their requests have the annotation k8s.io/deprecated in the audit log), then run"
            " `kubectl -n kube-system rollout restart ds/kube-apiserver`: API servers remember until they start again",
        )
    for stored in seen.stored:
        kind = f"{stored.resource}.{stored.version}.{stored.group}" if stored.group else stored.resource
        what = f"{stored.resource} of {_group_version(stored.group, stored.version)}"
        shown = f"`kubectl get {kind} -A`"
        if stored.count is None:
            there = f"the API server could not count the {what}; if there are any, {seen.wanted}"
            yield Finding("apis", *_lost(stored, there, f"check again in a minute; {shown}"))
        elif stored.count > 0:
            yield Finding("apis", *_lost(stored, f"there are {stored.count} {what}, and {seen.wanted}", shown))


def _lost(stored: Stored, what: str, shown: str) -> tuple[str, str]:
    """(sentence, fix)"""
    if not stored.others:
        fix = f"{shown} shows them: delete them, and write what they say in another way first"
        return f"{what} serves them in no version", fix
    then = f"after the upgrade in {stored.others[0]}"
    keep = f"{shown} shows them: keep what they say, delete them, and write them {then}"
    return f"{what} cannot read what is stored in that version", keep


def _asked_for_in_vain(seen: Seen) -> Iterator[Requested]:
    """Nothing is removed within a minor, or on the way back."""
    if minor_of(seen.wanted) > minor_of(seen.runs):
        yield from (one for one in seen.requested if one.removed <= minor_of(seen.wanted))


def _group_version(group: str, version: str) -> str:
    return plain(f"{group}/{version}" if group else version)


def api_services(seen: Seen) -> Iterator[Finding]:
    away = [name_of(one) for one in seen.api_services if condition(one, "Available").get("status") == "False"]
    if away:
        yield Finding(
            "apiservices",
            f"APIServices that are not available: {some(away)}; clients that ask for all APIs get errors",
            "`kubectl get apiservices` says why; delete those that nothing needs any more",
            warning=True,
        )


def budgets(seen: Seen) -> Iterator[Finding]:
    """A warning only: they are tenants', and hold up nothing of the control plane."""
    if seen.budgets:
        drained = some(_drained(seen))
        then = f"; kubelets of pools {drained} are drained for it, and a node whose pods stay keeps the one that it has"
        yield Finding(
            "budgets",
            f"PodDisruptionBudgets that allow no disruption now: {some(map(plain, seen.budgets))}; the control plane's"
            f" upgrade does not need it{then if drained else ', but the drains for the kubelets afterwards'}",
            "`kubectl get poddisruptionbudgets -A` shows them: add replicas, or wait until their pods are ready",
            warning=True,
        )


def _drained(seen: Seen) -> list[str]:
    """The pools whose nodes are drained for the kubelets of that version, where these follow."""
    plane = mapping(seen.plane)
    if not wanted_of_kubelets.follows(plane):
        return []
    other = minor_of(seen.runs) != minor_of(seen.wanted)
    found = pools.read(within(plane, "spec", "pools"))
    return [one.name for one in found if one.drain is Drain.ALWAYS or (other and one.drain is Drain.MINOR)]


def blocks_drains(budget: Mapping[str, Any]) -> str | None:
    """Its "namespace/name", where it allows no disruption of a pod that it has. Not one of autarky's own: drains know
    these."""
    allowed, pods = within(budget, "status", "disruptionsAllowed"), within(budget, "status", "expectedPods")
    namespace = text(within(budget, "metadata", "namespace"))
    if namespace == SYSTEM and MANAGED_BY.items() <= labels_of(budget).items():
        return None
    return f"{namespace}/{name_of(budget)}" if allowed == 0 and number(pods) > 0 else None


# --- metrics -------------------------------------------------------------------------------------------------


def requested(lines: Iterable[str]) -> list[Requested]:
    """The deprecated APIs that have been requested, of those whose end is known. Other lines are skipped."""
    found = []
    for labels, value in _series(lines, REQUESTED):
        release = _RELEASE.fullmatch(labels.get("removed_release", ""))
        if value >= 1 and release is not None:
            removed = int(release[1]), int(release[2])
            group, version, resource = (labels.get(name, "") for name in ("group", "version", "resource"))
            found.append(Requested(group, version, resource, removed))
    return found


def stored(lines: Collection[str], lost: Mapping[Resource, tuple[str, ...]]) -> list[Stored]:
    """How many objects there are of resources that the wanted version serves in no version, or cannot read → in which
    it serves the resource. Those of which the API server counts none, or which it does not serve, are left out."""
    counts = {
        (labels.get("group", ""), labels.get("resource", "")): int(value) if 0 < value < 1e12 else None
        for labels, value in _series(lines, OBJECTS)
        if value != 0
    }
    return [
        Stored(group, version, name, counts[group, name], others)
        for (group, version, name), others in lost.items()
        if (group, name) in counts
    ]


def _series(lines: Iterable[str], metric: str) -> Iterator[tuple[dict[str, str], float]]:
    for line in lines:
        found = _SERIES.fullmatch(line.strip())
        if found is None or found[1] != metric:
            continue
        try:
            yield dict(_LABEL.findall(found[2])), float(found[3])
        except ValueError:
            continue
