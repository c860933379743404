"""How each node stands when it is decided whose kubelet changes next: by its order and its report. Pure; for `turns`.

Contract: a worker may report anything. Where a control plane would wait for it by its word alone, that is `claimed`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import product

from autarky.control.common.shapes import some
from autarky.control.common.skew import minor_of
from autarky.control.kubelet.decide import hosted_report
from autarky.control.kubelet.decide import order as orders
from autarky.control.kubelet.decide.order import MOST_NUMBER, Order, Request, Target
from autarky.control.kubelet.decide.pools import Pool
from autarky.control.kubelet.decide.report import Report, State
from autarky.control.upgrade.decide.absent import Lacking
from autarky.model.versions import Version

STEADY_SECONDS = 10.0
LATE_SECONDS = 900.0
"""Beyond the time for a drain: while the API is away a trial may take 600 s, and before it some 100 MB are copied."""
HELD_SECONDS = 2 * LATE_SECONDS
"""Beyond the time for a drain: a worker that is late has lost its turn by then, and the next one has had its own."""
MOST_ATTEMPTS = 3
Minor = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Node:
    """control: whether it is a control node, by what kubelets cannot set. serves: of control nodes; None where nobody
    knows. runs: the version that it shows. wanted: None where its kubelet stays as it is. takes_pods: but for a cordon
    of ours. cordoned: the order that it is cordoned for; unschedulable: by whomever. hosted: what it reports of its
    hosted kubelet; turn: the pod whose kubelet may take over there, as the Node says."""

    name: str
    pool: Pool
    control: bool
    ready: bool
    away: bool = False
    serves: bool | None = None
    runs: Version | None = None
    wanted: Target | None = None
    order: Order | None = None
    report: Report | None = None
    takes_pods: bool = True
    unschedulable: bool = False
    cordoned: str = ""
    hosted: hosted_report.Report | None = None
    turn: str = ""

    @property
    def versions(self) -> frozenset[Version]:
        """Those of its kubelets: while the hosted one is in force the Node shows that one's, and the host's waits
        behind it, to follow at any moment."""
        of_host = self.report.version if self.report is not None and self.shows_hosted else None
        return frozenset(one for one in (self.runs, of_host) if one is not None)

    @property
    def shows_hosted(self) -> bool:
        """Whether the kubelet whose version it shows is the hosted one, by its own word."""
        return self.hosted is not None and self.hosted.state.is_of_node


@dataclass(frozen=True, slots=True)
class Situation:
    """lowest: what `reported.lowest_version` says. image: of a version. asked: as in `order`. moves: whether the
    control plane is on its way to another version. busy: what else is at work on the control plane, a clause.
    drains_wait: for that way's end: what a drain evicts comes up again behind a kube-proxy that may yet fail."""

    nodes: Sequence[Node]
    lowest: Version
    image: Callable[[Version], str]
    paused: bool = False
    asked: str = ""
    moves: bool = False
    busy: str = ""
    drains_wait: bool = False

    def is_above(self, version: Version | None) -> bool:
        return version is not None and minor_of(version) > minor_of(self.lowest)

    def request(self, node: Node) -> Request | None:
        if node.wanted is None:
            return None
        pool = node.pool
        return Request(node.wanted, self.image(node.wanted.version), pool.drain, pool.drain_seconds, self.asked)


@dataclass(frozen=True, slots=True)
class Memory:
    """written: node → the order that was written and has not been seen on it since. turns: the nodes that have theirs.
    began: node → (the operator's order that it has had its turn by, "" for none; since when, in monotonic seconds): who
    says that it has ended, and then that it has not, gets no more time by the same order. watched: orders that were
    seen under way. ready: order that is done → since when its node is Ready without a break. steady: those whose nodes
    were that for long enough. first: the workers that control nodes let go first; None where there are none. came:
    worker → (the minor that the control plane goes down to, since when the worker has had its first turn for that)."""

    written: Mapping[str, Order] = field(default_factory=dict)
    turns: frozenset[str] = frozenset()
    began: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    watched: frozenset[str] = frozenset()
    ready: Mapping[str, float] = field(default_factory=dict)
    steady: frozenset[str] = frozenset()
    first: Lacking | None = None
    came: Mapping[str, tuple[Minor, float]] = field(default_factory=dict)


class Standing(Enum):
    STAYS = "nothing is wanted of it"
    DONE = "it has what is wanted"
    HAS_TURN = "its order has not ended, or has only just"
    WAITS = "it has yet to get its order"
    FAILED = "it went back, or was refused"


@dataclass(frozen=True, slots=True)
class Place:
    """One node. number, attempt: of its next order. why: it failed; refused: and nothing was changed. under_way: its
    order has not ended. replaces: it has its turn for something else than is wanted now. late: a worker that has its
    turn for long. goes_down: the control plane waits for it. claimed: if it does, then by nothing but a worker's word.
    stopped: by one that failed."""

    node: Node
    standing: Standing
    number: int = 1
    attempt: int = 1
    why: str = ""
    refused: bool = False
    under_way: bool = False
    replaces: bool = False
    late: bool = False
    goes_down: bool = False
    claimed: bool = False
    stopped: bool = False

    @property
    def stopped_as(self) -> tuple[int, bool]:
        """All of it by which `stops` goes: the order of its pool; whether none but control nodes stop it."""
        return self.node.pool.order, self.node.control or self.goes_down

    def stops(self, other: Place) -> bool:
        """On the way down only control nodes stop others: the control plane does not go on without them."""
        order, only_by_control_nodes = other.stopped_as
        if self.standing is not Standing.FAILED or self.node.pool.order > order:
            return False
        return self.node.control or not (only_by_control_nodes or self.refused)

    def comes_before(self, other: Place) -> bool:
        """Whether it is of an earlier pool, and has yet to change. Who is stopped, or late, has no claim."""
        if other.goes_down or self.node.pool.order >= other.node.pool.order:
            return False
        if self.standing is Standing.HAS_TURN:
            return not self.late
        return self.standing is Standing.WAITS and not self.node.away and not self.stopped


def current(node: Node, seen: Situation) -> Order | None:
    """The order on the Node, unless the node itself has come to a later one: then that one was removed, or this one has
    been restored."""
    order, report = node.order, node.report
    if order is not None and (report is None or report.order == order.id or report.number < order.number):
        return order
    return _removed(seen.request(node), report)


def is_over(node: Node, order: Order) -> bool:
    return node.report is not None and node.report.order == order.id and node.report.is_final


def is_done(node: Node, order: Order) -> bool:
    """As the node says."""
    return node.report is not None and node.report.order == order.id and node.report.state is State.DONE


def place_of(node: Node, seen: Situation, memory: Memory, now: float) -> Place:
    request, report = seen.request(node), node.report
    order = current(node, seen)
    number = min(MOST_NUMBER, 1 + max(0 if one is None else one.number for one in (node.order, report)))
    # After a way back a Node shows for a moment still what was tried, and its agent knows better.
    goes_down = seen.is_above(node.runs) or (report is not None and seen.is_above(report.version))
    late = not node.control and now - begun(node, memory, now) >= time_of(node)
    claimed = not node.control and not seen.is_above(node.runs)
    place = Place(node, Standing.WAITS, number, goes_down=goes_down, claimed=claimed)
    if order is None and report is not None and report.state is not None and not report.is_final:
        return replace(place, standing=Standing.HAS_TURN, under_way=True, late=late)  # its order was removed
    if order is not None and (not is_over(node, order) or _is_unsteady(node, order, memory)):
        return _with_turn(replace(place, late=late), order, request, seen)
    if request is None:
        return replace(place, standing=Standing.STAYS)
    if has(node, request.target):
        return replace(place, standing=Standing.DONE)
    return place if order is None or report is None else _after(place, order, report, request)


def begun(node: Node, memory: Memory, now: float) -> float:
    """Since when it has had its turn without a break, or by the operator's order that is on it; `now` for neither."""
    order, since = memory.began.get(node.name, ("", now))
    return since if node.name in memory.turns or order == order_on(node) else now


def time_of(node: Node) -> float:
    """For how long it has its turn."""
    return LATE_SECONDS + node.pool.drain_seconds


def order_on(node: Node) -> str:
    """The operator's, which workers cannot change; whatever its node has come to, as it says."""
    return "" if node.order is None else node.order.id


def _removed(request: Request | None, report: Report | None) -> Order | None:
    """The order that the node reports, where it is what is wanted now: tools remove annotations that they do not
    know."""
    if request is None or report is None or not report.order:
        return None
    found = (
        orders.made(request, report.number, report.attempt, alone=alone, lowers=lowers)
        for alone, lowers in product((False, True), repeat=2)
    )
    return next((order for order in found if order.id == report.order), None)


def _with_turn(place: Place, order: Order, request: Request | None, seen: Situation) -> Place:
    under_way = not is_over(place.node, order)
    other = request is not None and order.target != request.target
    return replace(
        place,
        standing=Standing.HAS_TURN,
        under_way=under_way,
        replaces=other or (under_way and request is not None and order.request.asked != request.asked),
        goes_down=place.goes_down or (under_way and seen.is_above(order.target.version)),
        claimed=place.claimed and not (under_way and place.node.order == order),
    )


def has(node: Node, target: Target) -> bool:
    """Whether that is in force in its host's slot, proven or not. Behind a hosted kubelet only the node itself can say
    so. (Who lies there asks for nothing, and keeps nobody from changing; that it shows a later minor than it may counts
    all the same.)"""
    shown = node.runs if node.report is None or not node.shows_hosted else node.report.version
    return node.report is not None and node.report.target == target.digest and shown == target.version


def _is_unsteady(node: Node, order: Order, memory: Memory) -> bool:
    """Whether it has only just changed. One that is away, and that this operator has not seen change, may have been so
    for long. A control node's agent has watched it already, and is believed."""
    if node.control:
        return False
    return is_done(node, order) and order.id not in memory.steady and (order.id in memory.watched or not node.away)


def _after(place: Place, order: Order, report: Report, request: Request) -> Place:
    """Of a node whose order has ended, and which has not what is wanted."""
    is_done = report.state is State.DONE
    if order.target != request.target if is_done else order.request != request:
        return place
    if (is_done or report.interrupted) and order.attempt < MOST_ATTEMPTS:
        return replace(place, attempt=order.attempt + 1)
    why = "it does not have what it reports" if is_done else report.why or f"it reports {report.state}"
    return replace(place, standing=Standing.FAILED, why=why, refused=report.state is State.REFUSED)


def stoppers(places: Sequence[Place]) -> Callable[[Place], Sequence[Place]]:
    """Of a place: those that stop it, or would if it were another one. Many are stopped alike: these are looked for
    once."""
    failed = [one for one in places if one.standing is Standing.FAILED]
    found = dict[tuple[int, bool], list[Place]]()

    def of(place: Place) -> Sequence[Place]:
        if place.stopped_as not in found:
            found[place.stopped_as] = [one for one in failed if one.stops(place)]
        return found[place.stopped_as]

    return of


def with_stopped(places: Sequence[Place]) -> list[Place]:
    of = stoppers(places)
    stopped = {one.node.name for one in places if any(other is not one for other in of(one))}
    return [replace(one, stopped=True) if one.node.name in stopped else one for one in places]


def not_serving(others: Sequence[Node], *, goes_down: bool = False) -> str:
    """Why no control node's kubelet changes beside these control nodes; empty where one may. All have to serve. One
    that is away may be so forever, and is left out while more than half of all serve then, with the one that changes,
    as etcd's quorum wants: a kubelet's restart touches no pod. One that harms pods may cost that quorum until it has
    gone back; that it worked on another node before is not asked.

    goes_down: the control plane waits for that one before it goes down a minor. Then one that is there and does not
    serve is left out as well: what it runs may be what is to be taken back."""
    silent = [one for one in others if one.serves is not True]
    present = [] if goes_down else [one for one in silent if not one.away]
    serving = len(others) - len(silent)
    if silent and (present or serving < 1 or 2 * (serving + 1) <= len(others) + 1):
        return f"control node {some(one.name for one in present or silent)} is not seen to serve"
    return ""
