"""Fill in what a file leaves out, from the cluster's edition of defaults.

Contract: the edition is the one that the file names; else that of the existing cluster; else the newest. A cluster has
what its last successful `up` gave it: a number that was kept but not applied is forgotten with its line. What the file
says is never changed, and malformed parts are left for the schema to report. The schema's own defaults, those of the
newest edition, are for its readers. None of them is used where an edition has a value.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from autarky.model import defaults
from autarky.model.defaults import Had
from autarky.model.names import is_name
from autarky.model.versions import Version

Founded = Callable[[str], Had | None]
"""A cluster's name → its defaults, if this machine knows the cluster."""


def nothing_is_there(_name: str) -> None:
    """For a file of a cluster that cannot exist yet."""


@dataclass(frozen=True, slots=True)
class Filled:
    """The file's data with all defaults filled in, and the version to use if it names none."""

    data: Any
    version: Version


def filled(data: Any, founded: Founded, default_version: Version) -> Filled:
    """`data`: a file as it was parsed, which may be anything."""
    spec, name = _mapping(data, "spec"), (_mapping(data, "metadata") or {}).get("name")
    had = founded(name) if isinstance(name, str) and is_name(name) else None
    version = default_version if had is None else had.version
    if spec is None:
        return Filled(data, version)
    number = spec.get("defaults")
    if number is None:
        number = defaults.newest() if had is None else had.edition
    known = type(number) is int and defaults.is_known(number)
    return Filled({**data, "spec": _with_values(spec, number if known else defaults.newest(), number)}, version)


def _with_values(spec: dict[str, Any], number: int, named: Any) -> dict[str, Any]:
    """`named`: what the file says about the edition, valid or not."""
    result = {**copy.deepcopy(spec), "defaults": named}
    for path, value in defaults.edition(number).file.items():
        *parents, last = path.split(".")
        part: Any = result
        for parent in parents:
            part = part.setdefault(parent, {}) if isinstance(part, dict) else None
        if isinstance(part, dict):
            part.setdefault(last, value)
    return result


def _mapping(data: Any, key: str) -> dict[str, Any] | None:
    found = data.get(key) if isinstance(data, dict) else None
    return found if isinstance(found, dict) else None
