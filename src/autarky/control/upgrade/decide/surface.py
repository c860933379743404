"""What the components of a release understand, as their own programs say: the files in `surfaces`. Pure.

The files are made by scripts/release_surface.py, which says where each part comes from, and never by hand. They are
part of the package and of the agents' image, as the operator compares them before an upgrade.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

from autarky import programs
from autarky.model.versions import Version

FOLDER = "surfaces"


class Served(Enum):
    """What it takes for kube-apiserver to serve a resource: nothing; an entry of --runtime-config; or a feature gate
    that is off by default, and maybe that entry as well."""

    DEFAULT = "default"
    RUNTIME_CONFIG = "runtime-config"
    FEATURE_GATES = "feature-gates"


@dataclass(frozen=True, slots=True)
class Flag:
    """takes_value: whether the next argument is its value where it is written without "=". hidden: `--help` does not
    have it."""

    takes_value: bool
    deprecated: bool = False
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class Gate:
    """stage: ALPHA, BETA, GA or DEPRECATED. locked: a component does not start with another value than the default."""

    stage: str
    default: bool
    locked: bool = False


@dataclass(frozen=True, slots=True, order=True)
class Resource:
    """group_version: as in `apiVersion`, "v1" or "apps/v1". name: the plural, without subresources."""

    group_version: str
    name: str

    @property
    def group(self) -> str:
        """Empty for the core group."""
        return self.group_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        return self.group_version.rpartition("/")[2]

    def __str__(self) -> str:
        return f"{self.name} of {self.group_version}"


@dataclass(frozen=True, slots=True)
class Surface:
    """flags, gates: component → name → what it is. registered: the group versions that kube-apiserver starts with in
    --runtime-config; it need not serve anything of them. configurations: component → flag that names a configuration
    file → what may be in it, "apps/v1 Deployment"."""

    version: Version
    flags: Mapping[str, Mapping[str, Flag]]
    gates: Mapping[str, Mapping[str, Gate]]
    admission_plugins: frozenset[str]
    resources: Mapping[Resource, Served]
    registered: frozenset[str]
    configurations: Mapping[str, Mapping[str, frozenset[str]]]


def surface_of(version: Version) -> Surface | None:
    """That of exactly this version; else that of the nearest patch of the same minor, the older one of two, since
    patches remove nothing. None for an unknown minor."""
    same_minor = [one for one in _texts() if (one.major, one.minor) == (version.major, version.minor)]
    nearest = min(same_minor, key=lambda one: (abs(one.patch - version.patch), one.patch), default=None)
    return None if nearest is None else _loaded(nearest)


def known_surfaces() -> tuple[Version, ...]:
    """The versions that have a file, oldest first."""
    return tuple(sorted(_texts()))


@cache
def _texts() -> Mapping[Version, str]:
    return {Version.parse(name): text for name, text in programs.data(__file__, FOLDER).items()}


@cache
def _loaded(version: Version) -> Surface:
    return parsed_surface(json.loads(_texts()[version]))


def parsed_surface(data: Mapping[str, Any]) -> Surface:
    """Of the content of a file. ValueError, KeyError or TypeError where it is none."""
    flags = {name: {flag: _flag(row) for flag, row in rows.items()} for name, rows in data["flags"].items()}
    return Surface(
        Version.parse(data["kubernetes"]),
        flags,
        {name: _gates(name, data["featureGates"]) for name in flags},
        frozenset(data["admissionPlugins"]),
        {_resource(text): Served(how) for text, how in data["resources"].items()},
        frozenset(data["registeredVersions"]),
        {
            name: {flag: frozenset(kinds) for flag, kinds in flags.items()}
            for name, flags in data["configurations"].items()
        },
    )


def _flag(row: str) -> Flag:
    kind, *further = row.split(" ")
    _refuse_others(row, {kind: ("value", "switch"), **dict.fromkeys(further, ("deprecated", "hidden"))})
    return Flag(kind == "value", "deprecated" in further, "hidden" in further)


def _gates(component: str, rows: Mapping[str, str | Mapping[str, str]]) -> dict[str, Gate]:
    """Of that component. A row is the same for all components, or there is one for each that has the gate."""
    own = {name: row if isinstance(row, str) else row.get(component) for name, row in rows.items()}
    return {name: _gate(row) for name, row in own.items() if row is not None}


def _gate(row: str) -> Gate:
    stage, state, *further = row.split(" ")
    _refuse_others(row, {state: ("on", "off"), **dict.fromkeys(further, ("locked",))})
    return Gate(stage, state == "on", "locked" in further)


def _resource(text: str) -> Resource:
    group_version, name = text.split(" ")
    return Resource(group_version, name)


def _refuse_others(row: str, words: Mapping[str, tuple[str, ...]]) -> None:
    if any(word not in known for word, known in words.items()):
        raise ValueError(f"{row!r} is not a row of a surface")
