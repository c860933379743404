"""Writes the ConfigMaps and Secrets in which autarky keeps its own data.

Contract: afterwards the object is as given, with autarky's label. Nothing stays of a foreign object of the same name:
no owner reference (garbage collection would delete ours with its owner), no annotation. Raises Conflict when somebody
else writes at the same time.
"""

from __future__ import annotations

from autarky.ports import Kube, Object
from autarky.render.values import is_ours


async def write(kube: Kube, wanted: Object, live: Object | None) -> None:
    """Create it, or replace what exists (`live`: as the caller has just read it) unless that has the same content."""
    meta = wanted["metadata"]
    if live is None:
        await kube.create(wanted)
    elif live.get("type") != wanted.get("type") or live.get("immutable"):
        # These fields cannot be changed in an existing object.
        await kube.delete(wanted["apiVersion"], wanted["kind"], meta["name"], meta["namespace"])
        await kube.create(wanted)
    elif not is_ours(live) or live.get("data") != wanted["data"]:
        await kube.replace({**wanted, "metadata": {**meta, "resourceVersion": live["metadata"]["resourceVersion"]}})
