"""Who last wrote a field, by the managedFields that the API server keeps. Pure; objects as on the wire.

The API knows owners only of fields that exist: a removed field has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from autarky.control.drift.decide.owners import FLAG, Difference, Object, Path, Step, text_of
from autarky.parsing import parsed

OURS = "autarky-"
"""Prefix of our own field managers of server-side apply."""
CONTROLLERS = ("kube-controller-manager", "kube-apiserver", "kube-scheduler", "kubelet")
"""What these write is no edit."""
HIDDEN = "(not shown)"


@dataclass(frozen=True, slots=True)
class Edit:
    """A drifted field, for a message. manager: who wrote it last, and since: when (RFC 3339); empty when the API does
    not know: a removed field has no owner."""

    subject: str
    field: str
    applied: str
    live: str
    manager: str = ""
    since: str = ""

    @property
    def sentence(self) -> str:
        who = (f", by {self.manager}" if self.manager else "") + (f" at {self.since}" if self.since else "")
        return f"{self.subject}: {self.field} is {self.live}, applied was {self.applied}{who}"


def edits(subject: str, differences: Sequence[Difference], live: Object) -> list[Edit]:
    """The edits of the object by others, field by field. The values of a Secret are not shown (rule 7)."""
    found = []
    for one in differences:
        manager, since = last_writer(live, one.path)
        values = (HIDDEN, HIDDEN) if live.get("kind") == "Secret" else (text_of(one.applied), text_of(one.live))
        found.append(Edit(subject, one.field, *values, manager, since))
    return found


def other_writers(live: Object) -> list[str]:
    """The field managers besides ours, and besides Kubernetes' own controllers, that own fields of the object. Empty
    also where the API does not know."""
    names = {
        str(entry.get("manager", ""))
        for entry in live["metadata"].get("managedFields") or ()
        if not entry.get("subresource")
    }
    return sorted(name for name in names if name and not name.startswith((OURS, *CONTROLLERS)))


def last_writer(live: Object, path: Path) -> tuple[str, str]:
    """(field manager, time) of the last write of the field, by managedFields; others are preferred to ourselves."""
    entries = [
        entry
        for entry in live.get("metadata", {}).get("managedFields") or []
        if entry.get("subresource") != "status" and _owns(entry.get("fieldsV1") or {}, path)
    ]
    others = [entry for entry in entries if not entry.get("manager", "").startswith(OURS)] or entries
    latest: Object = max(others, key=lambda entry: entry.get("time", ""), default={})
    return latest.get("manager", ""), latest.get("time", "")


def _owns(fields: Any, path: Path) -> bool:
    """Whether the set of fields has the path, or a map or list on the way that is owned completely."""
    for step in path:
        if step.key == FLAG:
            return True
        below = next((value for name, value in _children(fields) if _names(name, step)), None)
        if below is None:
            return False
        fields = below
        if not fields:
            return True
    return True


def _children(fields: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(fields, dict):
        yield from fields.items()


def _names(name: str, step: Step) -> bool:
    if not step.key:
        return name == f"f:{step.name}"
    if not name.startswith("k:"):
        return False
    try:
        key: Any = parsed(name[2:])
    except ValueError:  # anybody who may write the object may write this
        return False
    return isinstance(key, dict) and key.get(step.key) == step.name
