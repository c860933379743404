"""Which phases of an operation run: all but those of `--skip`, checked before anything is done."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches

from autarky.errors import Problems, UserError


def refuse_unknown(operation: str, names: Sequence[str], skip: Collection[str]) -> None:
    """Raises UserError (or Problems) for what is to be skipped and is not among `names`."""
    problems = [_unknown(operation, name, names) for name in dict.fromkeys(skip) if name not in names]
    if len(problems) > 1:
        raise Problems(f"unknown phases of {operation}", problems)
    if problems:
        raise problems[0]


def _unknown(operation: str, name: str, names: Iterable[str]) -> UserError:
    near = get_close_matches(name, list(names))
    fix = f"did you mean {' or '.join(near)}?" if near else f"name one of {', '.join(names)}"
    return UserError(f"{operation} has no phase {name}", fix=fix)
