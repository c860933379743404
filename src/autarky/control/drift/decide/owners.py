"""Who owns a field: its values as applied last, as wanted now, and live. Pure; objects as on the wire.

Contract: `compare(applied, wanted, live)` looks at each field that was applied or is wanted:
- wanted as applied, live as applied: no difference;
- wanted as applied, live differs: DRIFTED. Somebody has edited it, and the edit stands;
- wanted has changed, live differs from it: CHANGED. It has to be applied, also over an edit;
- wanted has changed, and live equals it already: AGREED. Only the record of what was applied is stale.
Fields that were never ours are ignored, except additions to a list or map that is entirely ours: containers, volumes,
mounts, variables, command-line flags, node selectors, component arguments.

Command lines are compared flag by flag, lists of named items item by item, other lists as one value. The API leaves
out empty values and fills in defaults: neither is a difference.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final, NamedTuple

Object = dict[str, Any]
ITEM_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "ports": "name",
    "volumeMounts": "mountPath",
}
"""Lists whose items are identified by one of their fields, as in server-side apply (nearly: for ports)."""
COMMANDS = ("command", "args")
COMPLETE_MAPS = ("nodeSelector", "componentArguments")
"""Maps that are entirely ours, so that an additional key is a difference."""
LONGEST_VALUE = 120


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()


class State(Enum):
    DRIFTED = "drifted"
    CHANGED = "changed"
    AGREED = "agreed"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a path: a field; an item of a list (`key`: the field that names it); or a flag."""

    name: str
    key: str = ""

    def __str__(self) -> str:
        return f"[{self.name or 'program'}]" if self.key else f".{self.name}"


FLAG = "--"
"""The `key` of steps to a flag of a command line."""
Path = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """applied, wanted, live: the three values of the field; ABSENT where it does not exist."""

    path: Path
    applied: Any
    wanted: Any
    live: Any
    state: State

    @property
    def field(self) -> str:
        """ "spec.template.spec.containers[kube-apiserver].image"."""
        return "".join(map(str, self.path)).removeprefix(".")


@dataclass(frozen=True, slots=True)
class Comparison:
    """merged: what has to be applied: the wanted object, with the edits of others in fields that it does not change."""

    differences: tuple[Difference, ...]
    merged: Object

    @property
    def drifted(self) -> tuple[Difference, ...]:
        return tuple(one for one in self.differences if one.state is State.DRIFTED)

    @property
    def up_to_date(self) -> bool:
        """Whether nothing has to be applied, and the record equals what is wanted."""
        return len(self.drifted) == len(self.differences)


def compare(applied: Object, wanted: Object, live: Object) -> Comparison:
    """See the module's contract. The values given are not changed."""
    walk = _Walk([])
    merged = walk.map((), _Three(applied, wanted, live), complete=False)
    return Comparison(tuple(walk.found), merged)


def text_of(value: Any) -> str:
    """A value as text for a message or a table."""
    if value is ABSENT:
        return "(not set)"
    text = value if isinstance(value, str) and value else json.dumps(value, sort_keys=True, ensure_ascii=False)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


# --- one field ---------------------------------------------------------------------------------------


class _Three(NamedTuple):
    """One field three times."""

    applied: Any
    wanted: Any
    live: Any

    def present(self) -> list[Any]:
        return [value for value in self if value is not ABSENT]

    def each(self, read: Callable[[Any], Any]) -> _Three | None:
        """All three as converted by `read`; None when one cannot be."""
        seen = [read(value) for value in self]
        return None if None in seen else _Three(*seen)

    def part(self, name: str) -> _Three:
        return _Three(*(value.get(name, ABSENT) for value in self))


@dataclass(slots=True)
class _Walk:
    found: list[Difference]

    def field(self, path: Path, three: _Three, *, complete: bool = False) -> Any:
        """The merged value of one field, or ABSENT."""
        name = path[-1].name
        if three.wanted is ABSENT or three.live is ABSENT:
            return self.leaf(path, three, literal=complete or name in COMPLETE_MAPS or path[-1].key == FLAG)
        if all(isinstance(value, dict) for value in three.present()):
            maps = _Three(*({} if value is ABSENT else value for value in three))
            return self.map(path, maps, complete=complete or name in COMPLETE_MAPS)
        if all(isinstance(value, list) for value in three.present()):
            lists = _Three(*([] if value is ABSENT else value for value in three))
            if name in COMMANDS and (lines := lists.each(split_flags)) is not None:
                return join_flags(self.items(path, lines, FLAG, complete=True))
            if name in ITEM_KEYS and (items := lists.each(partial(_by_key, ITEM_KEYS[name]))) is not None:
                return list(self.items(path, items, ITEM_KEYS[name], complete=False).values())
        return self.leaf(path, three)

    def leaf(self, path: Path, three: _Three, *, literal: bool = False) -> Any:
        """`literal`: a missing value differs from an empty one."""
        applied, wanted, live = three
        covered = _same(live, wanted) if literal else _covers(live, wanted)
        if _same(applied, wanted):
            if covered:
                return wanted
            self.found.append(Difference(path, *three, State.DRIFTED))
            return live
        self.found.append(Difference(path, *three, State.AGREED if covered else State.CHANGED))
        return wanted

    def map(self, path: Path, three: _Three, *, complete: bool) -> Object:
        merged: Object = {}
        for name in dict.fromkeys([*three.wanted, *three.applied, *(three.live if complete else ())]):
            value = self.field((*path, Step(name)), three.part(name), complete=complete)
            if value is not ABSENT:
                merged[name] = value
        return merged

    def items(self, path: Path, three: _Three, key: str, *, complete: bool) -> Object:
        """Items of a list by their names, in the order of `wanted`. Additions by others are reported; they are part of
        the merged value only where the list is applied as one value."""
        merged: Object = {}
        for name in dict.fromkeys([*three.wanted, *three.applied, *three.live]):
            value = self.field((*path, Step(name, key)), three.part(name))
            if value is not ABSENT and (complete or name in three.wanted):
                merged[name] = value
        return merged


# --- equality ----------------------------------------------------------------------------------------


def _same(one: Any, other: Any) -> bool:
    return bool((one is ABSENT and other is ABSENT) or one == other)


def _covers(live: Any, ours: Any) -> bool:
    """Whether the live value equals ours, apart from defaults filled in and empty values left out."""
    if ours is ABSENT or live is ABSENT:
        return _is_nothing(ours) and _is_nothing(live)
    if isinstance(ours, dict) and isinstance(live, dict):
        return all(_covers(live.get(name, ABSENT), value) for name, value in ours.items())
    if isinstance(ours, list) and isinstance(live, list):
        return len(ours) == len(live) and all(map(_covers, live, ours))
    return bool(live == ours)


def _is_nothing(value: Any) -> bool:
    """Values that the API leaves out, or fills in unasked."""
    if isinstance(value, dict):
        return all(map(_is_nothing, value.values()))
    return value is ABSENT or value in (None, False, 0, "", [])


# --- lists as maps -----------------------------------------------------------------------------------


def _by_key(key: str, items: list[Any]) -> Object | None:
    """A list as a map by that field of its items; None when it has not that form."""
    if not all(isinstance(item, dict) and isinstance(item.get(key), str) for item in items):
        return None
    found = {item[key]: item for item in items}
    return found if len(found) == len(items) else None


def split_flags(words: Sequence[Any]) -> Object | None:
    """A command line as a map: the words before the first flag under "", then flag → value (True where it has
    none). None for a line that is not of this form: then it is compared as one value."""
    texts = [word for word in words if isinstance(word, str)]
    start = next((n for n, word in enumerate(texts) if word.startswith("--")), len(texts))
    pairs = [word.partition("=") for word in texts[start:]]
    flags = {name: value if sign else True for name, sign, value in pairs}
    if not flags and start > 1:
        return None
    complete = len(texts) == len(words) and len(flags) == len(pairs) and all(n.startswith("--") for n in flags)
    return {**({"": texts[:start]} if start else {}), **flags} if complete else None


def join_flags(flags: Mapping[str, Any]) -> list[str]:
    """The inverse of `split_flags`."""
    words = list(flags.get("", []))
    return words + [name if value is True else f"{name}={value}" for name, value in flags.items() if name]


# --- reverting ---------------------------------------------------------------------------------------


def without(obj: Object, paths: Sequence[Path]) -> Object:
    """A copy without these fields and items, which server-side apply leaves since somebody else owns them too."""
    copy: Object = json.loads(json.dumps(obj))
    for path in paths:
        _remove(copy, path)
    return copy


def _remove(value: Any, path: Path) -> None:
    for step in path[:-1]:
        value = _at(value, step)
        if value is None:
            return
    last = path[-1]
    if isinstance(value, list):
        value[:] = [item for item in value if not _is_item(item, last)]
    elif isinstance(value, dict):
        value.pop(last.name, None)


def _at(value: Any, step: Step) -> Any:
    if isinstance(value, list):
        return next((item for item in value if _is_item(item, step)), None)
    return value.get(step.name) if isinstance(value, dict) else None


def _is_item(item: Any, step: Step) -> bool:
    if step.key == FLAG:
        return isinstance(item, str) and item.partition("=")[0] == step.name
    return isinstance(item, dict) and item.get(step.key) == step.name
