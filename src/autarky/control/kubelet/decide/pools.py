"""`spec.pools` of the ControlPlane: which node is in which pool, and how the kubelets of a pool change. Pure.

    pools:
    - name: edge
      nodes: {matchLabels: {site: edge}}
      order: 1
      atOnce: 2
      drain: Minor
      drainSeconds: 300
      version: v1.36.4
      runtime: autarky.dev/container-runtime:v2.3.7-runc-v1.5.2
      kubelet: {configuration: {maxPods: 50}}
    - name: control-nodes
      nodes: {controlPlane: true}

A pool without `controlPlane: true` has workers only, whatever their labels: a kubelet sets most labels of its Node
itself, and would join a pool of control nodes with them. A node is in the first pool that it fits. All the others are
in the pools `workers` (order 1) and `control-nodes` (order 2), which are always there; a pool of one of these names
gives that one other settings, and comes last. Pools of a lower order go first, pools of the same order side by side; of
control nodes it is always one at a time.

Contract: `trouble` and `read` return for any JSON, and never raise; pools in which anything is wrong are none at all,
so that no node is in a pool that nobody meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import Any

from autarky.control.common.shapes import mapping, plain
from autarky.model.kubelets import (
    CONTROL_NODES,
    DRAIN_SECONDS,
    MOST_AT_ONCE,
    MOST_DRAIN_SECONDS,
    MOST_LABELS,
    MOST_ORDER,
    MOST_POOLS,
    MOST_SETTINGS,
    NOT_OURS,
    REFERENCE,
    WORKERS,
)
from autarky.model.names import LABEL, is_name
from autarky.model.versions import Version

_VERSION = re.compile(r"v[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,6}")
_REFERENCE = re.compile(REFERENCE)
_KEYS = frozenset({"name", "nodes", "order", "atOnce", "drain", "drainSeconds", "version", "runtime", "kubelet"})


class Drain(StrEnum):
    """When a node is drained before its kubelet changes. The values are the words in the ControlPlane."""

    NEVER = "Never"
    MINOR = "Minor"
    """Where the kubelet gets another minor."""
    ALWAYS = "Always"


@dataclass(frozen=True, slots=True)
class Pool:
    """version: None for that of the ControlPlane. runtime: the image with containerd and runc; empty for that of the
    ControlPlane. configuration: what is set in the kubelets' configuration."""

    name: str
    control: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    order: int = 1
    at_once: int = 1
    drain: Drain = Drain.MINOR
    drain_seconds: int = DRAIN_SECONDS
    version: Version | None = None
    runtime: str = ""
    configuration: Mapping[str, Any] = field(default_factory=dict)

    def has(self, labels: Mapping[str, Any], *, control: bool) -> bool:
        return control is self.control and all(labels.get(key) == value for key, value in self.labels.items())


IMPLICIT = (Pool(WORKERS), Pool(CONTROL_NODES, control=True, order=2))


def pool_of(pools: Sequence[Pool], labels: Mapping[str, Any], *, control: bool) -> Pool | None:
    """control: whether it is a control node, by what kubelets cannot set. None where there are no pools."""
    return next((pool for pool in pools if pool.has(labels, control=control)), None)


def read(value: object) -> tuple[Pool, ...]:
    """All pools there are, in the order in which nodes look for theirs; empty where the value is not valid."""
    if trouble(value) is not None:
        return ()
    found = [_pool(one) for one in _listed(value)]
    named = {pool.name: pool for pool in found}
    others = [pool for pool in found if pool.name not in (WORKERS, CONTROL_NODES)]
    return (*others, *(named.get(pool.name, pool) for pool in IMPLICIT))


def reference(value: object) -> str:
    """Of an image, as it stands in the ControlPlane; empty for what is none."""
    return value if isinstance(value, str) and _REFERENCE.fullmatch(value) else ""


def _pool(said: Mapping[str, Any]) -> Pool:
    nodes = mapping(said.get("nodes"))
    control = nodes.get("controlPlane") is True
    version = said.get("version")
    return Pool(
        name=said["name"],
        control=control,
        labels=dict(mapping(nodes.get("matchLabels"))),
        order=said.get("order", 2 if control else 1),
        at_once=1 if control else said.get("atOnce", 1),
        drain=Drain(said.get("drain", Drain.MINOR)),
        drain_seconds=said.get("drainSeconds", DRAIN_SECONDS),
        version=None if version is None else Version.parse(version),
        runtime=reference(said.get("runtime")),
        configuration=dict(mapping(mapping(said.get("kubelet")).get("configuration"))),
    )


# --- what is wrong -------------------------------------------------------------------------------------------


def trouble(value: object) -> str | None:
    """What is invalid in `spec.pools`, as a clause; None when it is valid."""
    if value is None:
        return None
    if not isinstance(value, list) or len(value) > MOST_POOLS:
        return f"it is no list of at most {MOST_POOLS} pools"
    if not all(isinstance(one, Mapping) for one in value):
        return "something in it is no pool"
    names = [one.get("name") for one in value]
    twice = next((name for number, name in enumerate(names) if name in names[:number]), None)
    if twice is not None:
        return f"two pools have the name {plain(twice)}"
    return next(chain.from_iterable(_troubles(one) for one in value), None)


def _listed(value: object) -> list[Mapping[str, Any]]:
    return value if isinstance(value, list) else []


def _troubles(one: Mapping[str, Any]) -> Iterator[str]:
    name = one.get("name")
    if not isinstance(name, str) or not is_name(name):
        yield f"the name of a pool does not match {LABEL}"
        return
    if odd := sorted(plain(key) for key in one.keys() - _KEYS):
        yield f"pool {name}: {odd[0]} is nothing that a pool has"
    if (why := _of_nodes(name, one.get("nodes", {}))) is not None:
        yield f"pool {name}: {why}"
    for key, least, most in (
        ("order", 0, MOST_ORDER),
        ("atOnce", 1, MOST_AT_ONCE),
        ("drainSeconds", 1, MOST_DRAIN_SECONDS),
    ):
        number = one.get(key, least)
        if type(number) is not int or not least <= number <= most:
            yield f"pool {name}: {key} is no number from {least} to {most}"
    if one.get("drain", Drain.MINOR) not in list(Drain):
        yield f"pool {name}: drain is none of {', '.join(Drain)}"
    version = one.get("version")
    if version is not None and not (isinstance(version, str) and _VERSION.fullmatch(version)):
        yield f"pool {name}: version is none such as v1.36.4"
    if one.get("runtime") is not None and not reference(one.get("runtime")):
        yield f"pool {name}: runtime is no image such as autarky.dev/container-runtime:v2.3.7-runc-v1.5.2"
    if (why := _of_kubelet(one.get("kubelet", {}))) is not None:
        yield f"pool {name}: {why}"


def _of_nodes(name: str, nodes: object) -> str | None:
    labels = mapping(nodes).get("matchLabels", {})
    control = mapping(nodes).get("controlPlane", False)
    if not isinstance(nodes, Mapping) or nodes.keys() - {"matchLabels", "controlPlane"}:
        return "nodes has more than matchLabels and controlPlane"
    if not isinstance(labels, Mapping) or len(labels) > MOST_LABELS or not all(map(_is_text, labels.values())):
        return f"nodes.matchLabels is no object of at most {MOST_LABELS} texts"
    if not isinstance(control, bool):
        return "nodes.controlPlane is neither true nor false"
    if name in (WORKERS, CONTROL_NODES) and (labels or control is not (name == CONTROL_NODES)):
        return f"this name is for all {name.replace('-', ' ')} that no other pool has"
    return None if labels or control or name == WORKERS else "it says of no node that it is in it"


def _of_kubelet(kubelet: object) -> str | None:
    settings = mapping(kubelet).get("configuration", {})
    if not isinstance(kubelet, Mapping) or kubelet.keys() - {"configuration"}:
        return "kubelet has more than configuration"
    if not isinstance(settings, Mapping) or len(settings) > MOST_SETTINGS:
        return f"kubelet.configuration is no object of at most {MOST_SETTINGS} settings"
    not_ours = sorted(settings.keys() & NOT_OURS)
    return f"kubelet.configuration sets {not_ours[0]}, which is autarky's" if not_ours else None


def _is_text(value: object) -> bool:
    return isinstance(value, str)
