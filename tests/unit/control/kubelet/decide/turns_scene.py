"""Nodes whose turns are decided on: what they have, what they are ordered, and what they say to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autarky.control.kubelet.decide.order import Order, Request, Target, drains, made
from autarky.control.kubelet.decide.pools import IMPLICIT
from autarky.control.kubelet.decide.report import Report, State
from autarky.control.kubelet.decide.turns import (
    STEADY_SECONDS,
    Decision,
    Memory,
    Node,
    Situation,
    decide,
)
from autarky.model.versions import Version

V36, V37 = Version(1, 36, 4), Version(1, 37, 1)
WORKERS, CONTROL = IMPLICIT


def target(name: str, version: Version = V37) -> Target:
    return Target(version, f"base-{name}")


def node(name: str, runs: Version = V36, wants: Version = V37, **changes: Any) -> Node:
    """Of a control node where it is named so. As `up` left it."""
    control = name.startswith("c")
    found = Node(
        name,
        CONTROL if control else WORKERS,
        control,
        ready=True,
        serves=True if control else None,
        runs=runs,
        wanted=target(name, wants),
        report=Report(base=f"base-{name}", target=target(name, runs).digest, version=runs),
    )
    return replace(found, **changes)


def request(one: Node, **changes: Any) -> Request:
    assert one.wanted is not None
    found = Request(one.wanted, image(one.wanted.version), one.pool.drain, one.pool.drain_seconds)
    return replace(found, **changes)


def image(version: Version) -> str:
    return f"kubelet:{version}"


def ordered(one: Node, state: State | None = None, number: int = 1, attempt: int = 1, **more: Any) -> Node:
    """With an order for what it wants, and what it says to that; None: nothing yet. Cordoned where it is drained."""
    order = made(request(one), number, attempt)
    if drains(order, one.runs) and not (state is not None and state.is_final):
        one = replace(one, cordoned=order.id, unschedulable=True)
    if state is None:
        return replace(one, order=order)
    has = one.wanted if state is State.DONE else target(one.name, one.runs or V36)
    assert has is not None
    said = Report(order.id, number, attempt, state, base=f"base-{one.name}", target=has.digest, version=has.version)
    runs = has.version if state is State.DONE else one.runs
    return replace(one, order=order, report=replace(said, **more), runs=runs)


def situation(*nodes: Node, lowest: Version = V37, **more: Any) -> Situation:
    return Situation(nodes, lowest, image, **more)


def steady(*nodes: Node) -> Memory:
    """An operator that has watched for long."""
    return decide(situation(*nodes), decide(situation(*nodes), Memory(), 0.0).memory, STEADY_SECONDS).memory


def turns(*nodes: Node, memory: Memory | None = None, now: float = 100.0, **more: Any) -> Decision:
    return decide(situation(*nodes, **more), memory or Memory(), now)


def given(decision: Decision) -> list[str]:
    return [write.node for write in decision.writes]


def order_of(decision: Decision, name: str) -> Order:
    return next(write.order for write in decision.writes if write.node == name)


def down(name: str, **changes: Any) -> Node:
    return node(name, V37, V36, **changes)


FAILED = [State.WENT_BACK, State.REFUSED]
