"""The operator's record of control nodes, in a ConfigMap: which Node (by uid) each of them is, and in which state.

A Node that is deleted and created again has no labels, and its kubelet may not set them: the record says that it was a
control node.

Contract: one writer, the leader; each change is one write under the object's resourceVersion. An entry that cannot be
parsed counts as absent, and so does a ConfigMap without autarky's label.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from autarky.control.base.own_objects import write
from autarky.control.control_nodes.decide.observed import Record, State
from autarky.control.control_nodes.manifests import RECORD
from autarky.kube import Reflector
from autarky.parsing import parsed
from autarky.ports import Kube, Object
from autarky.render.values import SYSTEM, is_ours, metadata


def records(source: Reflector) -> dict[str, Record]:
    """Node → its record."""
    found = {name: _record(_parsed(text)) for name, text in _data(source.items.get((SYSTEM, RECORD))).items()}
    return {name: record for name, record in found.items() if record is not None}


def _record(parsed: Object) -> Record | None:
    try:
        return Record(str(parsed["uid"]), State(parsed["state"]))
    except (KeyError, ValueError):
        return None


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


def _parsed(text: str) -> Object:
    try:
        found = parsed(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
