"""The record of what was applied last: an annotation on the object itself, so that both are written at once. Pure.

Kept on workloads, the ControlPlane and the ConfigMaps that are made to be edited, and on what comes from the user's own
add-ons directory. Never on Secrets: it would copy their content; and not where it would be too long for an annotation.
"""

from __future__ import annotations

import json
from typing import Any

from autarky.control.drift.decide.owners import Comparison, compare
from autarky.model.components import COREDNS
from autarky.parsing import parsed

Object = dict[str, Any]
ANNOTATION = "autarky.dev/applied"
ADD_ON = "autarky.dev/add-on"
"""Annotation of an object from the user's own add-ons directory: in which file there it is."""
KINDS = ("DaemonSet", "Deployment", "ControlPlane")
EDITABLE = (COREDNS,)
"""ConfigMaps of ours in kube-system that are made to be edited."""
LARGEST = 100_000
"""Characters of a record. All annotations of an object together may have 256 KiB, and a CRD alone may be longer."""
_OURS = "autarky.dev/"
_NOT_COMPARED = ("apiVersion", "kind", "metadata", "status")


def is_recorded(obj: Object) -> bool:
    """Whether the fields of this object are compared one by one, and it carries the record."""
    return obj["kind"] in KINDS or is_editable(obj) or is_own(obj)


def is_editable(obj: Object) -> bool:
    return obj["kind"] == "ConfigMap" and obj["metadata"]["name"] in EDITABLE


def is_own(obj: Object) -> bool:
    """Whether it comes from the user's own add-ons directory."""
    return ADD_ON in (obj["metadata"].get("annotations") or {})


def projection(obj: Object) -> Object:
    """The part of an object that is compared: its labels, and its spec or whatever it has instead; of the user's own
    objects their annotations, too."""
    meta: Object = {"labels": obj["metadata"].get("labels") or {}}
    if is_own(obj):
        annotations = obj["metadata"].get("annotations") or {}
        meta["annotations"] = {name: value for name, value in annotations.items() if not name.startswith(_OURS)}
    return {"metadata": meta, **{name: value for name, value in obj.items() if name not in _NOT_COMPARED}}


def record_of(live: Object) -> Object | None:
    """What was applied last, by the live object's record; None where it has none that can be parsed."""
    text = (live["metadata"].get("annotations") or {}).get(ANNOTATION)
    try:
        found: Object = parsed(text) if text else {}
    except ValueError:
        return None
    part = "spec" if "spec" in live else "metadata"
    return found if isinstance(found, dict) and isinstance(found.get(part), dict) else None


def with_record(obj: Object, applied: Object) -> Object:
    """The object with a record that `applied` was applied; without one where there can be none."""
    if obj["kind"] == "Secret":
        return obj
    text = json.dumps(projection(applied), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    if len(text) > LARGEST:
        return obj
    annotations = {**(obj["metadata"].get("annotations") or {}), ANNOTATION: text}
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}


def recorded_template(live: Object) -> Object | None:
    """That of a workload, as it was applied last; None where that is not known."""
    spec = (record_of(live) or {}).get("spec")
    found = spec.get("template") if isinstance(spec, dict) else None
    return found if isinstance(found, dict) else None


def with_recorded_template(live: Object, template: Object) -> Object:
    """As if that template had been applied, and all else as it was last."""
    record = record_of(live)
    return live if record is None else with_record(live, {**record, "spec": {**record["spec"], "template": template}})


def drift_of(live: Object) -> Comparison | None:
    """The live object against its own record; None without one."""
    record = record_of(live)
    return None if record is None else compare(record, record, projection(live))
