"""The defaults of a cluster, in numbered editions: what it has where its file says nothing.

A cluster keeps the edition that it was created with, whatever release works on it. A new cluster gets the newest; an
existing one changes its edition if its file names another (`spec.defaults`). So change a default by adding an edition.

An edition contains choices: what the file could say otherwise, and no part of autarky relies on. Bug fixes are not
defaults, nor is what our parts need from each other: these reach every cluster with its next `up`. New behaviour that
users notice gets a field in the file; earlier editions have the value for it that changes nothing.

Contract: an edition is never changed or removed, since clusters depend on it. All editions have the same fields, with
values as in a kept file. Networks, and what follows from `nodes`, are not part of editions: no cluster could change
them later, so these defaults stay fixed while the file is v1alpha1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from autarky.model.versions import Version

Value = str | int | bool | None
FIRST = 1
"""The edition of clusters from releases without editions: used wherever no number is noted."""


@dataclass(frozen=True, slots=True)
class Edition:
    """kubernetes: the version of a new cluster; an existing one keeps its own until its file names another. file:
    values by their paths in the spec. arguments: component → our flags, which `extraArgs` override."""

    kubernetes: Version
    file: Mapping[str, Value]
    arguments: Mapping[str, Mapping[str, str]]


EDITIONS: tuple[Edition, ...] = (
    Edition(
        kubernetes=Version(1, 36, 4),  # the second newest minor, which most users run
        file=MappingProxyType(
            {
                "selfHosted": "1-4",
                "certificates.keyAlgorithm": "EC",
                "certificates.caDays": 3650,
                "certificates.leafDays": 365,
                "certificates.leafLifetime": None,
                "certificates.kubeletLifetime": None,
                "rollback.enabled": True,
                "rollback.limitSeconds": 90,
            }
        ),
        arguments=MappingProxyType(
            {
                "etcd": {"snapshot-count": "10000"},
                "kube-apiserver": {"profiling": "false"},
                # Upstream's 20 requests a second make the start of a controller-manager take 5 s (some 40 controllers,
                # a token for each).
                "kube-controller-manager": {"profiling": "false", "kube-api-qps": "100", "kube-api-burst": "200"},
                "kube-scheduler": {"profiling": "false"},
            }
        ),
    ),
)
_FIRST = EDITIONS[0]
EDITIONS += (
    Edition(
        kubernetes=_FIRST.kubernetes,
        file=_FIRST.file,
        arguments=MappingProxyType(
            {
                **_FIRST.arguments,
                # etcd's leader compares its keys with those of the others: with every compaction, which costs next to
                # nothing, and now and then all of them. etcd's documents call both worth enabling, the second one
                # every couple of hours, since it reads the entire database.
                "etcd": {
                    **_FIRST.arguments["etcd"],
                    "corrupt-check-time": "4h",
                    "feature-gates": "CompactHashCheck=true",
                },
            }
        ),
    ),
)


def newest() -> int:
    """The number of the newest edition."""
    return len(EDITIONS)


def is_known(number: int) -> bool:
    return FIRST <= number <= newest()


def edition(number: int) -> Edition:
    """ValueError for an unknown edition."""
    if not is_known(number):
        raise ValueError(f"there is no edition {number} of defaults; known: {FIRST} to {newest()}")
    return EDITIONS[number - FIRST]


# --- what a cluster has -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Had:
    """What an existing cluster has if its file says nothing: its edition of defaults, and its version."""

    edition: int
    version: Version


def had(kept: Any) -> Had | None:
    """From the file that was kept when it was applied; None if that cannot be understood."""
    try:
        spec = kept["spec"]
        number, version = spec.get("defaults", FIRST), Version.parse(spec["kubernetesVersion"])
    except (KeyError, TypeError, AttributeError, ValueError):
        return None
    return Had(number, version) if type(number) is int else None


def with_edition(kept: Mapping[str, Any]) -> dict[str, Any]:
    """The kept file, with the number of its edition even if it was written by a release that noted none, so that the
    same file compares equal whichever release wrote it."""
    spec = kept.get("spec")
    return {**kept, "spec": {"defaults": FIRST, **spec}} if isinstance(spec, Mapping) else dict(kept)


def edition_in(kept: Mapping[str, Any]) -> Any:
    """The number in a kept file or in a ControlPlane, whatever is there. FIRST if there is none."""
    spec = kept.get("spec")
    return spec.get("defaults", FIRST) if isinstance(spec, Mapping) else FIRST
