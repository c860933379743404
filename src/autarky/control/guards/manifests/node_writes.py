"""What policies on writes of Nodes are put together from, as CEL.

Dangers: heartbeats meet some of these policies. What is read of maps that may be absent is read through optional
selection, which cannot fail; and what would be looked through is compared as a whole first.
"""

from __future__ import annotations

from autarky.control.guards.manifests.policies import Parameter
from autarky.render.access import INVENTORY
from autarky.render.values import SYSTEM, Object

NODE_WRITES: Object = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["nodes", "nodes/status"],
    "scope": "Cluster",
}
MOST = 1000
"""Labels of a Node, or annotations, that a change is looked for among. With the longest keys that takes less than a
third of what an expression may cost; who feels out a node's hardware sets some hundreds."""
INVENTORY_PARAMETER: Parameter = ({"apiVersion": "v1", "kind": "ConfigMap"}, {"name": INVENTORY, "namespace": SYSTEM})
"""The join inventory."""


def field_changes(part: str, name: str, empty: str) -> str:
    new, old = (f"{complete(which)}.?{part}.?{name}.orValue({empty})" for which in ("object", "oldObject"))
    return f"{new} != {old}"


def some_change(part: str, guarded: str) -> str:
    """Whether one of these keys comes, goes or changes, or any where there are too many to look through: what that may
    cost is limited, and beyond it every write would be refused, also those that change nothing of this."""
    new, old = of("object", part), of("oldObject", part)
    comes = f"{new}.exists(key, {guarded} && {new}[?key] != {old}[?key])"
    goes = f"{old}.exists(key, {guarded} && !(key in {new}))"
    return f"({new} != {old} && (size({new}) > {MOST} || size({old}) > {MOST} || {comes} || {goes}))"


def of(which: str, part: str) -> str:
    return f"{complete(which)}.?metadata.?{part}.orValue({{}})"


def complete(which: str) -> str:
    """There is no old object where one is created."""
    return "(oldObject == null ? {} : oldObject)" if which == "oldObject" else which


def annotation_comes(key: str) -> str:
    new, old = (f"{of(which, 'annotations')}[?'{key}'].orValue('')" for which in ("object", "oldObject"))
    return f"{new} != '' && {new} != {old}"
