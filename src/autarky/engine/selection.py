"""Which phases of an operation run: `--only`, `--skip` and `--from`, checked before anything is done."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from autarky.errors import Problems, UserError


@dataclass(frozen=True, slots=True)
class Selection:
    """Names of phases. Nothing selected means all; `skip` wins over the other two."""

    only: Collection[str] = ()
    skip: Collection[str] = ()
    start_from: str | None = None

    def apply(self, operation: str, names: Sequence[str]) -> frozenset[str]:
        """Those of `names` that run. Raises UserError (or Problems) for names that are not among them."""
        self._check(operation, names)
        first = names.index(self.start_from) if self.start_from is not None else 0
        return frozenset(n for n in names[first:] if (not self.only or n in self.only) and n not in self.skip)

    def _check(self, operation: str, names: Sequence[str]) -> None:
        wanted = dict.fromkeys([*self.only, *self.skip, *([self.start_from] if self.start_from is not None else [])])
        problems = [_unknown(operation, name, names) for name in wanted if name not in names]
        if len(problems) > 1:
            raise Problems(f"unknown phases of {operation}", problems)
        if problems:
            raise problems[0]


def _unknown(operation: str, name: str, names: Iterable[str]) -> UserError:
    near = get_close_matches(name, list(names))
    fix = f"did you mean {' or '.join(near)}?" if near else f"name one of {', '.join(names)}"
    return UserError(f"{operation} has no phase {name}", fix=fix)
