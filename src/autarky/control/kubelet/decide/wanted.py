"""Which version and settings a node's kubelet is to have. Pure.

A person's pin on the Node wins, then the pool's version, then the control plane's own.

Contract (rule 4): whoever asks for it, no kubelet is wanted of a later minor than the lowest version that an API server
has, or may come to have (`upgrade.decide.reported.lowest_version`). That one falls as soon as the control plane is to
go down a minor, and rises when no API server may be of the former minor any more, so that kubelets go down before it,
and up after it. Nor is one wanted that is more minors behind than Kubernetes supports. What cannot be understood is
wanted of nobody: the kubelet stays as it is, with a sentence that says why, but for one that has to go down before the
control plane can. Nothing is wanted of any before the operator has said which version the control plane has, nor by a
lower one that it has not noted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autarky.control.common.shapes import mapping, plain, text, within
from autarky.control.common.skew import minor_of
from autarky.control.kubelet.decide.order import Target
from autarky.control.kubelet.decide.pools import Pool, reference
from autarky.control.upgrade.decide import reported
from autarky.control.upgrade.decide.path import KUBELET_BEHIND
from autarky.model.components import KUBELET
from autarky.model.levels import HostedLevels
from autarky.model.versions import Version
from autarky.render.crds import GROUP

PIN = f"{GROUP}/kubelet-version"
"""On a Node, by a person: the version that its kubelet is to have, whatever its pool has."""
NOT_FOLLOWED = "spec.kubelets.follow is not true"
"""The sentence where nobody asks for anything."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """version: None where the kubelet stays as it is. sentence: why, or why it is not what was asked for; or empty."""

    version: Version | None
    sentence: str = ""


def pin_of(metadata: Mapping[str, Any]) -> str | None:
    """None where there is none."""
    pin = mapping(metadata.get("annotations")).get(PIN)
    return None if pin is None else plain(pin)


def version(plane: Mapping[str, Any], pool: Pool | None, pin: str | None, runs: Version | None) -> Wanted:
    """For a node of that pool, whose kubelet is of the version `runs`."""
    if why := against_all(plane):
        return Wanted(None, why)
    found = _asked_for(plane, pool, pin)
    if found.version is None and pool is not None and must_go_down(plane, runs):  # whether they follow or not
        return Wanted(reported.lowest_version(plane), found.sentence)
    return found


def against_all(plane: Mapping[str, Any]) -> str:
    """Why nothing is wanted of any kubelet now, whoever asks for it; empty where nothing speaks against it."""
    if (asked := not_noted(plane)) is None:
        return ""
    if not _of_status(plane):
        return "it is not known yet which version the control plane has"
    return f"the operator has yet to take up that the control plane goes down to {asked}"


def not_noted(plane: Mapping[str, Any]) -> Version | None:
    """A lower minor that the spec asks for and that the operator has not noted: it may refuse it, and a wrong version
    in the spec must not take kubelets down. Where the operator has said nothing yet (the object is new, or was made
    again), whatever the spec asks for may be lower."""
    asked, known = reported.wanted_version(plane), _of_status(plane)
    if asked is None or asked in known:
        return None
    have = reported.said_for_kubelets(plane) or min(known, default=None)
    return asked if have is None or minor_of(asked) < minor_of(have) else None


def _asked_for(plane: Mapping[str, Any], pool: Pool | None, pin: str | None) -> Wanted:
    lowest = reported.lowest_version(plane)
    if lowest is None or pool is None:
        return Wanted(None, "nothing can be said of it while the ControlPlane cannot be understood")
    if pin is not None:
        pinned = reported.parsed(pin)
        said = f"its annotation {PIN} is {pin!r}, which is no version such as v1.36.4"
        return Wanted(None, said) if pinned is None else _allowed(plane, lowest, pinned, f"annotation {PIN}")
    if pool.version is not None:
        return _allowed(plane, lowest, pool.version, f"pool {pool.name}")
    return Wanted(lowest) if follows(plane) else Wanted(None, NOT_FOLLOWED)


def is_hosted(plane: Mapping[str, Any]) -> bool:
    """Whether level 0 is; False for what cannot be understood."""
    try:
        return HostedLevels.parse(text(within(plane, "spec", "selfHosted"))).kubelet
    except ValueError:
        return False


def follows(plane: Mapping[str, Any]) -> bool:
    """Whether kubelets get the control plane's version by themselves. `up` sets that once all nodes can do it."""
    return within(plane, "spec", "kubelets", "follow") is True


def target(plane: Mapping[str, Any], pool: Pool, found: Version, *, base: str) -> Target:
    """base: as the node reports it. Where nobody names a container runtime, the node's own stays."""
    arguments = mapping(within(plane, "spec", "componentArguments", KUBELET))
    runtime = pool.runtime or reference(within(plane, "spec", "kubelets", "runtime"))
    return Target(found, base, runtime, dict(pool.configuration), dict(arguments))


def must_go_down(plane: Mapping[str, Any], runs: Version | None) -> bool:
    """Whether that kubelet is of a later minor than any may be now: the control plane waits for it."""
    lowest = reported.lowest_version(plane)
    return lowest is not None and runs is not None and minor_of(runs) > minor_of(lowest)


def refusal(plane: Mapping[str, Any], asked: Version) -> str | None:
    """Why no kubelet may get that version now; None where it may. Asked of the live ControlPlane right before."""
    lowest = reported.lowest_version(plane)
    if lowest is not None and minor_of(asked) > minor_of(lowest):
        return f"no kubelet may be newer than an API server (rule 4): {asked} is, where {lowest} is what they have"
    return None


def _allowed(plane: Mapping[str, Any], lowest: Version, asked: Version, by: str) -> Wanted:
    if minor_of(asked) > minor_of(lowest):
        return Wanted(lowest, f"{by} asks for {asked}, and no kubelet may be newer than an API server (rule 4)")
    if (what := too_old(plane, asked)) is not None:
        return Wanted(None, f"{by} asks for {asked}, which is {what}")
    return Wanted(asked)


def too_old(plane: Mapping[str, Any], asked: Version) -> str | None:
    """What that kubelet is, as Kubernetes does not support it; None where it is not, or nothing is known."""
    highest = max((one for one in _known(plane) if one is not None), default=asked)
    if asked.major == highest.major and asked.minor >= highest.minor - KUBELET_BEHIND:
        return None
    return f"more than {KUBELET_BEHIND} minors older than API server {highest} (rule 4)"


def _known(plane: Mapping[str, Any]) -> set[Version | None]:
    """As `reported.lowest_version` knows them."""
    return {reported.wanted_version(plane), *_of_status(plane)}


def _of_status(plane: Mapping[str, Any]) -> set[Version]:
    """The versions that the control plane has, or has come to have, as the operator says."""
    complete = reported.complete_version(plane)
    return {*reported.noted_versions(plane), *([] if complete is None else [complete])}
