"""Whose kubelet changes next: the operator's side. Pure.

Everything that has happened is on the Nodes, in order and report: an operator that is killed anywhere goes on where the
last one was. The memory holds only times, and what was written and has not been seen yet.

Invariants:
- an order is written for a Ready node only, and only for what `wanted` allows (rule 4);
- in a pool never more than its `atOnce` have their turn: an order that has not ended, or a kubelet that has changed and
  has not been Ready for STEADY_SECONDS since; of control nodes one in the cluster, and only while every other one
  serves and nothing else is at work on the control plane;
- a node whose order has not ended keeps its turn, also while it is off: nobody knows what has become of it;
- a kubelet that went back, or was refused, stops its pool and those that do not come before it, until something else
  is wanted of it, or a person asks again. What a restart of the machine interrupts is tried MOST_ATTEMPTS times;
- a node that is away is passed over, and gets its turn when it is back;
- while `spec.paused`, no order is written.

On the way down a minor the control plane waits for the kubelets. There all pools go side by side, a worker that fails
stops no other one, and one that has had its turn for LATE_SECONDS, whatever it says, loses it: else a single worker,
which may be an attacker's, could block the way back of all. Control nodes are trusted, and waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from autarky.control.common.shapes import MOST_NAMED, some
from autarky.control.common.skew import minor_of
from autarky.control.kubelet.decide import order as orders
from autarky.control.kubelet.decide.order import MOST_NUMBER, Order, Request, Target, drains
from autarky.control.kubelet.decide.pools import Pool
from autarky.control.kubelet.decide.report import Report, State
from autarky.model.versions import Version

STEADY_SECONDS = 10.0
LATE_SECONDS = 900.0
"""Beyond the time for a drain: while the API is away a trial may take 600 s, and before it some 100 MB are copied."""
MOST_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Node:
    """control: whether it is a control node, by what kubelets cannot set. serves: of control nodes; None where nobody
    knows. runs: the version that it shows. wanted: None where its kubelet stays as it is. takes_pods: but for a cordon
    of ours. cordoned: the order that it is cordoned for; unschedulable: by whomever."""

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


@dataclass(frozen=True, slots=True)
class Situation:
    """lowest: what `reported.lowest_version` says. image: of a version. asked: as in `order`. moves: whether the
    control plane is on its way to another version. busy: what else is at work on the control plane, a clause."""

    nodes: Sequence[Node]
    lowest: Version
    image: Callable[[Version], str]
    paused: bool = False
    asked: str = ""
    moves: bool = False
    busy: str = ""

    def is_above(self, version: Version | None) -> bool:
        return version is not None and minor_of(version) > minor_of(self.lowest)

    def request(self, node: Node) -> Request | None:
        if node.wanted is None:
            return None
        pool = node.pool
        return Request(node.wanted, self.image(node.wanted.version), pool.drain, pool.drain_seconds, self.asked)


@dataclass(frozen=True, slots=True)
class Memory:
    """written: node → the order that was written and has not been seen on it since. turns: node → since when (monotonic
    seconds) it has its turn. watched: orders that were seen under way. ready: order that is done → since when its node
    is Ready without a break. steady: those whose nodes were that for long enough."""

    written: Mapping[str, Order] = field(default_factory=dict)
    turns: Mapping[str, float] = field(default_factory=dict)
    watched: frozenset[str] = frozenset()
    ready: Mapping[str, float] = field(default_factory=dict)
    steady: frozenset[str] = frozenset()


class Standing(Enum):
    STAYS = "nothing is wanted of it"
    DONE = "it has what is wanted"
    HAS_TURN = "its order has not ended, or has only just"
    WAITS = "it has yet to get its order"
    FAILED = "it went back, or was refused"


@dataclass(frozen=True, slots=True)
class Place:
    """One node. number, attempt: of its next order. why: it failed. under_way: its order has not ended. replaces: it
    has its turn for something else than is wanted now. late: for long. goes_down: the control plane waits for it."""

    node: Node
    standing: Standing
    number: int = 1
    attempt: int = 1
    why: str = ""
    under_way: bool = False
    replaces: bool = False
    late: bool = False
    goes_down: bool = False

    def holds_up(self, other: Place) -> bool:
        """Whether it has a turn of their pool. (What control nodes may do beside each other is asked by itself.)"""
        return self.standing is Standing.HAS_TURN and not (other.goes_down and self.late)

    def stops(self, other: Place) -> bool:
        """On the way down only control nodes stop others: the control plane does not go on without them."""
        if self.standing is not Standing.FAILED or self.node.pool.order > other.node.pool.order:
            return False
        return self.node.control or not other.goes_down

    def comes_before(self, other: Place) -> bool:
        """Whether it is of an earlier pool, and has yet to change."""
        if other.goes_down or self.node.pool.order >= other.node.pool.order:
            return False
        return self.standing is Standing.HAS_TURN or (self.standing is Standing.WAITS and not self.node.away)


@dataclass(frozen=True, slots=True)
class Write:
    """cordon: whether the Node becomes unschedulable in the same patch."""

    node: str
    order: Order
    cordon: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """Of a pool. wanted: the versions. stopped: which node stops it, and why; empty where none does."""

    wanted: tuple[Version, ...]
    done: int
    total: int
    stopped: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """uncordon: nodes that are cordoned for an order that has ended. waits: node → why it gets no order now. above:
    those whose kubelets are of a later minor than the control plane is to have. under_way: those whose orders have not
    ended: their kubelets may be so then, since a way back leads to what was there before. failed: those that will not
    change until something else is wanted of them, or somebody asks."""

    memory: Memory
    writes: tuple[Write, ...]
    uncordon: tuple[str, ...]
    pools: Mapping[str, Progress]
    waits: Mapping[str, str]
    above: frozenset[str]
    under_way: frozenset[str]
    failed: frozenset[str]


def decide(seen: Situation, memory: Memory, now: float) -> Decision:
    """`now`: monotonic seconds."""
    memory = replace(memory, written=_not_seen_yet(seen.nodes, memory.written))
    nodes = [replace(node, order=memory.written.get(node.name, node.order)) for node in seen.nodes]
    memory = _with_times(nodes, seen, memory, now)
    places = [_place(node, seen, memory, now) for node in nodes]
    writes, waits = _once_more(places, memory, seen), dict[str, str]()
    for place in sorted(places, key=_in_order):
        if place.standing is not Standing.WAITS and not place.replaces:
            continue
        if why := _against(place, places, seen):
            waits[place.node.name] = why
            continue
        writes.append(_write(place, seen))
        places = [_given(one) if one is place else one for one in places]
    written = {**memory.written, **{write.node: write.order for write in writes}}
    have = [place.node.name for place in places if place.standing is Standing.HAS_TURN]
    memory = replace(memory, written=written, turns={name: memory.turns.get(name, now) for name in have})
    above = frozenset(place.node.name for place in places if place.goes_down)
    under_way = frozenset(place.node.name for place in places if place.under_way)
    failed = frozenset(place.node.name for place in places if place.standing is Standing.FAILED)
    uncordon = tuple(one.node.name for one in places if one.node.cordoned and not one.under_way)
    return Decision(memory, tuple(writes), uncordon, _progress(places), waits, above, under_way, failed)


# --- what was written, and since when ------------------------------------------------------------------------------


def _not_seen_yet(nodes: Iterable[Node], written: Mapping[str, Order]) -> dict[str, Order]:
    """What is watched comes late: until a Node is seen with its order, it counts as having it."""
    seen = {node.name: 0 if node.order is None else node.order.number for node in nodes}
    return {name: order for name, order in written.items() if name in seen and seen[name] < order.number}


def _once_more(places: Iterable[Place], memory: Memory, seen: Situation) -> list[Write]:
    """What may have been lost on its way; and what needs a cordon since it was written. The same order again changes
    nothing."""
    again = list[Write]()
    for place in places:
        node, order = place.node, place.node.order
        if node.wanted is None or not place.under_way or place.replaces or seen.paused:
            continue
        if order is None or order != _current(node, seen):
            continue
        needs_cordon = drains(order, node.runs) and not node.unschedulable and not node.cordoned
        if node.name in memory.written or needs_cordon:
            again.append(_cordoning(node, order))
    return again


def _with_times(nodes: Iterable[Node], seen: Situation, memory: Memory, now: float) -> Memory:
    """Only of what is on the Nodes now: the rest is forgotten."""
    watched, ready, steady = set[str](), dict[str, float](), set[str]()
    for node in nodes:
        if (order := _current(node, seen)) is None:
            continue
        if order.id in memory.watched or not _is_over(node, order):
            watched.add(order.id)
        if node.ready and _is_over(node, order):
            ready[order.id] = memory.ready.get(order.id, now)
        if order.id in memory.steady or now - ready.get(order.id, now) >= STEADY_SECONDS:
            steady.add(order.id)
    return replace(memory, watched=frozenset(watched), ready=ready, steady=frozenset(steady))


# --- how each node stands ------------------------------------------------------------------------------------------


def _current(node: Node, seen: Situation) -> Order | None:
    """The order on the Node, unless the node itself has come to a later one: then that one was removed, or this one has
    been restored."""
    order, report = node.order, node.report
    if order is not None and (report is None or report.order == order.id or report.number < order.number):
        return order
    return _removed(seen.request(node), report)


def _is_over(node: Node, order: Order) -> bool:
    return node.report is not None and node.report.order == order.id and node.report.is_final


def _place(node: Node, seen: Situation, memory: Memory, now: float) -> Place:
    request, report = seen.request(node), node.report
    order = _current(node, seen)
    number = min(MOST_NUMBER, 1 + max(0 if one is None else one.number for one in (node.order, report)))
    # After a way back a Node shows for a moment still what was tried, and its agent knows better.
    goes_down = seen.is_above(node.runs) or (report is not None and seen.is_above(report.version))
    late = now - memory.turns.get(node.name, now) >= LATE_SECONDS + node.pool.drain_seconds
    place = Place(node, Standing.WAITS, number, goes_down=goes_down, late=late)
    if order is None and report is not None and report.state is not None and not report.is_final:
        return replace(place, standing=Standing.HAS_TURN, under_way=True)  # its order was removed
    if order is not None and (not _is_over(node, order) or _is_unsteady(node, order, memory)):
        return _with_turn(place, order, request, seen)
    if request is None:
        return replace(place, standing=Standing.STAYS)
    if _has(node, request.target):
        return replace(place, standing=Standing.DONE)
    return place if order is None or report is None else _after(place, order, report, request)


def _removed(request: Request | None, report: Report | None) -> Order | None:
    """The order that the node reports, where it is what is wanted now: tools remove annotations that they do not
    know."""
    if request is None or report is None or not report.order:
        return None
    found = (orders.made(request, report.number, report.attempt, alone=alone) for alone in (False, True))
    return next((order for order in found if order.id == report.order), None)


def _with_turn(place: Place, order: Order, request: Request | None, seen: Situation) -> Place:
    under_way = not _is_over(place.node, order)
    other = request is not None and order.target != request.target
    return replace(
        place,
        standing=Standing.HAS_TURN,
        under_way=under_way,
        replaces=other or (under_way and request is not None and order.request.asked != request.asked),
        goes_down=place.goes_down or (under_way and seen.is_above(order.target.version)),
    )


def _has(node: Node, target: Target) -> bool:
    return node.report is not None and node.report.target == target.digest and node.runs == target.version


def _is_unsteady(node: Node, order: Order, memory: Memory) -> bool:
    """Whether it has only just changed. One that is away, and that this operator has not seen change, may have been so
    for long."""
    is_done = node.report is not None and node.report.state is State.DONE
    return is_done and order.id not in memory.steady and (order.id in memory.watched or not node.away)


def _after(place: Place, order: Order, report: Report, request: Request) -> Place:
    """Of a node whose order has ended, and which has not what is wanted."""
    is_done = report.state is State.DONE
    if order.target != request.target if is_done else order.request != request:
        return place
    if (is_done or report.interrupted) and order.attempt < MOST_ATTEMPTS:
        return replace(place, attempt=order.attempt + 1)
    why = "it does not have what it reports" if is_done else report.why or f"it reports {report.state}"
    return replace(place, standing=Standing.FAILED, why=why)


# --- whose turn it is --------------------------------------------------------------------------------------------


def _in_order(place: Place) -> tuple[bool, int, int, str]:
    """Who has had fewer orders goes first: a node that wants another one all the time is not always the first."""
    return not place.replaces, place.node.pool.order, place.number, place.node.name


def _against(place: Place, places: Sequence[Place], seen: Situation) -> str:
    """Why it gets no order now; empty where it may."""
    others = [one for one in places if one is not place]
    if seen.paused:
        return "spec.paused is true"
    if not place.node.ready:
        return "it is not Ready"
    if seen.moves and not place.goes_down and not place.under_way:
        return "the control plane comes first"
    if stops := [one for one in others if one.stops(place)]:
        return f"{_names(stops)} failed before"
    return _against_turn(place, others) or (_against_control_node(others, seen) if place.node.control else "")


def _against_turn(place: Place, others: Sequence[Place]) -> str:
    """Who has a turn takes it from nobody, whatever it is for: but not every order without a report is one that has not
    ended, since reports may be removed."""
    earlier = [one for one in others if one.comes_before(place)]
    if earlier and not place.under_way:
        return f"{_names(earlier)} comes first"
    pool = place.node.pool
    turns = [one for one in others if one.node.pool.name == pool.name and one.holds_up(place)]
    return f"{_names(turns)} has its turn" if len(turns) >= pool.at_once else ""


def _against_control_node(others: Sequence[Place], seen: Situation) -> str:
    control = [one for one in others if one.node.control]
    if turns := [one for one in control if one.standing is Standing.HAS_TURN]:
        return f"control node {_names(turns)} has its turn"
    if silent := [one for one in control if one.node.serves is not True]:
        return f"control node {_names(silent)} is not seen to serve"
    return seen.busy


def _names(places: Iterable[Place]) -> str:
    return some(one.node.name for one in places)


# --- what follows ------------------------------------------------------------------------------------------------


def _given(place: Place) -> Place:
    return replace(place, standing=Standing.HAS_TURN, under_way=True, replaces=False)


def _write(place: Place, seen: Situation) -> Write:
    request = seen.request(place.node)
    if request is None:
        raise ValueError(f"nothing is wanted of {place.node.name}")
    alone = sum(node.takes_pods for node in seen.nodes) <= place.node.takes_pods
    return _cordoning(place.node, orders.made(request, place.number, place.attempt, alone=alone))


def _cordoning(node: Node, order: Order) -> Write:
    """A cordon that is not ours is a person's, and stays that."""
    return Write(node.name, order, cordon=drains(order, node.runs) and (not node.unschedulable or bool(node.cordoned)))


def _progress(places: Sequence[Place]) -> dict[str, Progress]:
    found = dict[str, Progress]()
    for pool in {place.node.pool.name: place.node.pool for place in places}.values():
        own = [place for place in places if place.node.pool.name == pool.name and place.node.wanted is not None]
        done = [place for place in own if place.standing is Standing.DONE or _has_changed(place)]
        wanted = sorted({place.node.wanted.version for place in own if place.node.wanted is not None})
        stops = [place for place in places if any(place.stops(one) for one in own) or (place in own and place.why)]
        stopped = "; ".join(f"{place.node.name}: {place.why}" for place in stops[:MOST_NAMED])
        found[pool.name] = Progress(tuple(wanted), len(done), len(own), stopped)
    return found


def _has_changed(place: Place) -> bool:
    return place.standing is Standing.HAS_TURN and not place.under_way
