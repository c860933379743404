"""Who wrote a field last, by the managedFields that the API server keeps. Pure; objects as on the wire.

The API knows owners of what is there; of what was taken away nobody is the owner.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from autarky.control.drift.decide.owners import FLAG, Difference, Object, Path, Step, text_of
from autarky.parsing import parsed

OURS = "autarky-"
"""How our own field managers of server-side apply begin."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A drifted field, for a sentence. manager: who wrote it last, and since: when (RFC 3339); empty when the
    API does not know: nobody owns what is not there."""

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
    """What somebody else has done to the object, field by field."""
    found = []
    for one in differences:
        manager, since = last_writer(live, one.path)
        found.append(Edit(subject, one.field, text_of(one.applied), text_of(one.live), manager, since))
    return found


def last_writer(live: Object, path: Path) -> tuple[str, str]:
    """(field manager, time) that wrote the field last, as far as managedFields tell; others before ourselves."""
    entries = [
        entry
        for entry in live.get("metadata", {}).get("managedFields") or []
        if entry.get("subresource") != "status" and _owns(entry.get("fieldsV1") or {}, path)
    ]
    others = [entry for entry in entries if not entry.get("manager", "").startswith(OURS)] or entries
    latest: Object = max(others, key=lambda entry: entry.get("time", ""), default={})
    return latest.get("manager", ""), latest.get("time", "")


def _owns(fields: Any, path: Path) -> bool:
    """Whether the set of fields has the path, or a map or list on the way that is owned as a whole."""
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
    except ValueError:  # whoever writes an object may write this
        return False
    return isinstance(key, dict) and key.get(step.key) == step.name
