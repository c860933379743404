"""What of an object is kept by who keeps copies of all of them: pods that kubelets made, and certificate requests.

Contract: pure; objects as on the wire, and not changed. What is kept has a size that the object's author has no say in,
and is all that anybody reads of it who has the copy. Other pods are kept whole: controllers make them of templates.

Why: a kubelet makes as many of these as it likes, each of up to 1.5 MB, and Python takes 20 times as much: 200 of one
worker's were more than a control node's memory.

Danger: what was cut must not be written back but by a subresource that takes no more of it than what is kept (the
`approval` of requests).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from autarky.control.common.pods import MIRROR, is_mirror, is_ready
from autarky.model.components import NAME_LABEL, SLOT_LABEL

Object = dict[str, Any]
LABELS = (NAME_LABEL, SLOT_LABEL)
"""Those of static pods that somebody reads."""
MOST_CONTAINERS = 10
"""A static pod of ours has one."""
MOST_LETTERS = 512
"""Of an image's name: a registry takes no tag longer than 128."""
MOST_OF_A_REQUEST = 64 * 1024
"""Letters of a request, which has some thousand. Of one that is longer nothing is left, so that it cannot be read and
is denied: a part of it could say something else than the whole."""
_OF_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
_OF_REQUESTS = ("signerName", "username", "groups", "extra", "usages")
"""Whoever asks has no say in how long these are: the API server writes who it is, and knows some twenty usages."""


def slim_pod(pod: Object) -> Object:
    """One that a kubelet made without all that nobody reads."""
    if not is_mirror(pod):
        return pod
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    labels = meta.get("labels") or {}
    containers = (spec.get("containers") or ())[:MOST_CONTAINERS]
    return {
        **_kind(pod),
        "metadata": {
            **_of(meta, _OF_METADATA),
            "labels": _of(labels, LABELS),
            "annotations": {MIRROR: ""},
            "ownerReferences": [
                _of(owner, ("kind", "name", "uid")) for owner in (meta.get("ownerReferences") or ())[:1]
            ],
        },
        "spec": {
            **_of(spec, ("nodeName",)),
            "containers": [
                {"name": one["name"], "image": str(one.get("image", ""))[:MOST_LETTERS]} for one in containers
            ],
        },
        "status": {
            **_of(status, ("phase",)),
            "conditions": [{"type": "Ready", "status": str(is_ready(pod))}],
        },
    }


def slim_request(csr: Object) -> Object:
    """A certificate request with all by which it is judged; and whether it has been."""
    spec, status = csr["spec"], csr.get("status") or {}
    request = str(spec.get("request", ""))
    return {
        **bare(csr),
        "spec": {
            **_of(spec, _OF_REQUESTS),
            "request": request if len(request) <= MOST_OF_A_REQUEST else "",
        },
        "status": {"conditions": [_of(one, ("type", "status")) for one in (status.get("conditions") or ())[:1]]},
    }


def bare(obj: Object) -> Object:
    """Which one it is, and whether it goes."""
    return {**_kind(obj), "metadata": _of(obj["metadata"], _OF_METADATA)}


def _kind(obj: Object) -> Object:
    return _of(obj, ("apiVersion", "kind"))


def _of(found: Object, names: Collection[str]) -> Object:
    return {name: found[name] for name in names if name in found}
