"""What a configuration file says of itself: its apiVersion, its kind, and its feature gates. Pure.

Contract: what is returned of a valid file is what any reader of YAML finds there. Of whatever is not certain to be read
the same way, nothing is: None. It raises for no content, and keeps nothing else of it: the keys of an encryption
configuration are there, too (rule 7).

JSON in any form, and YAML whose first level is a mapping in block style, as people and `kubectl` write it. Agents have
no library for YAML, and these three need none: a key of the first level begins in the first column, where nothing else
does but items of a list; what belongs to it is indented.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autarky.parsing import parsed

GATES = "featureGates"
_KEY = re.compile(r"""(?:([A-Za-z][\w.-]*)|"([\w.-]+)"|'([\w.-]+)'):(?: +(.*))?""", re.ASCII)
_WORD = re.compile(r"""([A-Za-z][\w./-]*)|"([\w./-]+)"|'([\w./-]+)'""", re.ASCII)
_FLOW = r"""\{[^"'#\[\]{}]*\}|\[[^"'#\[\]{}]*\]"""
_SCALAR = r"""[^"'\[\]{}&*!|>%@`,?#-].*|"[^"\\]*"|'[^']*'|[|>][-+]?|"""
_ENDS = re.compile(f"{_FLOW}|{_SCALAR}")
"""A value that ends in its line, or goes on in lines that are indented."""
_COMMENT = re.compile(r"(?:^|(?<! ) +)#.*$")
"""From the first of the spaces before it: from each of them would take the square of their number."""
LARGEST = 256 << 10
"""Bytes. What is longer is no configuration that somebody has written."""
_NO_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null"})
_BOOLEANS = frozenset({"true", "True", "TRUE", "false", "False", "FALSE"})
_ODD = re.compile("[\t\r\v\f\x1c-\x1e\x85\u2028\u2029\ufeff]")
"""What ends a line for some readers and not for others, or is no indentation."""


@dataclass(frozen=True, slots=True)
class Header:
    """gates: name → "true" or "false", however these are spelled there."""

    api_version: str
    kind: str
    gates: Mapping[str, str] = field(default_factory=dict)


def header(content: bytes) -> Header | None:
    if len(content) > LARGEST:
        return None
    try:
        document = content.decode()
        return _of_json(document) if document.lstrip().startswith("{") else _of_yaml(document)
    except ValueError:
        return None


def _of_json(document: str) -> Header | None:
    found = parsed(document)
    version, kind, gates = (found.get(name) for name in ("apiVersion", "kind", GATES))
    gates = {} if gates is None else gates
    if not (isinstance(version, str) and isinstance(kind, str) and version and kind and isinstance(gates, dict)):
        return None
    if not all(isinstance(value, bool) for value in gates.values()):
        return None
    return Header(version, kind, {name: str(value).lower() for name, value in gates.items()})


# --- YAML ----------------------------------------------------------------------------------------------------


def _of_yaml(document: str) -> Header | None:
    entries = _first_level(document.replace("\r\n", "\n"))
    if entries is None:
        return None
    version, kind = (_word(entries.get(name, ())) for name in ("apiVersion", "kind"))
    gates = _gates(entries.get(GATES, [""]))
    return None if version is None or kind is None or gates is None else Header(version, kind, gates)


def _first_level(document: str) -> dict[str, list[str]] | None:
    """Key → what stands behind it, and the lines that belong to it; without comments and empty lines. None where it may
    be something else than a mapping in block style."""
    if _ODD.search(document):
        return None
    entries: dict[str, list[str]] = {}
    last: list[str] | None = None
    for line in _lines(document):
        if line.startswith((" ", "- ")) or line == "-":
            if last is None or (not line.startswith(" ") and last[0]):
                return None
            last.append(line)
            continue
        pair = _pair(line)
        if pair is None or pair[0] in entries or not _ENDS.fullmatch(pair[1]) or not _is_closed(last):
            return None
        last = entries[pair[0]] = [pair[1]]
    return entries if _is_closed(last) else None


def _is_closed(entry: Sequence[str] | None) -> bool:
    """Whether no quotation that began below a key goes on where the next key seems to begin. (What seems to be one in
    a list in brackets has a comma or the bracket behind its value.)"""
    below = "".join(_COMMENT.sub("", line) for line in (entry or ())[1:])
    return below.count('"') % 2 == 0 and below.count("'") % 2 == 0


def _lines(document: str) -> list[str]:
    """Of the first document of the stream."""
    lines = [line.rstrip(" ") for line in document.split("\n")]
    lines = [line for line in lines if line and not line.lstrip(" ").startswith("#")]
    lines = lines[1:] if lines[:1] == ["---"] else lines
    end = next((at for at, line in enumerate(lines) if line in ("---", "...")), len(lines))
    return lines[:end]


def _pair(text: str) -> tuple[str, str] | None:
    """Of "key: value # comment"."""
    found = _KEY.fullmatch(_COMMENT.sub("", text))
    return None if found is None else (found[1] or found[2] or found[3], found[4] or "")


def _word(entry: Sequence[str]) -> str | None:
    found = _WORD.fullmatch(entry[0]) if len(entry) == 1 else None
    if found is None or (found[1] or "").lower() in _NO_WORDS:
        return None
    return found[1] or found[2] or found[3]


def _gates(entry: Sequence[str]) -> dict[str, str] | None:
    value, *under = entry
    if value and under:
        return None
    if value:
        inside = value[1:-1].strip() if value.startswith("{") else None
        under = [] if inside == "" else [" " + one.strip() for one in (inside or "?").split(",")]
    if len({len(line) - len(line.lstrip(" ")) for line in under}) > 1:
        return None
    pairs = [_pair(line.strip(" ")) for line in under]
    gates = {pair[0]: pair[1].lower() for pair in pairs if pair is not None and pair[1] in _BOOLEANS}
    return gates if len(gates) == len(under) else None
