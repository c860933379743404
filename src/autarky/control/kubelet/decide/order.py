"""What the operator orders of a node's kubelet, in an annotation of its Node. Pure: writing and reading it.

JSON, written by the operator only (the policy `autarky-node-orders` sees to that):

    {"id": "5b1c…", "number": 3, "attempt": 1, "asked": "", "version": "v1.37.1",
     "image": "autarky.dev/kubelet:v1.37.1", "runtime": "autarky.dev/runtime:…", "base": "9f0c…",
     "config": {…}, "arguments": {…}, "drain": "Minor", "drainSeconds": 300, "alone": false}

version, runtime, base, config and arguments are what is to run (`Target`): base names the content of the node's own
base.json, runtime the image with containerd and runc, or is empty where these stay. image: where the program is from.
number: of the orders of this node, each has one more than all before it, so that an order of before that comes back (a
Node restored from a file) is not taken for a new one. attempt: of this target. asked: what a person has counted up to
have all that failed tried again. lowers, where it is there: it takes back a later minor that was ordered before. alone:
no other node takes pods, so that a drain could move none: there is none then, whatever the policy.

Contract: the id is the hash of everything else in the annotation, so that two different orders never have the same, and
an order that was changed on its way is none. Reading returns for any JSON, and never raises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from autarky.control.common.skew import minor_of
from autarky.control.kubelet.decide.fields import NOT_UNDERSTOOD, WORD, annotation, fitting, number
from autarky.control.kubelet.decide.pools import Drain
from autarky.model.kubelets import MOST_DRAIN_SECONDS
from autarky.model.versions import Version
from autarky.parsing import parsed
from autarky.render.values import canonical_text, content_hash

ANNOTATION = "autarky.dev/kubelet-order"
"""On a Node, by the operator."""
CORDONED = "autarky.dev/kubelet-cordoned"
"""On a Node, by the operator, set and removed together with `spec.unschedulable`: the id of the order that it has been
cordoned for. A cordon without it is a person's, and stays."""
ID = re.compile(r"[0-9a-f]{16}")
MOST_LETTERS = 64 * 1024
"""Of the annotation. All those of a Node together may have four times as many."""
MOST_NUMBER = 10**9
_MOST_ARGUMENTS = 200


@dataclass(frozen=True, slots=True)
class Target:
    """What is to run; see the module's docstring."""

    version: Version
    base: str
    runtime: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        return content_hash(self.written(), 16)

    def written(self) -> dict[str, Any]:
        return {
            "version": str(self.version),
            "base": self.base,
            "runtime": self.runtime,
            "config": dict(self.config),
            "arguments": dict(self.arguments),
        }


@dataclass(frozen=True, slots=True)
class Request:
    """What an order says but for the count of orders: two that are equal ask for the same. drain_seconds: how long a
    drain may take."""

    target: Target
    image: str
    drain: Drain = Drain.NEVER
    drain_seconds: int = 0
    asked: str = ""


@dataclass(frozen=True, slots=True)
class Order:
    """id: as `made` and `read` find it, never given by hand."""

    id: str
    request: Request
    number: int
    attempt: int = 1
    alone: bool = False
    lowers: bool = False

    @property
    def target(self) -> Target:
        return self.request.target


def made(request: Request, number: int, attempt: int = 1, *, alone: bool = False, lowers: bool = False) -> Order:
    order = Order("", request, number, attempt, alone, lowers)
    return replace(order, id=_id(_written(order)))


def text(order: Order) -> str:
    """The annotation."""
    return canonical_text({"id": order.id, **_written(order)})


def read(metadata: Mapping[str, Any]) -> Order | None:
    """The order in a Node's annotations; None where there is none, or none that can be understood."""
    value = annotation(metadata, ANNOTATION, MOST_LETTERS)
    if value is None:
        return None
    try:
        said = parsed(value)
        found = {key: one for key, one in said.items() if key != "id"}
        count, attempt = number(found["number"], MOST_NUMBER), number(found["attempt"], MOST_NUMBER)
        alone, lowers = found["alone"] is True, found.get("lowers") is True
        order = Order(fitting(ID, said["id"]), _request(found), count, attempt, alone, lowers)
        return order if _id(found) == order.id else None
    except NOT_UNDERSTOOD:
        return None


def drains(order: Order, runs: Version | None) -> bool:
    """Whether its node is drained first. Where nothing is known of what runs, that may be another minor."""
    if order.alone or order.request.drain is Drain.NEVER:
        return False
    other = runs is None or minor_of(runs) != minor_of(order.target.version)
    return other or order.request.drain is Drain.ALWAYS


def _written(order: Order) -> dict[str, Any]:
    return {
        **order.target.written(),
        "image": order.request.image,
        "drain": str(order.request.drain),
        "drainSeconds": order.request.drain_seconds,
        "asked": order.request.asked,
        "number": order.number,
        "attempt": order.attempt,
        "alone": order.alone,
        **({"lowers": True} if order.lowers else {}),
    }


def _id(said: Mapping[str, Any]) -> str:
    """Also of what a later release has added."""
    return content_hash(said, 16)


def _request(said: Mapping[str, Any]) -> Request:
    config, arguments = said["config"], said["arguments"]
    if not isinstance(config, dict) or not isinstance(arguments, dict) or len(arguments) > _MOST_ARGUMENTS:
        raise TypeError("neither is an object")
    if not all(isinstance(value, str) for value in arguments.values()):
        raise TypeError("an argument that is no text")
    base, runtime, image, asked = (fitting(WORD, said[key]) for key in ("base", "runtime", "image", "asked"))
    target = Target(Version.parse(fitting(WORD, said["version"])), base, runtime, config, arguments)
    return Request(target, image, Drain(said["drain"]), number(said["drainSeconds"], MOST_DRAIN_SECONDS), asked)
