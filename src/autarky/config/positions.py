"""YAML without its traps, with a position for everything in it.

Contract: duplicate keys are errors; only true, false, null, integers and decimal numbers are other than
text (`yes`, `on`, `012`, `1:30` stay text); every part of the document knows its line and column. JSON is
YAML, so the same loader reads the resolved file that `up` keeps.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from autarky.errors import UserError

Path = tuple[str | int, ...]


class _NarrowLoader(yaml.CSafeLoader):
    """Only what looks like a value in every YAML version is one; everything else is text."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 # replaces the inherited


for _tag, _pattern, _first in (
    ("bool", r"^(?:true|false)$", "tf"),
    ("null", r"^(?:null|~|)$", ["n", "~", ""]),
    ("int", r"^-?(?:0|[1-9][0-9]*)$", "-0123456789"),
    ("float", r"^-?(?:0|[1-9][0-9]*)\.[0-9]+$", "-0123456789"),
):
    _NarrowLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list(_first))


@dataclass(frozen=True, slots=True)
class Document:
    """The data, and where each part of it stands."""

    data: Any
    name: str
    _positions: dict[Path, tuple[int, int]]

    def where(self, path: Sequence[str | int]) -> str:
        """ "FILE:LINE:COLUMN" of the part, or of the nearest part around it that is in the file."""
        for length in range(len(path), -1, -1):
            position = self._positions.get(tuple(path[:length]))
            if position is not None:
                return f"{self.name}:{position[0]}:{position[1]}"
        return self.name


def parse(text: str, name: str) -> Document:
    """Read one YAML document; UserError with its position when it is not one."""
    try:
        node = yaml.compose(text, Loader=_NarrowLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark is not None else name
        raise UserError(f"not YAML: {error.problem or error}", where=where, fix="mend the syntax there") from error
    except yaml.YAMLError as error:
        raise UserError(f"not YAML: {error}", where=name, fix="mend the syntax") from error
    if node is None:
        raise UserError("the file is empty", where=name, fix="see examples/lab-1.yaml")
    positions: dict[Path, tuple[int, int]] = {}
    return Document(_build(node, (), name, positions), name, positions)


def _build(node: yaml.Node, path: Path, name: str, positions: dict[Path, tuple[int, int]]) -> Any:
    positions.setdefault(path, _position(node))
    if isinstance(node, yaml.MappingNode):
        return _build_mapping(node, path, name, positions)
    if isinstance(node, yaml.SequenceNode):
        return [_build(child, (*path, number), name, positions) for number, child in enumerate(node.value)]
    return _scalar(node)


def _build_mapping(node: yaml.MappingNode, path: Path, name: str, positions: dict[Path, tuple[int, int]]) -> Any:
    result: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = str(key_node.value)
        line, column = _position(key_node)
        if key in result:
            raise UserError(
                f"the key {key!r} is there twice", where=f"{name}:{line}:{column}", fix="remove one of them"
            )
        positions[(*path, key)] = (line, column)
        result[key] = _build(value_node, (*path, key), name, positions)
    return result


def _scalar(node: yaml.Node) -> Any:
    kind = node.tag.rpartition(":")[2]
    if kind == "int":
        return int(node.value)
    if kind == "float":
        return float(node.value)
    if kind == "bool":
        return node.value == "true"
    return None if kind == "null" else str(node.value)


def _position(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1
