"""What is read of Nodes and pods again and again, found once for each state of their live copies; and which changes of
Nodes are news.

Contract: what was found is dropped in the moment in which the copy changes, so that it is never older than the copy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from autarky.control.common.shapes import node_is_ready
from autarky.model.components import NAME_LABEL
from autarky.ports import Object
from autarky.render.values import CONTROL_PLANE_ACTIVE

T = TypeVar("T")


@dataclass(slots=True)
class FoundOnce(Generic[T]):
    """Until `forget`."""

    look: Callable[[], T]
    _found: list[T] = field(default_factory=list)

    def __call__(self) -> T:
        if not self._found:
            self._found.append(self.look())
        return self._found[0]

    def forget(self) -> None:
        self._found.clear()


@dataclass(frozen=True, slots=True)
class Nodes:
    """active: the names of those with the active label."""

    active: frozenset[str]
    ready: Sequence[Object]


@dataclass(frozen=True, slots=True)
class Pods:
    """By the name of their component, as their labels say, and by the uids of their owners: each in the order of the
    copy."""

    named: Mapping[str, Sequence[Object]]
    owned: Mapping[str, Sequence[Object]]


def nodes(objects: Collection[Object]) -> Nodes:
    return Nodes(active_of(objects), [node for node in objects if node_is_ready(node)])


def active_of(objects: Iterable[Object]) -> frozenset[str]:
    """The names of the Nodes with the active label."""
    metadata = (node["metadata"] for node in objects)
    return frozenset(meta["name"] for meta in metadata if CONTROL_PLANE_ACTIVE in (meta.get("labels") or {}))


def pods(objects: Iterable[Object]) -> Pods:
    named: dict[str, list[Object]] = {}
    owned: dict[str, list[Object]] = {}
    for pod in objects:
        meta = pod["metadata"]
        named.setdefault((meta.get("labels") or {}).get(NAME_LABEL, ""), []).append(pod)
        for uid in {str(one.get("uid")) for one in meta.get("ownerReferences") or ()}:
            owned.setdefault(uid, []).append(pod)
    return Pods(named, owned)


def is_news(before: Object, after: Object) -> bool:
    """Of what is kept of a Node: whether more than its resourceVersion is new. Of a thousand nodes three heartbeats
    come in a second.

    Danger: whoever was refused a write, since a heartbeat came first, is not woken by that: it has to look again by
    itself. Whatever else waits for time to pass has a timer of its own.
    """
    return _but_version(before) != _but_version(after)


def _but_version(obj: Object) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": ""}}
