"""The operator's record of control nodes, in a ConfigMap: which Node (by uid) each of them is, and in which state.

A Node that is deleted and created again has no labels, and its kubelet may not set them: the record says that it was a
control node.

Contract: one writer, the leader; each change is one write under the object's resourceVersion. What counts of it:
`decide.recorded`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from autarky.control.base.own_objects import write
from autarky.control.control_nodes.decide import recorded
from autarky.control.control_nodes.decide.observed import Record
from autarky.control.control_nodes.manifests import RECORD
from autarky.kube import Reflector
from autarky.ports import Kube, Object
from autarky.render.values import SYSTEM, is_ours, metadata


def records(source: Reflector) -> dict[str, Record]:
    """Node → its record."""
    return recorded.records(source.items.get((SYSTEM, RECORD)))


async def remember(kube: Kube, node: str, record: Record) -> None:
    await _write(kube, {node: json.dumps({"uid": record.uid, "state": record.state.value})})


async def forget(kube: Kube, node: str) -> None:
    await _write(kube, {node: None})


async def _write(kube: Kube, changes: Mapping[str, str | None]) -> None:
    live, meta = await kube.get("v1", "ConfigMap", RECORD, SYSTEM), metadata(RECORD, SYSTEM)
    data = {name: text for name, text in {**_data(live), **changes}.items() if text is not None}
    await write(kube, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}, live)


def _data(live: Object | None) -> dict[str, str]:
    found: dict[str, str] = (live.get("data") or {}) if live is not None and is_ours(live) else {}
    return found
