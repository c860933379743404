"""The defaults of a cluster, in numbered editions: what it has where its file says nothing.

A cluster keeps the edition that it was founded with, whatever release works on it. A new cluster gets the newest; one
that is there gets another when its file names it (`spec.defaults`). So a default is changed by adding an edition here.

What belongs into an edition is a choice: what the file could say otherwise, and nothing of ours relies on. A fault that
is mended is no default, nor is what our parts need of each other: these reach every cluster with its next `up`. What is
new, and noticed by users, gets a field in the file; the editions of before have the value for it that changes nothing.

Contract: what an edition says is never changed nor removed, since clusters live by it. All editions have the same
fields, with values as a kept file has them. Networks, and what follows from `nodes`, are in none of them: no cluster
could take others later, so that these stay as they are while the file is v1alpha1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from autarky.model.versions import Version

Value = str | int | bool | None
FIRST = 1
"""What clusters have of releases that knew no editions: wherever no number is noted."""


@dataclass(frozen=True, slots=True)
class Edition:
    """kubernetes: the version of a new cluster; one that is there keeps its own until its file names another. file: by
    their paths in the spec. arguments: component → flags of ours, over which `extraArgs` win."""

    kubernetes: Version
    file: Mapping[str, Value]
    arguments: Mapping[str, Mapping[str, str]]


EDITIONS: tuple[Edition, ...] = (
    Edition(
        kubernetes=Version(1, 36, 4),  # the newest minor but one, as most users run
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


def newest() -> int:
    """The number of the newest edition."""
    return len(EDITIONS)


def is_known(number: int) -> bool:
    return FIRST <= number <= newest()


def edition(number: int) -> Edition:
    """ValueError for one that is not known here."""
    if not is_known(number):
        raise ValueError(f"there is no edition {number} of defaults; known: {FIRST} to {newest()}")
    return EDITIONS[number - FIRST]


# --- what a cluster has -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Had:
    """What a cluster that is there has, where its file says nothing: its edition of defaults, and its version."""

    edition: int
    version: Version


def had(kept: Any) -> Had | None:
    """By its file as it was kept when it was applied; None where that cannot be understood."""
    try:
        spec = kept["spec"]
        number, version = spec.get("defaults", FIRST), Version.parse(spec["kubernetesVersion"])
    except (KeyError, TypeError, AttributeError, ValueError):
        return None
    return Had(number, version) if type(number) is int else None


def with_edition(kept: Mapping[str, Any]) -> dict[str, Any]:
    """The file as it was kept, with the number of its edition also where it is of a release that noted none: so that
    the same file is equal, whichever release has written it."""
    spec = kept.get("spec")
    return {**kept, "spec": {"defaults": FIRST, **spec}} if isinstance(spec, Mapping) else dict(kept)


def edition_in(kept: Mapping[str, Any]) -> Any:
    """The number in a file as it was kept, or in a ControlPlane: whatever is said there. FIRST where nothing is."""
    spec = kept.get("spec")
    return spec.get("defaults", FIRST) if isinstance(spec, Mapping) else FIRST
