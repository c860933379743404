"""What a control node's agent reports in an annotation of its Node: that it acts, and its slots. Pure: writing and
reading it.

Compact JSON, written when it changes and never periodically:

    {"agent": "0c1d…", "level": 2,
     "slots": {"kube-apiserver": {"slot": "hosted", "revision": "6c9f…", "standby": "1f0c…",
                                               "version": "v1.36.4", "emulates": "1.35",
                                               "checkpoint": "2026-11-21T10:00:00Z", "serves": false,
                                               "refused": "…"}, …}}

agent: the uid of the pod of the agent that acts on the node, and writes this; absent where an earlier release did.
level: the lowest hosted level that the agent acts on. slot: "hosted", "standby", "both" or "none": what is in place;
revision: that of the hosted pod, as its controller names it; standby: the revision of the standby on disk; version: the
tag of its image; emulates: the value of its `--emulated-version`, absent where it has none; checkpoint: since when that
has been the current one; serves: whether the standby answers (the API server's: through the load balancer); refused:
why the pod that runs here, or without one the last good revision, cannot become the checkpoint as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
ANNOTATION = "autarky.dev/slots"
_REVISION_LABELS = ("controller-revision-hash", "pod-template-hash")


@dataclass(frozen=True, slots=True)
class Slots:
    """One component on one node; see the module's docstring. An empty string: there is none."""

    slot: str = "none"
    revision: str = ""
    standby: str = ""
    checkpoint: str = ""
    serves: bool = False
    refused: str = ""
    version: str = ""
    emulates: str = ""


def slot_name(*, hosted: bool, standby: bool) -> str:
    return {(True, True): "both", (True, False): "hosted", (False, True): "standby"}.get((hosted, standby), "none")


def revision_of(pod: Object | None) -> str:
    """What the pod's controller calls its revision."""
    labels = ((pod or {}).get("metadata") or {}).get("labels") or {}
    return next((labels[name] for name in _REVISION_LABELS if name in labels), "")


def text(level: int, slots: Mapping[str, Slots], agent: str = "") -> str:
    """The annotation's value: the same slots give the same text."""
    by_component = {
        component: {
            "slot": one.slot,
            **{n: v for n, v in (("revision", one.revision), ("standby", one.standby)) if v},
            **({"version": one.version} if one.version else {}),
            **({"emulates": one.emulates} if one.emulates else {}),
            **({"checkpoint": one.checkpoint} if one.checkpoint else {}),
            "serves": one.serves,
            **({"refused": one.refused} if one.refused else {}),
        }
        for component, one in slots.items()
    }
    said = {**({"agent": agent} if agent else {}), "level": level, "slots": by_component}
    return json.dumps(said, sort_keys=True, separators=(",", ":"))


def read(node: Object) -> Object:
    """What the node's agent reports; empty when there is no report or it is malformed."""
    value = (node["metadata"].get("annotations") or {}).get(ANNOTATION, "{}")
    try:
        found = json.loads(value)
    except (ValueError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) and _is_report(found) else {}


def _is_report(found: Object) -> bool:
    """Whether it has the form that `text` writes. Not only the agent can write the annotation."""
    slots = found.get("slots", {})
    return (
        type(found.get("level", 0)) is int
        and isinstance(found.get("agent", ""), str)
        and isinstance(slots, dict)
        and all(
            isinstance(one, dict) and all(isinstance(v, str | bool) for v in one.values()) for one in slots.values()
        )
    )


def acting_agent(node: Object) -> str:
    """The uid of the pod of the agent that acts on the node; "" where nothing says which one does."""
    return str(read(node).get("agent", ""))


def standby_serves(node: Object, component: str, level: int) -> bool | None:
    """What the agent reports, if it acts on this very level; None when it does not, or reports nothing of it."""
    said = read(node)
    one = said.get("slots", {}).get(component)
    if said.get("level") != level or not isinstance(one, dict):
        return None
    return one.get("serves") is True
