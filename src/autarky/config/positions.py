"""YAML without its traps, with a position for everything in it.

Contract: `parse` gives plain data (mappings with text keys, lists, text, true/false, null, integers and
decimal numbers) and knows the line and column of every part. A scalar is a typed value only if every YAML version
agrees: `yes`, `on`, `012`, `1:30`, `0x1f` stay text. JSON is YAML, so the same loader reads the resolved file
that `up` keeps. Duplicate keys are collected in `problems`, so that they are reported together with all other errors.

Dangers: the file may be hostile or merely broken. Aliases (which may grow without bound, or contain
themselves), tags (which may ask for any type) and deep nesting (which overflows the composer's stack)
are refused on the stream of events, before anything is built from it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import yaml

from autarky.errors import UserError

Place = tuple[str | int, ...]
"""Keys and list indices from the root to a part of the document."""
Position = tuple[int, int]
"""Line and column, both from 1."""

MOST_LEVELS = 50
"""A cluster file has 8 levels. The composer's stack overflows at some ten thousand."""


class _Mark(Protocol):
    """A position as PyYAML gives it, in either of its implementations; both numbers from 0."""

    @property
    def line(self) -> int: ...

    @property
    def column(self) -> int: ...


class _NarrowLoader(yaml.CSafeLoader):
    """Only what looks like a value in every YAML version is one; everything else is text."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 # replaces the inherited


# At most 18 digits: Python refuses to read integers of thousands, and nothing here needs more.
for _tag, _pattern, _first in (
    ("bool", r"^(?:true|false)$", "tf"),
    ("null", r"^(?:null|~|)$", ["n", "~", ""]),
    ("int", r"^-?(?:0|[1-9][0-9]{0,17})$", "-0123456789"),
    ("float", r"^-?(?:0|[1-9][0-9]{0,17})\.[0-9]{1,18}$", "-0123456789"),
):
    _NarrowLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list(_first))


@dataclass(frozen=True, slots=True)
class Document:
    """The data, where each part of it stands, and what is wrong with its form alone."""

    name: str
    data: Any
    problems: tuple[UserError, ...]
    _keys: Mapping[Place, Position]
    _values: Mapping[Place, Position]

    def where(self, place: Sequence[str | int], *, key: bool = False) -> str:
        """ "FILE:LINE:COLUMN" of the value there, or of its key.

        If the file has no such part, the position of the nearest enclosing key.
        """
        for length in range(len(place), -1, -1):
            part = tuple(place[:length])
            found = (self._keys.get(part) if key else None) or self._values.get(part)
            if found is not None:
                return f"{self.name}:{found[0]}:{found[1]}"
            key = True
        return self.name


def parse(text: str, name: str) -> Document:
    """Read one YAML document; UserError with its position if it is invalid, or has something that is refused."""
    try:
        _refuse_traps(text, name)
        node = yaml.compose(text, Loader=_NarrowLoader)
    except yaml.MarkedYAMLError as error:
        said = ", ".join(part for part in (error.context, error.problem) if part)
        at = _at(name, error.problem_mark)
        raise UserError(f"not YAML: {said}", where=at, fix="correct the syntax there") from error
    except yaml.reader.ReaderError as error:
        at = _at_byte(name, text, error.position)
        raise UserError(f"not YAML: {error.reason}", where=at, fix="remove that character") from error
    if node is None:
        raise UserError("the file is empty", where=name, fix="see examples/lab-1.yaml")
    builder = _Builder(name)
    return Document(name, builder.value(node, ()), tuple(builder.problems), builder.keys, builder.values)


# --- what is refused ------------------------------------------------------------------------------


def _refuse_traps(text: str, name: str) -> None:
    level = 0
    for event in yaml.parse(text, Loader=_NarrowLoader):
        at = _at(name, event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            raise UserError("aliases (*name) are not supported", where=at, fix="write out what it stands for")
        if isinstance(event, yaml.NodeEvent) and getattr(event, "tag", None) is not None:
            raise UserError("tags (!name) are not supported", where=at, fix="leave it out, or quote the text")
        if isinstance(event, yaml.CollectionStartEvent):
            level += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            level -= 1
        if level > MOST_LEVELS:
            raise UserError(f"nested more than {MOST_LEVELS} levels deep", where=at, fix="see docs/cluster-file.md")


def _at(name: str, mark: _Mark | None) -> str:
    return f"{name}:{mark.line + 1}:{mark.column + 1}" if mark is not None else name


def _at_byte(name: str, text: str, offset: int) -> str:
    before = text.encode()[:offset].decode(errors="replace")
    return f"{name}:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"


# --- what is built --------------------------------------------------------------------------------


class _Builder:
    """Turns nodes into data, and notes positions and problems as it goes."""

    def __init__(self, name: str) -> None:
        self.problems: list[UserError] = []
        self.keys: dict[Place, Position] = {}
        self.values: dict[Place, Position] = {}
        self._name = name

    def value(self, node: yaml.Node, place: Place) -> Any:
        self.values[place] = self._position_of_value(node, place)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, place)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(child, (*place, number)) for number, child in enumerate(node.value)]
        return _scalar(node)

    def _position_of_value(self, node: yaml.Node, place: Place) -> Position:
        """A block, or nothing, starts somewhere below its key; people look for it at the key."""
        begins_at_key = isinstance(node, yaml.CollectionNode) or not node.value
        return self.keys.get(place, _position(node)) if begins_at_key else _position(node)

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._refuse(key_node, "a key must be one word", "write `key: value`")
                continue
            key = str(key_node.value)
            if key in result:
                self._refuse(key_node, f"duplicate key {key!r}", "remove one of them")
                continue
            self.keys[(*place, key)] = _position(key_node)
            result[key] = self.value(value_node, (*place, key))
        return result

    def _refuse(self, node: yaml.Node, what: str, fix: str) -> None:
        self.problems.append(UserError(what, where=_at(self._name, node.start_mark), fix=fix))


def _scalar(node: yaml.Node) -> Any:
    kind = node.tag.rpartition(":")[2]
    if kind == "int":
        return int(node.value)
    if kind == "float":
        return float(node.value)
    if kind == "bool":
        return node.value == "true"
    return None if kind == "null" else str(node.value)


def _position(node: yaml.Node) -> Position:
    return node.start_mark.line + 1, node.start_mark.column + 1
