"""Whose kubelet changes next: the operator's side. Pure.

Everything that has happened is on the Nodes, in order and report: an operator that is killed anywhere goes on where the
last one was. The memory holds only times, and what was written and has not been seen yet.

Invariants:
- an order is written for a Ready node only, and only for what `wanted` allows (rule 4);
- in a pool never more than its `atOnce` have their turn: an order that has not ended, or a worker's kubelet that has
  changed and has not been Ready for STEADY_SECONDS since; of control nodes one in the cluster, and only while the
  others serve (`not_serving`) and nothing else is at work on the control plane;
- a control node whose order has not ended keeps its turn, also while it is off: nobody knows what has become of it. A
  worker loses it after LATE_SECONDS, which count by the operator's order, whatever its node reports meanwhile; going
  up, a pool goes on without `atOnce` of these only: a kubelet that takes its machine with it does not take them all;
- a kubelet of a worker that went back stops the workers of its pool and of those that do not come before it, until
  something else is wanted of it, or a person asks again. One that was refused stops nobody: nothing was changed, and
  why may be a tenant's budget. Of a control node either stops all, control nodes and workers alike;
- no worker stops a control node. These let the workers of earlier pools go first, but no longer than for HELD_SECONDS
  in which no other one of them has ended, each counted once for what control nodes are to have;
- what a restart of the machine interrupts is tried MOST_ATTEMPTS times;
- a node that is away is passed over, and gets its turn when it is back;
- while `spec.paused`, no order is written.

On the way down a minor the control plane waits for the kubelets. There all pools go side by side, no worker stops
another one, and whoever is late has lost its turn: else a worker, which may be an attacker's, could block the way back
of all. Control nodes are trusted, and waited for; but one on which no API server serves keeps no other one from going
down while most serve, or where it is one of two, since what it runs may be what is to be taken back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autarky.control.common.shapes import MOST_NAMED, some
from autarky.control.common.skew import minor_of
from autarky.control.kubelet.decide import order as orders
from autarky.control.kubelet.decide.beside import Beside
from autarky.control.kubelet.decide.order import Order, Request, drains
from autarky.control.kubelet.decide.standing import (
    HELD_SECONDS,
    STEADY_SECONDS,
    Memory,
    Minor,
    Node,
    Place,
    Situation,
    Standing,
    begun,
    current,
    is_done,
    is_over,
    not_serving,
    order_on,
    place_of,
    stoppers,
    time_of,
    with_stopped,
)
from autarky.control.upgrade.decide.absent import Lacking
from autarky.model.versions import Version

__all__ = [
    "HELD_SECONDS",
    "STEADY_SECONDS",
    "Decision",
    "Memory",
    "Node",
    "Progress",
    "Situation",
    "Write",
    "decide",
]


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
    """lowest: as in the Situation. uncordon: nodes that are cordoned for an order that has ended. waits: node → why
    it gets no order now. above: those whose kubelets are of a later minor than the control plane is to have.
    under_way: those whose orders have not ended: their kubelets may be so then, since a way back leads to what was
    there before. claimed: the workers of both that are there by nothing but their agents' word. ordered: those that
    were ordered such a later minor, and do not say that they have done what was ordered since to take it back.
    failed: node → why; it will not change until something else is wanted of it, or somebody asks. said: control node
    whose order has not ended → what it waits for. outstanding: those that are to change, or change, and that nothing is
    known to keep from it for long. owed: workers whose time since their first turn on the way down is not over, and
    those that wait for it meanwhile."""

    memory: Memory
    lowest: Version
    writes: tuple[Write, ...]
    uncordon: tuple[str, ...]
    pools: Mapping[str, Progress]
    waits: Mapping[str, str]
    above: frozenset[str]
    under_way: frozenset[str]
    claimed: frozenset[str]
    failed: Mapping[str, str]
    said: Mapping[str, str] = field(default_factory=dict)
    outstanding: frozenset[str] = frozenset()
    ordered: frozenset[str] = frozenset()
    owed: frozenset[str] = frozenset()


def decide(seen: Situation, memory: Memory, now: float) -> Decision:
    """`now`: monotonic seconds."""
    memory = replace(memory, written=_not_seen_yet(seen.nodes, memory.written))
    written = memory.written
    nodes = [replace(node, order=written[node.name]) if node.name in written else node for node in seen.nodes]
    memory = _with_times(nodes, seen, memory, now)
    places = with_stopped([place_of(node, seen, memory, now) for node in nodes])
    memory, held = _with_first(places, seen, memory, now)
    writes, waits, beside = _once_more(places, memory, seen), dict[str, str](), Beside(places)
    for place in sorted(places, key=lambda place: _in_order(place, memory)):
        if place.standing is not Standing.WAITS and not place.replaces:
            continue
        if why := _against(place, beside, seen, held=held):
            waits[place.node.name] = why
            continue
        writes.append(_write(place, seen, alone=beside.is_alone(place)))
        beside.give(_given(place))
    places = beside.places
    written = {**memory.written, **{write.node: write.order for write in writes}}
    have = frozenset(place.node.name for place in places if place.standing is Standing.HAS_TURN)
    nodes = [replace(node, order=written.get(node.name, node.order)) for node in nodes]
    memory = replace(memory, written=written, turns=have, began=_begun(nodes, have, memory, now))
    memory = replace(memory, came=_came(places, seen, memory, now))
    return Decision(
        memory,
        seen.lowest,
        tuple(writes),
        tuple(one.node.name for one in places if one.node.cordoned and not one.under_way),
        _progress(places),
        waits,
        above=frozenset(one.node.name for one in places if one.goes_down),
        under_way=frozenset(one.node.name for one in places if one.under_way),
        claimed=frozenset(one.node.name for one in places if one.claimed and (one.goes_down or one.under_way)),
        failed={one.node.name: one.why for one in places if one.standing is Standing.FAILED},
        said={one.node.name: said for one in places if (said := _said(one))},
        outstanding=frozenset(one.node.name for one in places if _is_outstanding(one)),
        ordered=frozenset(one.node.name for one in places if _is_ordered(one, seen)),
        owed=_owed(places, memory, now),
    )


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
        if order is None or order != current(node, seen):
            continue
        needs_cordon = drains(order, node.runs) and not node.unschedulable and not node.cordoned
        if node.name in memory.written or needs_cordon:
            again.append(_cordoning(node, order))
    return again


def _with_times(nodes: Iterable[Node], seen: Situation, memory: Memory, now: float) -> Memory:
    """Only of what is on the Nodes now: the rest is forgotten."""
    watched, ready, steady = set[str](), dict[str, float](), set[str]()
    for node in nodes:
        if (order := current(node, seen)) is None:
            continue
        if order.id in memory.watched or not is_over(node, order):
            watched.add(order.id)
        if node.ready and is_over(node, order):
            ready[order.id] = memory.ready.get(order.id, now)
        if order.id in memory.steady or now - ready.get(order.id, now) >= STEADY_SECONDS:
            steady.add(order.id)
    return replace(memory, watched=frozenset(watched), ready=ready, steady=frozenset(steady))


def _begun(nodes: Iterable[Node], have: Collection[str], memory: Memory, now: float) -> dict[str, tuple[str, float]]:
    """have: those that have their turn."""
    known = {node.name: (order_on(node), begun(node, memory, now)) for node in nodes}
    return {name: one for name, one in known.items() if name in have or memory.began.get(name) == one}


def _came(places: Iterable[Place], seen: Situation, memory: Memory, now: float) -> dict[str, tuple[Minor, float]]:
    """Whatever they say afterwards: who ends its turn and then wants another one has had its own."""
    minor = minor_of(seen.lowest)
    known = {name: one for name, one in memory.came.items() if seen.moves and one[0] == minor}
    have = (one.node for one in places if one.standing is Standing.HAS_TURN and not one.node.control)
    return {node.name: (minor, now) for node in have if seen.moves} | known


def _with_first(places: Sequence[Place], seen: Situation, memory: Memory, now: float) -> tuple[Memory, bool]:
    """And whether control nodes let them go first still. No time counts in which nobody gets a turn."""
    control = [one for one in places if one.node.control and one.standing is Standing.WAITS]
    workers = [one for one in places if not one.node.control]
    first = frozenset(one.node.name for one in workers if any(one.comes_before(other) for other in control))
    if seen.paused or seen.moves or not control:
        return replace(memory, first=None), True
    wanted = _wanted_of_control_nodes(seen)
    before = memory.first if memory.first is not None and memory.first.revision == wanted else None
    if not first:  # those that have ended count once, also where they have yet to change again
        return replace(memory, first=None if before is None else before.looked_at(first, now)), True
    lacking = (before or Lacking(wanted, first, now)).looked_at(first, now)
    drains_for = max(one.node.pool.drain_seconds for one in workers)
    return replace(memory, first=lacking), now - lacking.since < HELD_SECONDS + drains_for


def _wanted_of_control_nodes(seen: Situation) -> str:
    """Where that changes, workers go first for the time that they have, again. By no worker's request: it says itself
    what its base is."""
    requests = [seen.request(node) for node in seen.nodes if node.control]
    return " ".join(sorted({orders.made(one, 1).id for one in requests if one is not None}))


# --- whose turn it is --------------------------------------------------------------------------------------------


def _in_order(place: Place, memory: Memory) -> tuple[bool, int, bool, int, str]:
    """Who has had fewer orders goes first: a node that wants another one all the time is not always the first. On the
    way down nobody gets a second turn before all others have had one, however few orders they ever had."""
    node = place.node
    return not place.replaces, node.pool.order, node.name in memory.came, place.number, node.name


def _against(place: Place, beside: Beside, seen: Situation, *, held: bool) -> str:
    """Why it gets no order now; empty where it may. held: whether control nodes let workers go first."""
    if seen.paused:
        return "spec.paused is true"
    if not place.node.ready:
        return "it is not Ready"
    if seen.moves and not place.goes_down and not place.under_way:
        return "the control plane comes first"
    if stops := beside.that_stop(place):
        return f"{stops} failed before"
    return (
        _against_turn(place, beside, held=held)
        or (_against_control_node(place, beside.control_nodes(place), seen) if place.node.control else "")
        or _against_drain(place, beside, seen)
    )


def _against_turn(place: Place, beside: Beside, *, held: bool) -> str:
    """Who has a turn takes it from nobody, whatever it is for: but not every order without a report is one that has not
    ended, since reports may be removed."""
    if not place.under_way and (first := beside.that_come_before(place, held=held)):
        return f"{first} comes first"
    have, at_once = beside.with_turn(place), place.node.pool.at_once
    holds_up = have.number - (have.late if place.goes_down else min(have.late, at_once))
    return f"{have.names} has its turn" if holds_up >= at_once else ""


def _against_drain(place: Place, beside: Beside, seen: Situation) -> str:
    """Where others take pods at other times, a worker waits for one that does now: two that are emptied side by side,
    or one beside a machine that is off, leave nowhere to go. A control node waits for no worker: it is not drained."""
    request = seen.request(place.node)
    if place.under_way or request is None:
        return ""
    order = orders.made(request, 1, alone=beside.is_alone(place))
    if seen.drains_wait and not place.goes_down and drains(order, place.node.runs):
        return "the control plane comes first, since it is drained"
    if place.node.control or not drains(replace(order, alone=False), place.node.runs):
        return ""
    able = beside.that_could_take_pods(place)
    return f"{able} cannot take its pods now" if able else ""


def _against_control_node(place: Place, others: Sequence[Place], seen: Situation) -> str:
    if turns := [one for one in others if one.standing is Standing.HAS_TURN]:
        return f"control node {_names(turns)} has its turn"
    if _serves_for_both(place, others):
        return seen.busy
    return not_serving([one.node for one in others], goes_down=place.goes_down) or seen.busy


def _serves_for_both(place: Place, others: Sequence[Place]) -> bool:
    """Of two, on the way down: where the other one has nothing to change any more, so that nothing would make it serve.
    It is Ready: that the quorum of etcd wants both members is so whatever it serves."""
    if not place.goes_down or place.node.serves is not True or len(others) != 1:
        return False
    return others[0].node.ready and others[0].standing in (Standing.DONE, Standing.STAYS)


def _names(places: Iterable[Place]) -> str:
    return some(one.node.name for one in places)


# --- what follows ------------------------------------------------------------------------------------------------


def _given(place: Place) -> Place:
    return replace(place, standing=Standing.HAS_TURN, under_way=True, replaces=False)


def _write(place: Place, seen: Situation, *, alone: bool) -> Write:
    request = seen.request(place.node)
    if request is None:
        raise ValueError(f"nothing is wanted of {place.node.name}")
    lowers = _lowers(place.node, request)
    return _cordoning(place.node, orders.made(request, place.number, place.attempt, alone=alone, lowers=lowers))


def _cordoning(node: Node, order: Order) -> Write:
    """A cordon that is not ours is a person's, and stays that."""
    return Write(node.name, order, cordon=drains(order, node.runs) and (not node.unschedulable or bool(node.cordoned)))


def _progress(places: Sequence[Place]) -> dict[str, Progress]:
    found, of = dict[str, Progress](), stoppers(places)
    for pool in {place.node.pool.name: place.node.pool for place in places}.values():
        own = [place for place in places if place.node.pool.name == pool.name and place.node.wanted is not None]
        done = [place for place in own if place.standing is Standing.DONE or _has_changed(place)]
        wanted = sorted({place.node.wanted.version for place in own if place.node.wanted is not None})
        by_name = {one.node.name for kind in {one.stopped_as: one for one in own}.values() for one in of(kind)}
        stops = [place for place in places if place.node.name in by_name]
        stopped = "; ".join(f"{place.node.name}: {place.why}" for place in stops[:MOST_NAMED])
        found[pool.name] = Progress(tuple(wanted), len(done), len(own), stopped)
    return found


def _said(place: Place) -> str:
    """Only control nodes are trusted with words. What one said of the order before is no word about this one."""
    node, order = place.node, place.node.order
    if not place.under_way or not node.control:
        return ""
    if order is not None and (node.report is None or node.report.number < order.number):
        return "its agent has not taken the order up"
    return "" if node.report is None else node.report.why


def _is_outstanding(place: Place) -> bool:
    kept = place.node.away or place.late or (place.stopped and not place.under_way)
    return place.standing in (Standing.WAITS, Standing.HAS_TURN) and not kept


def _owed(places: Iterable[Place], memory: Memory, now: float) -> frozenset[str]:
    """Each worker's first turn keeps others waiting once: so this ends, whatever they say."""
    workers = {one.node.name: one for one in places if not one.node.control}
    began = {name: since for name, (_, since) in memory.came.items() if name in workers}
    have = {name for name, since in began.items() if now - since < time_of(workers[name].node)}
    wait = {name for name, one in workers.items() if name not in began and not one.node.away}
    asks = {name for name, one in workers.items() if one.standing in (Standing.WAITS, Standing.HAS_TURN)}
    return frozenset(asks & (have | wait)) if have else frozenset()


def _is_ordered(place: Place, seen: Situation) -> bool:
    """By the operator's own word: a worker may say that any order has not ended."""
    order = place.node.order
    return order is not None and (seen.is_above(order.target.version) or _takes_back(place.node, order))


def _takes_back(node: Node, order: Order) -> bool:
    """And has not done so yet."""
    return order.lowers and not is_done(node, order)


def _lowers(node: Node, request: Request) -> bool:
    """Whether an order for that takes back a later minor, which the one before it was for, or took back itself."""
    before = node.order
    if before is None:
        return False
    return minor_of(before.target.version) > minor_of(request.target.version) or _takes_back(node, before)


def _has_changed(place: Place) -> bool:
    return place.standing is Standing.HAS_TURN and not place.under_way
