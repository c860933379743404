"""Reading objects whose shape nobody guarantees, and showing what is in them. Pure.

Contract: each function returns for any JSON, and never raises. What has another shape than expected is as what is
absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

MOST_SHOWN = 300
"""Characters of what somebody else has written: sentences are shown in conditions and on terminals."""
MOST_NAMED = 5


def mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def items(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


def texts(value: object) -> list[str]:
    """Those in a list."""
    return [one for one in items(value) if isinstance(one, str)]


def number(value: object) -> int:
    return value if isinstance(value, int) else 0


def within(obj: object, *path: str) -> Any:
    """What is at the end of the path, None where it leads nowhere."""
    for key in path:
        obj = mapping(obj).get(key)
    return obj


def name_of(obj: object) -> str:
    """To be shown."""
    return plain(within(obj, "metadata", "name"))


def labels_of(obj: object) -> Mapping[str, Any]:
    return mapping(within(obj, "metadata", "labels"))


def container_of(template: object, name: str) -> Mapping[str, Any]:
    """Of a pod, or of a workload's template; empty where it has none of that name."""
    found = (mapping(one) for one in items(within(template, "spec", "containers")))
    return next((one for one in found if one.get("name") == name), {})


def image_of(template: object, component: str) -> str:
    """The image of the component's container; empty where there is none."""
    return text(container_of(template, component).get("image"))


def condition(obj: object, kind: str) -> Mapping[str, Any]:
    """The first of that type in its status; empty where it has none.

    A kubelet may write several of a type. Kubernetes' controllers go by the first one (`GetPodCondition`,
    `GetNodeCondition`): whoever goes by another one sees a pod as available where its DaemonSet controller does not.
    """
    return next((one for one in _conditions(obj) if one.get("type") == kind), {})


def conditions(obj: object) -> dict[str, Mapping[str, Any]]:
    """Type → the first of that type in its status."""
    found: dict[str, Mapping[str, Any]] = {}
    for one in _conditions(obj):
        found.setdefault(text(one.get("type")), one)
    return found


def node_is_ready(node: object) -> bool | None:
    """As its kubelet last reported; None when unknown: the kubelet stopped reporting, or never did."""
    return {"True": True, "False": False}.get(condition(node, "Ready").get("status", ""))


def _conditions(obj: object) -> Iterator[Mapping[str, Any]]:
    return (mapping(one) for one in items(within(obj, "status", "conditions")))


def plain(value: object) -> str:
    """A text of somebody else in one line that is not too long."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text(value)).split())
    return line if len(line) <= MOST_SHOWN else f"{line[: MOST_SHOWN - 1]}…"


def some(names: Iterable[str]) -> str:
    """In order, and how many more there are."""
    found = sorted(set(names))
    more = len(found) - MOST_NAMED
    return ", ".join(found) if more <= 0 else f"{', '.join(found[:MOST_NAMED])} and {more} more"
