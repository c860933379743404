"""Label and field selectors of the fake API server."""

from __future__ import annotations

import re
from typing import Any

_SET = re.compile(r"^(\S+) (in|notin) \(([^)]*)\)$")
_BETWEEN_TERMS = re.compile(r",(?![^(]*\))")


def selects(obj: dict[str, Any], labels: str | None, fields: str | None) -> bool:
    found = obj["metadata"].get("labels") or {}
    return all(_label_matches(found, term.strip()) for term in _terms(labels)) and all(
        _field_matches(obj, term.strip()) for term in _terms(fields)
    )


def _terms(selector: str | None) -> list[str]:
    return _BETWEEN_TERMS.split(selector) if selector else []


def _label_matches(labels: dict[str, str], term: str) -> bool:
    if match := _SET.match(term):
        key, operator, values = match.groups()
        return (labels.get(key) in [value.strip() for value in values.split(",")]) == (operator == "in")
    if "!=" in term:
        key, value = term.split("!=")
        return labels.get(key) != value
    if "=" in term:
        key, value = re.split("==?", term, maxsplit=1)
        return labels.get(key) == value
    return term[1:] not in labels if term.startswith("!") else term in labels


def _field_matches(obj: dict[str, Any], term: str) -> bool:
    path, operator, value = re.split("(!=|==?)", term, maxsplit=1)
    found: Any = obj
    for name in path.split("."):
        found = (found or {}).get(name)
    return (str(found if found is not None else "") == value) == (operator != "!=")
