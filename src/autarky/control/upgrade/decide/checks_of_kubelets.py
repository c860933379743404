"""What kubelets that follow the control plane are to be started with, as `commands` judges it before an upgrade. Pure.

The kubelets come last: with an argument that their new version lacks, the first one of each pool would go back, and the
upgrade end in its middle. What counts is what the ControlPlane asks for, since each new generation is made of it; what
autarky itself gives every kubelet, each release understands. Nodes that do not follow, or whose pool has a version of
its own, stay as they are.

Contract: returns for any object, and never raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autarky.control.common.shapes import mapping, plain, within
from autarky.control.kubelet.decide import pools
from autarky.control.kubelet.decide import wanted as wanted_of_kubelets
from autarky.control.kubelet.decide.pools import Pool
from autarky.control.upgrade.decide.observed import File
from autarky.control.upgrade.decide.removed import FIELD
from autarky.model.components import KUBELET
from autarky.render.values import flags

KIND = "kubelet.config.k8s.io/v1beta1 KubeletConfiguration"
"""As which autarky writes the configuration of every kubelet."""


def command_lines(plane: Mapping[str, Any] | None) -> list[list[str]]:
    """The arguments that all of them are to have, as one command line."""
    if not _followers(plane):
        return []
    return [flags({}, mapping(within(plane, "spec", "componentArguments", KUBELET)))]


def configurations(plane: Mapping[str, Any] | None) -> list[File]:
    """The feature gates of each pool that has some, as of a configuration file."""
    gates = {pool.name: mapping(pool.configuration.get(FIELD)) for pool in _followers(plane)}
    return [
        File(
            KUBELET,
            "config",
            f"kubelet.configuration of pool {name} in spec.pools of the ControlPlane",
            KIND,
            {plain(gate): str(value).lower() for gate, value in of_pool.items()},
        )
        for name, of_pool in gates.items()
        if of_pool
    ]


def _followers(plane: Mapping[str, Any] | None) -> list[Pool]:
    """The pools whose kubelets get the control plane's version."""
    if not wanted_of_kubelets.follows(mapping(plane)):
        return []
    return [one for one in pools.read(within(plane, "spec", "pools")) if one.version is None]
