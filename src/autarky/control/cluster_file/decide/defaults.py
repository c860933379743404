"""What a cluster with an older edition of defaults lacks, and the message about it. Pure.

Contract: the cluster keeps what it has; the message changes nothing. Nothing is missed with the newest edition, nor
with one that only a newer release knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autarky.model import defaults
from autarky.model.defaults import Edition

VERSION = "kubernetesVersion"


@dataclass(frozen=True, slots=True)
class Missed:
    """A default that differs in the newest edition. what: a path in the file's spec, or a flag
    ("kube-scheduler --profiling"); here, new: both values, as text."""

    what: str
    here: str
    new: str

    @property
    def clause(self) -> str:
        stays = "; it stays until the file names another" if self.what == VERSION else ""
        return f"{self.what} {self.new} (here {self.here}{stays})"


def missed(number: int) -> list[Missed]:
    """What the newest edition sets differently from that one, or in addition."""
    if not defaults.is_known(number):
        return []
    here, new = texts_of(defaults.edition(number)), texts_of(defaults.edition(defaults.newest()))
    names = dict.fromkeys([*new, *here])
    found = [Missed(name, here.get(name, _NOT_SET), new.get(name, _NOT_SET)) for name in names]
    return [one for one in found if one.here != one.new]


def missed_by(file: Mapping[str, Any], number: int) -> list[Missed]:
    """Those of them that would change the cluster of this file (with all defaults filled in, as it is kept): a value
    there that differs from the edition's is the user's own."""
    return [one for one in missed(number) if _in_file(file, one.what, one.here) == one.here]


def sentence(number: int, lacking: list[Missed]) -> str:
    """For the administrator of the cluster; `lacking` is not empty."""
    new = defaults.newest()
    clauses = ", ".join(one.clause for one in lacking)
    return (
        f"the cluster keeps the defaults of edition {number}; new ones have those of edition {new}: {clauses}"
        f" (to take them, set `defaults: {new}` in the spec of its file)"
    )


_NOT_SET = "not set"


def texts_of(edition: Edition) -> dict[str, str]:
    """All of it: what (as in `Missed`) → value, as text."""
    flags = {_flag(name, flag): text for name, given in edition.arguments.items() for flag, text in given.items()}
    return {
        VERSION: _text(str(edition.kubernetes).removeprefix("v")),
        **{path: _text(value) for path, value in edition.file.items()},
        **flags,
    }


def _flag(component: str, name: str) -> str:
    return f"{component} --{name}"


def _text(value: defaults.Value) -> str:
    """As in the file."""
    if value is None:
        return _NOT_SET
    return str(value).lower() if isinstance(value, bool) else str(value)


def _in_file(file: Mapping[str, Any], what: str, here: str) -> str:
    """The value in the file; our own value for a flag that it does not set."""
    component, given, name = what.partition(" --")
    if given:
        return str(_at(file, ["spec", "extraArgs", component, name]) or here)
    return _text(_at(file, ["spec", *what.split(".")]))


def _at(value: Any, path: list[str]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
