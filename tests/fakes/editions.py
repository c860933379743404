"""A second edition of defaults, as a later release may have it: it has other flags for each component of the first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autarky.model import defaults
from autarky.model.versions import Version

FIRST = defaults.EDITIONS[0]
SECOND = replace(
    FIRST,
    kubernetes=Version(1, 37, 1),
    file={**FIRST.file, "certificates.leafDays": 90, "certificates.kubeletLifetime": "43200m"},
    arguments={
        "etcd": {"snapshot-count": "20000"},
        "kube-apiserver": {},
        "kube-controller-manager": {**FIRST.arguments["kube-controller-manager"], "kube-api-qps": "150"},
        "kube-scheduler": {"profiling": "true"},
    },
)
TOLD = (
    "the cluster keeps the defaults of edition 1; new ones have those of edition 2:"
    " kubernetesVersion 1.37.1 (here 1.36.4; it stays until the file names another),"
    " certificates.leafDays 90 (here 365),"
    " certificates.kubeletLifetime 43200m (here not set),"
    " etcd --snapshot-count 20000 (here 10000),"
    " kube-controller-manager --kube-api-qps 150 (here 100),"
    " kube-scheduler --profiling true (here false),"
    " kube-apiserver --profiling not set (here false)"
    " (to take them, set `defaults: 2` in the spec of its file)"
)
"""Of a cluster that has all of the first."""


def the_first_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on this is one that has no other edition than the first."""
    monkeypatch.setattr(defaults, "EDITIONS", (FIRST,))


def a_later_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on this is one that has the second edition as its newest."""
    monkeypatch.setattr(defaults, "EDITIONS", (FIRST, SECOND))
