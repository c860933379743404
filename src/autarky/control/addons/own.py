"""The user's own add-ons: objects from the directory `addons/` beside the cluster file. Pure.

Contract: an object is marked with the file that it comes from, so that it can be distinguished from others later. What
is autarky's own cannot come from there: it is refused by its name, its label or its kind, whatever a release renders.
"""

from __future__ import annotations

import base64
from typing import Any

from autarky.control.drift.decide.applied import ADD_ON
from autarky.control.guards.manifests import reserved
from autarky.control.inventory.decide.entries import group_of
from autarky.model.components import COMPONENTS
from autarky.render.crds import GROUP
from autarky.render.values import SYSTEM, is_ours, with_rendered_hash

Object = dict[str, Any]
KUBERNETES_OWN = ("default", "kube-node-lease", "kube-public", SYSTEM)
"""Namespaces that are there without anybody."""
_NAMES = frozenset({one.name for one in COMPONENTS.values()} | {one.label_value for one in COMPONENTS.values()})
_CLUSTERS = ("autarky-", "autarky:")
"""What the names of our cluster-scoped objects, and of our roles, begin with."""
FIRST = ("Namespace", "CustomResourceDefinition", "PriorityClass", "StorageClass")
"""Of a file, what others in it need: applied first; the rest in the order of the documents."""


def is_one_of_ours(obj: Object) -> bool:
    """Whether autarky applies it itself, or might."""
    meta = obj["metadata"]
    name, namespace = str(meta["name"]), meta.get("namespace")
    if is_ours(obj) or group_of(obj["apiVersion"]) == GROUP or name.endswith(f".{GROUP}"):
        return True
    if obj["kind"] == "Namespace":
        return name in KUBERNETES_OWN
    if namespace == SYSTEM:
        return name in _NAMES or name.startswith(_CLUSTERS) or reserved.is_reserved(name)
    if namespace in (None, "default") and name == "kubernetes":
        return obj["kind"] in ("Service", "Endpoints", "EndpointSlice")
    return name.startswith(_CLUSTERS)


def marked(obj: Object, file: str) -> Object:
    """As it is applied: with its file, the hash of its content, and a Secret's plain text as the API keeps it."""
    plain = _encoded(obj) if obj["kind"] == "Secret" else obj
    meta = {**plain["metadata"], "annotations": {**(plain["metadata"].get("annotations") or {}), ADD_ON: file}}
    return with_rendered_hash({**plain, "metadata": meta})


def _encoded(secret: Object) -> Object:
    plain = secret.get("stringData") or {}
    if not plain:
        return secret
    encoded = {name: base64.b64encode(str(value).encode()).decode() for name, value in plain.items()}
    rest = {name: value for name, value in secret.items() if name != "stringData"}
    return {**rest, "data": {**(secret.get("data") or {}), **encoded}}


def as_stored(stored: Any, wanted: Any) -> Any:
    """Of what the API keeps, the part that was asked for: quantities and the like are spelled there as it spells them.
    What it has left out was nothing to it."""
    if isinstance(wanted, dict) and isinstance(stored, dict):
        return {name: as_stored(stored[name], value) for name, value in wanted.items() if name in stored}
    if isinstance(wanted, list) and isinstance(stored, list) and len(wanted) == len(stored):
        return [as_stored(*pair) for pair in zip(stored, wanted, strict=True)]
    return wanted if isinstance(wanted, dict | list) else stored
