"""Retiring a hosted workload, and bringing it back: used by `up` and by the operator.

A change of `selfHosted` moves a level between its slots. A retired workload is kept completely in a ConfigMap
`autarky-retired-COMPONENT`, with its disruption budget and all edits by users, so that it can come back without a
cluster file or keys: the Secrets and ConfigMaps that it references stay where they are.

Contract: each function may be interrupted anywhere and called again. Nothing here decides: `decide.moves` does. The
ConfigMap exists only between retirement and return, so that a workload that somebody deletes is not brought back
against their will: where it is left beside a workload that is back, `bring_back` is called again.

Danger: objects in that ConfigMap are created with the operator's rights. So it counts only with autarky's label, which
others cannot set, and only the workload and the budget of that very component are taken from it.
"""

from __future__ import annotations

import json
from typing import Any

from autarky.control.agents.manifests.operator import retired_name
from autarky.control.base.own_objects import write
from autarky.errors import Conflict
from autarky.model.components import COMPONENTS, MOVED, NAME_LABEL, WITH_STANDBY
from autarky.parsing import parsed
from autarky.ports import Kube, Object
from autarky.render.values import SYSTEM, is_ours, metadata

APPS = "apps/v1"
BUDGET = ("policy/v1", "PodDisruptionBudget")
KINDS = ("DaemonSet", "Deployment")
_SERVERS_OWN = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")
_CONTROLLERS_OWN = ("deprecated.daemonset.template.generation", "deployment.kubernetes.io/revision")


async def retire(kube: Kube, component: str) -> None:
    """Save the workload, then delete it and its budget."""
    workload = await kube.get(APPS, COMPONENTS[component].kind, component, SYSTEM)
    has_budget = component in WITH_STANDBY
    budget = await kube.get(*BUDGET, component, SYSTEM) if has_budget else None
    if workload is not None:
        await _keep(kube, component, [obj for obj in (workload, budget) if obj is not None])
        await kube.delete(APPS, COMPONENTS[component].kind, component, SYSTEM)
    if has_budget:
        await kube.delete(*BUDGET, component, SYSTEM)


async def bring_back(kube: Kube, component: str) -> bool:
    """Create what was retired and does not exist, unchanged, and use up the copy; False when nothing was retired."""
    objects = await _kept(kube, component)
    for obj in objects:
        try:
            await kube.create(obj)
        except Conflict:  # it exists already
            continue
    if objects:
        await kube.delete("v1", "ConfigMap", retired_name(component), SYSTEM)
    return bool(objects)


async def is_kept(kube: Kube, component: str) -> bool:
    """Whether there is a retired copy, from which `bring_back` would create something."""
    return bool(await _kept(kube, component))


async def retired_workload(kube: Kube, wanted: Object) -> Object | None:
    """The retired workload of that name; None when it was not retired."""
    component = wanted["metadata"]["name"]
    if component not in MOVED:
        return None
    return next((obj for obj in await _kept(kube, component) if obj["kind"] == wanted["kind"]), None)


async def forget_retired(kube: Kube, workload: Object) -> None:
    """The workload exists again: the saved copy is stale."""
    component = workload["metadata"]["name"]
    if component in MOVED:
        await kube.delete("v1", "ConfigMap", retired_name(component), SYSTEM)


async def _keep(kube: Kube, component: str, objects: list[Object]) -> None:
    data = {"objects.json": json.dumps([_bare(obj) for obj in objects], sort_keys=True)}
    meta = metadata(retired_name(component), SYSTEM, {NAME_LABEL: component})
    live = await kube.get("v1", "ConfigMap", meta["name"], SYSTEM)
    await write(kube, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}, live)


async def _kept(kube: Kube, component: str) -> list[Object]:
    live = await kube.get("v1", "ConfigMap", retired_name(component), SYSTEM)
    if live is None or not is_ours(live):
        return []
    try:
        found = parsed((live.get("data") or {}).get("objects.json", "[]"))
    except ValueError:
        return []
    return [obj for obj in found if _is_of(component, obj)] if isinstance(found, list) else []


def _is_of(component: str, obj: Any) -> bool:
    """Whether it is the component's hosted workload, or its budget."""
    meta = obj.get("metadata") if isinstance(obj, dict) else None
    if not isinstance(meta, dict):
        return False
    kinds = ((APPS, COMPONENTS[component].kind), BUDGET)
    named = meta.get("name") == component and meta.get("namespace") == SYSTEM
    return named and (obj.get("apiVersion"), obj.get("kind")) in kinds


def _bare(obj: Object) -> Object:
    """Without what the server and the controllers set."""
    meta = {name: value for name, value in obj["metadata"].items() if name not in _SERVERS_OWN}
    annotations = {n: v for n, v in (meta.get("annotations") or {}).items() if n not in _CONTROLLERS_OWN}
    return {**{n: v for n, v in obj.items() if n != "status"}, "metadata": {**meta, "annotations": annotations}}
