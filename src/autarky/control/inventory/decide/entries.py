"""What the inventory says of one object, and how that is written. Pure.

Contract: whatever is in the text, reading it raises nothing: a line that is no entry is left out, and a text that is no
list at all is None. Two entries are of the same object where group, kind, namespace and name are the same: a later
release may apply it by another version of the API, or in another part.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from autarky.parsing import parsed

Object = Mapping[str, Any]


class Identity(NamedTuple):
    """Which object it is, whatever the version of its API. namespace: "" where it has none."""

    group: str
    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One object. part: that of ours which it belongs to, without the prefix of its field manager."""

    part: str
    api_version: str
    kind: str
    namespace: str
    name: str

    @property
    def identity(self) -> Identity:
        return Identity(group_of(self.api_version), self.kind, self.namespace, self.name)

    @property
    def subject(self) -> str:
        """ "DaemonSet kube-system/kube-proxy"."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


def entry_of(part: str, obj: Object) -> Entry:
    meta = obj["metadata"]
    return Entry(part, obj["apiVersion"], obj["kind"], meta.get("namespace") or "", meta["name"])


def group_of(api_version: str) -> str:
    """ "apps" of "apps/v1", and "" of "v1"."""
    return api_version.rpartition("/")[0]


def merged(*lists: Iterable[Entry]) -> list[Entry]:
    """All of them, each object once: as the last list has it, in the place where the first has it."""
    found: dict[Identity, Entry] = {}
    for entries in lists:
        found |= {entry.identity: entry for entry in entries}
    return list(found.values())


def written(entries: Iterable[Entry]) -> str:
    """One line for each, for people; together they are a list in JSON."""
    lines = [
        json.dumps(
            {"part": e.part, "apiVersion": e.api_version, "kind": e.kind, "namespace": e.namespace, "name": e.name},
            ensure_ascii=False,
        )
        for e in entries
    ]
    return "[\n" + ",\n".join(lines) + "\n]\n" if lines else "[]\n"


def read(text: str) -> list[Entry] | None:
    """None for a text that is no list."""
    try:
        found = parsed(text)
    except ValueError:
        return None
    return merged(_read_all(found)) if isinstance(found, list) else None


def _read_all(found: Sequence[Any]) -> Iterable[Entry]:
    for one in found:
        if not isinstance(one, dict):
            continue
        values = [one.get(name) for name in ("part", "apiVersion", "kind", "namespace", "name")]
        if all(isinstance(value, str) for value in values) and values[1] and values[2] and values[4]:
            yield Entry(*map(str, values))
