"""The record of what was applied last: an annotation on the object itself, so that both are written at once. Pure.

Kept on workloads and the ControlPlane, whose fields users edit. Never on Secrets: it would copy their content.
"""

from __future__ import annotations

import json
from typing import Any

from autarky.control.drift.decide.owners import Comparison, compare
from autarky.parsing import parsed

Object = dict[str, Any]
ANNOTATION = "autarky.dev/applied"
KINDS = ("DaemonSet", "Deployment", "ControlPlane")


def is_recorded(obj: Object) -> bool:
    """Whether objects of this kind carry the record."""
    return obj["kind"] in KINDS


def projection(obj: Object) -> Object:
    """The part of an object that is compared: its labels and its spec."""
    return {"metadata": {"labels": obj["metadata"].get("labels") or {}}, "spec": obj["spec"]}


def record_of(live: Object) -> Object | None:
    """What was applied last, by the live object's record; None where it has none that can be parsed."""
    text = (live["metadata"].get("annotations") or {}).get(ANNOTATION)
    try:
        found: Object = parsed(text) if text else {}
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("spec"), dict) else None


def with_record(obj: Object, applied: Object) -> Object:
    """The object with a record that `applied` was applied."""
    text = json.dumps(projection(applied), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    annotations = {**(obj["metadata"].get("annotations") or {}), ANNOTATION: text}
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}


def drift_of(live: Object) -> Comparison | None:
    """The live object against its own record; None without one."""
    record = record_of(live)
    return None if record is None else compare(record, record, projection(live))
