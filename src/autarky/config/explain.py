"""What pydantic found wrong, in the user's words: place, position, what is there, how to fix it.

Contract: `explain` gives one UserError per error, none left out; `where` is FILE:LINE:COLUMN, `what` starts
with the dotted path. Kinds of errors without a text of their own keep pydantic's.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from autarky.config.positions import Document
from autarky.errors import UserError

REFERENCE = "see docs/cluster-file.md"
_KEY = "[key]"
"""What pydantic adds to the place of a mapping's key that is wrong itself."""

Detail = Mapping[str, Any]
Explained = tuple[str, str]
"""What is wrong, and how to fix it."""


def explain(error: ValidationError, model: type[BaseModel], document: Document) -> list[UserError]:
    """All errors of a validation, as the user should read them, in the order of the file's fields."""
    return [_explain_one(detail, model, document) for detail in error.errors(include_url=False)]


def _explain_one(detail: Detail, model: type[BaseModel], document: Document) -> UserError:
    location = list(detail["loc"])
    about_key = detail["type"] in {"extra_forbidden", "missing"} or location[-1:] == [_KEY]
    if location[-1:] == [_KEY]:
        location.pop()
    if detail["type"] == "extra_forbidden":
        what, fix = _unknown_key(str(location[-1]), _keys_at(model, location[:-1]))
    elif detail["type"] == "literal_error" and about_key:
        what, fix = _unknown_key(str(detail["input"]), _allowed(detail))
    else:
        what, fix = _TEXTS.get(detail["type"], _as_pydantic_says)(detail)
    where = document.where(location, key=about_key)
    return UserError(f"{dotted(location)}: {what}", where=where, fix=fix)


def dotted(location: Sequence[str | int]) -> str:
    """A place as users write it: spec.nodes[0].name."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "the file"


# --- texts by kind of error -----------------------------------------------------------------------


def _as_rule_says(detail: Detail) -> Explained:
    return detail["ctx"]["what"], detail["ctx"]["fix"]


def _as_pydantic_says(detail: Detail) -> Explained:
    return str(detail["msg"]), REFERENCE


def _missing(detail: Detail) -> Explained:
    return "missing", f"add {detail['loc'][-1]}"


def _unknown_key(key: str, known: Collection[str]) -> Explained:
    near = _near(key, known)
    return "unknown key", f"did you mean {near}?" if near else f"known keys here: {', '.join(known)}"


def _not_one_of(detail: Detail) -> Explained:
    allowed, given = _allowed(detail), detail["input"]
    what = f"{_shown(given)} is not one of {', '.join(allowed)}"
    if not isinstance(given, str) and str(given) in allowed:
        return f"{_shown(given)} must be text", f'put it in quotes: "{given}"'
    near = _near(str(given), allowed)
    return what, f"did you mean {near}?" if near else f"use {'one of them' if len(allowed) > 1 else allowed[0]}"


def _not_text(detail: Detail) -> Explained:
    given = detail["input"]
    if given is None:
        return (
            "must be text, but it is empty",
            'write it after the colon ("" for an empty text), or leave the key out',
        )
    if isinstance(given, dict | list):
        return f"must be text, not {_shown(given)}", REFERENCE
    return f"must be text, not {_shown(given)}", "put it in quotes"


def _must_be(kind: str, fix: str) -> Callable[[Detail], Explained]:
    return lambda detail: (f"must be {kind}, not {_shown(detail['input'])}", fix)


def _too_short(_detail: Detail) -> Explained:
    return "must not be empty", "give at least one"


def _below(detail: Detail) -> Explained:
    return f"{detail['input']} is too small", f"use {detail['ctx']['ge']} or more"


def _above(detail: Detail) -> Explained:
    return f"{detail['input']} is too large", f"use {detail['ctx']['le']} or less"


_MAPPING = _must_be("a mapping", "write `key: value` below it, or leave it out")
_TEXTS: Mapping[str, Callable[[Detail], Explained]] = {
    "refused": _as_rule_says,
    "missing": _missing,
    "literal_error": _not_one_of,
    "string_type": _not_text,
    "model_type": _MAPPING,
    "dict_type": _MAPPING,
    "list_type": _must_be("a list", "write `- item` below it, or leave it out"),
    "int_type": _must_be("a whole number", "write it without quotes, fraction or unit"),
    "bool_type": _must_be("true or false", "write true or false, without quotes"),
    "too_short": _too_short,
    "greater_than_equal": _below,
    "less_than_equal": _above,
}


# --- names ----------------------------------------------------------------------------------------


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _allowed(detail: Detail) -> list[str]:
    return re.findall("'([^']*)'", detail["ctx"]["expected"])


def _near(word: str, known: Collection[str]) -> str | None:
    """The most similar known word, if any; case does not count."""
    by_lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), by_lower, n=1)
    return by_lower[found[0]] if found else None


def _keys_at(model: type[BaseModel], location: Sequence[str | int]) -> list[str]:
    """The keys that the schema knows at a place that holds a model."""
    for part in location:
        if isinstance(part, str):
            annotation = next(f.annotation for name, f in model.model_fields.items() if (f.alias or name) == part)
            model = next(_models_in(annotation))
    return [field.alias or name for name, field in model.model_fields.items()]


def _models_in(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
