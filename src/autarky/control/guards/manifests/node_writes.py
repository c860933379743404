"""The CEL parts of policies on writes of Nodes.

Dangers: some of these policies are evaluated for heartbeats. Maps that may be absent are read through optional
selection, which cannot fail; and a map is compared as one value before it is searched.
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
"""How many labels or annotations of a Node are searched for a change. With the longest keys that costs less than a
third of the limit for an expression; feature discovery sets some hundreds."""
INVENTORY_PARAMETER: Parameter = ({"apiVersion": "v1", "kind": "ConfigMap"}, {"name": INVENTORY, "namespace": SYSTEM})
"""The join inventory."""


def field_changes(part: str, name: str, empty: str) -> str:
    new, old = (f"{complete(which)}.?{part}.?{name}.orValue({empty})" for which in ("object", "oldObject"))
    return f"{new} != {old}"


def some_change(part: str, guarded: str) -> str:
    """Whether one of these keys is added, removed or changed, or any key where there are more than MOST: beyond the
    cost limit every write would be refused, also those that change none of these keys."""
    new, old = of("object", part), of("oldObject", part)
    comes = f"{new}.exists(key, {guarded} && {new}[?key] != {old}[?key])"
    goes = f"{old}.exists(key, {guarded} && !(key in {new}))"
    return f"({new} != {old} && (size({new}) > {MOST} || size({old}) > {MOST} || {comes} || {goes}))"


def of(which: str, part: str) -> str:
    return f"{complete(which)}.?metadata.?{part}.orValue({{}})"


def complete(which: str) -> str:
    """On creation there is no old object."""
    return "(oldObject == null ? {} : oldObject)" if which == "oldObject" else which


def annotation_comes(key: str) -> str:
    new, old = (f"{of(which, 'annotations')}[?'{key}'].orValue('')" for which in ("object", "oldObject"))
    return f"{new} != '' && {new} != {old}"
