"""Writing the ConfigMaps and Secrets that hold what autarky notes for itself.

Contract: afterwards the object is as given, with autarky's label. Nothing stays of a stranger's object that had the
name: no owner that would take ours with it, no annotation. Conflict when somebody else writes at the same time.
"""

from __future__ import annotations

from autarky.ports import Kube, Object
from autarky.render.values import is_ours


async def write(kube: Kube, wanted: Object, live: Object | None) -> None:
    """Create it, or replace what is there (`live`: what the caller has just read) unless that says the same."""
    meta = wanted["metadata"]
    if live is None:
        await kube.create(wanted)
    elif live.get("type") != wanted.get("type") or live.get("immutable"):
        # Nobody can change these of an object that is there.
        await kube.delete(wanted["apiVersion"], wanted["kind"], meta["name"], meta["namespace"])
        await kube.create(wanted)
    elif not is_ours(live) or live.get("data") != wanted["data"]:
        await kube.replace({**wanted, "metadata": {**meta, "resourceVersion": live["metadata"]["resourceVersion"]}})
