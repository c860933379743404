"""The user's own add-ons, read from their directory: YAML as Kubernetes' own tools read it, without its traps.

Contract: `read` returns what is there, in the order in which it is applied, or raises Problems with all that is wrong,
each with its file, the number of the document in it, and what to do. Nothing but the directory is read; only files
whose names end as YAML or JSON does, and no directories in it.

A scalar is a number, true, false or null where kubectl reads it as one, also `0644` and `0x1f`. What YAML readers do
not agree on (`yes`, `on`) is refused where it is not quoted; so are aliases and tags, as in the cluster file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from autarky.errors import Problems, UserError
from autarky.model.own_add_ons import ENDINGS, OwnAddOns, OwnObject

MOST_LEVELS = 100
"""The schema of a large CRD has some 50."""
_SERVERS_OWN = ("managedFields", "resourceVersion", "uid")
_UNCLEAR = re.compile(r"^(?:y|n|yes|no|on|off)$", re.IGNORECASE)
_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")


class _Loader(yaml.CSafeLoader):
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 # replaces the inherited


for _tag, _pattern, _first in (
    ("bool", rf"^(?:{'|'.join(_TRUE + _FALSE)})$", "tTfF"),
    ("null", r"^(?:null|Null|NULL|~|)$", ["n", "N", "~", ""]),
    ("int", r"^[-+]?(?:0|[1-9][0-9]{0,17}|0o?[0-7]{1,20}|0x[0-9a-fA-F]{1,15})$", "-+0123456789"),
    (
        "float",
        r"^[-+]?(?:[0-9]{1,18}\.[0-9]{0,18}|\.[0-9]{1,18}|[0-9]{1,18})(?:[eE][-+]?[0-9]{1,3})?$",
        "-+.0123456789",
    ),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list(_first))


def read(directory: Path) -> OwnAddOns:
    """What is in the directory; Problems with all that is wrong there."""
    found, problems = list[OwnObject](), list[UserError]()
    files = _files(directory, problems) if directory.exists() else []
    for path in files:
        found += _of_file(path, problems)
    problems += _twice(found)
    if problems:
        raise Problems(f"the add-ons in {directory} have errors", problems)
    return OwnAddOns(str(directory), bool(files), tuple(found))


def _files(directory: Path, problems: list[UserError]) -> list[Path]:
    try:
        paths = sorted(directory.iterdir(), key=lambda path: path.name)
    except OSError as error:
        problems.append(UserError(f"cannot read it: {error.strerror}", where=str(directory), fix="make it readable"))
        return []
    return [path for path in paths if path.suffix in ENDINGS and not path.name.startswith(".") and path.is_file()]


def _of_file(path: Path, problems: list[UserError]) -> Iterator[OwnObject]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else f"cannot read it: {error.strerror}"
        problems.append(UserError(why, where=str(path), fix="save it as UTF-8, readable for you"))
        return
    begun = list[int]()
    try:
        _refuse_traps(text, path, begun)
        for number, node in enumerate(yaml.compose_all(text, Loader=_Loader), 1):
            where, builder = f"{path} (document {number}, line {_line(node)})", _Builder()
            content = builder.value(node)
            if content is None:  # nothing but comments
                continue
            wrong = [*builder.wrong, *_wrong(content)]
            problems += [UserError(what, where=where, fix=fix) for what, fix in wrong]
            if not wrong:
                yield OwnObject(path.name, where, content)
    except yaml.MarkedYAMLError as error:
        said = ", ".join(part for part in (error.context, error.problem) if part)
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        at = f"{path} (document {max(1, len(begun))}{line})"
        problems.append(UserError(f"not YAML: {said}", where=at, fix="correct the syntax there"))
    except yaml.reader.ReaderError as error:
        problems.append(UserError(f"not YAML: {error.reason}", where=str(path), fix="remove that character"))
    except UserError as error:
        problems.append(error)


def _refuse_traps(text: str, path: Path, begun: list[int]) -> None:
    """begun: gets the line of each document that begins."""
    level = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.DocumentStartEvent):
            begun.append(_line(event))
        at = f"{path} (document {len(begun)}, line {_line(event)})"
        if isinstance(event, yaml.AliasEvent):
            raise UserError("aliases (*name) are not supported", where=at, fix="write out what it stands for")
        if isinstance(event, yaml.NodeEvent) and getattr(event, "tag", None) is not None:
            raise UserError("tags (!name) are not supported", where=at, fix="leave it out, or quote the text")
        level += isinstance(event, yaml.CollectionStartEvent)
        level -= isinstance(event, yaml.CollectionEndEvent)
        if level > MOST_LEVELS:
            raise UserError(f"nested more than {MOST_LEVELS} levels deep", where=at, fix="split it")


def _line(what: Any) -> int:
    """Of a node or an event of PyYAML."""
    return int(what.start_mark.line) + 1


# --- one document ---------------------------------------------------------------------------------


def _wrong(content: Any) -> Iterator[tuple[str, str]]:
    """(what is wrong, what to do) of one document."""
    if not isinstance(content, dict):
        yield "it is no object", "write a mapping with apiVersion, kind and metadata"
        return
    for name in ("apiVersion", "kind"):
        if not isinstance(content.get(name), str) or not content[name]:
            yield f"{name} is missing", f"add {name}: TEXT"
    if isinstance(content.get("kind"), str) and content["kind"].endswith("List") and "items" in content:
        yield f"a {content['kind']} is not supported", "write its items as documents, with a line --- between them"
        return
    meta = content.get("metadata")
    if not isinstance(meta, dict):
        yield "metadata is missing", "add metadata with a name"
        return
    for name in ("name", "namespace"):
        needed = name == "name" or name in meta
        if needed and (not isinstance(meta.get(name), str) or not meta[name]):
            yield f"metadata.{name} is missing, or no text", f"add {name}: TEXT to metadata"
    for name in ("labels", "annotations"):
        values = meta.get(name)
        if values is not None and not (isinstance(values, dict) and all(isinstance(v, str) for v in values.values())):
            yield f"metadata.{name} has a value that is no text", "quote it"
    for name in _SERVERS_OWN:
        if name in meta:
            yield f"metadata.{name} belongs to a live object", f"remove {name}"


def _twice(found: list[OwnObject]) -> Iterator[UserError]:
    """The same object in two documents. One without a namespace is compared with those in `default`."""
    first: dict[tuple[str, ...], OwnObject] = {}
    for one in found:
        meta, group = one.content["metadata"], one.content["apiVersion"].rpartition("/")[0]
        key = (group, one.content["kind"], meta.get("namespace") or "default", meta["name"])
        if key in first:
            what = f"{one.content['kind']} {meta['name']} is in {first[key].where} as well"
            yield UserError(what, where=one.where, fix="remove one of the two")
        else:
            first[key] = one


# --- nodes to data --------------------------------------------------------------------------------


class _Builder:
    """Turns nodes into data, and notes (what is wrong, what to do) as it goes."""

    def __init__(self) -> None:
        self.wrong: list[tuple[str, str]] = []

    def value(self, node: yaml.Node) -> Any:
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(child) for child in node.value]
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = f"line {_line(key_node)}"
            if not isinstance(key_node, yaml.ScalarNode):
                self.wrong.append((f"a key must be one word ({line})", "write `key: value`"))
            elif key_node.value in result:
                self.wrong.append((f"duplicate key {key_node.value!r} ({line})", "remove one of them"))
            else:
                result[str(key_node.value)] = self.value(value_node)
        return result

    def _scalar(self, node: Any) -> Any:
        kind, text = node.tag.rpartition(":")[2], str(node.value)
        if kind == "str" and not node.style and _UNCLEAR.match(text):
            what = f"{text!r} is true or false to some readers of YAML, and a text to others"
            self.wrong.append((f"{what} (line {_line(node)})", "write true or false, or quote it"))
        if kind == "int":
            return _whole_number(text)
        if kind == "float":
            return float(text)
        if kind == "bool":
            return text in _TRUE
        return None if kind == "null" else text


def _whole_number(text: str) -> int:
    sign, digits = (-1 if text.startswith("-") else 1), text.lstrip("+-")
    if digits.startswith("0x"):
        return sign * int(digits, 16)
    return sign * (int(digits.lstrip("0o") or "0", 8) if digits.startswith("0") else int(digits))
