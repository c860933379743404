"""What the checks before an upgrade look at, and what they find. Pure.

Contract: objects are as on the wire, and somebody else has written them: the checks raise for none. What could not be
looked at is in `unseen`, and the value beside it is empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from autarky.model.versions import Version

Object = dict[str, Any]


class Source(StrEnum):
    """What is looked at. The values are for sentences."""

    PLANE = "the ControlPlane"
    NODES = "the nodes"
    CONTROL_NODES = "the record of control nodes"
    WORKLOADS = "the workloads of the control plane"
    FILES = "the configuration files of the control plane"
    WEBHOOKS = "the webhooks"
    BUDGETS = "the PodDisruptionBudgets"
    METRICS = "the metrics of the API servers"
    API_SERVICES = "the APIServices"


PASSES = 30.0
"""Seconds in which what is only so for a moment is over: a pod that starts again, a source that is out of sight."""


@dataclass(frozen=True, slots=True)
class Finding:
    """name: of the check. sentence: what was seen. fix: what to do, and what to type where that is possible. warning:
    whether the upgrade may go on all the same. patience: seconds for which the finding may be there though nothing is
    wrong, since it passes by itself, or what it is based on comes late; `checks.refusing` gives it that time."""

    name: str
    sentence: str
    fix: str
    warning: bool = False
    patience: float = 0.0


@dataclass(frozen=True, slots=True)
class Requested:
    """A deprecated API that somebody has requested of an API server since that started. group: "" for the core group.
    removed: the (major, minor) from which it is not served any more."""

    group: str
    version: str
    resource: str
    removed: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Stored:
    """Objects of a resource that the wanted version does not serve, or that it cannot read since it has no type for the
    version they are stored in. count: None where the API server could not count them. others: the group versions in
    which it serves the resource."""

    group: str
    version: str
    resource: str
    count: int | None
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class File:
    """A configuration file that the command line of a component names by this flag. place: where it comes from, for
    sentences. what: its apiVersion and its kind, "a/v1 Kind"; gates: its feature gates; of nothing else in it anything
    is kept. fixed: whether it lies in an object that is immutable. trouble: why nothing is known of what it says, a
    clause; missing: whether that is since it is not there."""

    component: str
    flag: str
    place: str
    what: str = ""
    gates: Mapping[str, str] = field(default_factory=dict)
    fixed: bool = False
    trouble: str = ""
    missing: bool = False


Service = tuple[str, str]
"""(namespace, name)"""


@dataclass(frozen=True, slots=True)
class Seen:
    """runs: the version that the control plane has had completely last. workloads: component → the live object that it
    is hosted by. files: those that their command lines name. webhooks: configurations of both kinds. services: those
    behind webhooks → why they answer nobody, a clause; None where they may answer. system_labels: of the namespace
    kube-system. budgets: "namespace/name" of the PodDisruptionBudgets that allow no disruption now. soak: the seconds
    for which the new binaries are to emulate the minor that runs. emulated: what a plan that is under way has them
    emulate already; "" for nothing."""

    runs: Version
    wanted: Version
    plane: Mapping[str, Any] | None
    nodes: Sequence[Mapping[str, Any]]
    workloads: Mapping[str, Mapping[str, Any]]
    control_nodes: frozenset[str] = frozenset()
    files: Sequence[File] = ()
    webhooks: Sequence[Mapping[str, Any]] = ()
    services: Mapping[Service, str | None] = field(default_factory=dict)
    system_labels: Mapping[str, Any] = field(default_factory=dict)
    budgets: Sequence[str] = ()
    requested: Sequence[Requested] = ()
    stored: Sequence[Stored] = ()
    api_services: Sequence[Mapping[str, Any]] = ()
    soak: int = 0
    emulated: str = ""
    unseen: Mapping[Source, str] = field(default_factory=dict)
    """Source → why it could not be looked at."""
