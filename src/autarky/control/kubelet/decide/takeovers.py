"""Whose hosted kubelet takes over from the host's next (level 0): the operator's side. Pure.

A pod of the DaemonSet gets its turn once; what it needs for each start beyond that, its node's agent judges.

Invariants:
- a turn is given on a Ready node only, to a pod of the DaemonSet that is there and waits for it, as its node reports;
- of control nodes one has its trial at a time, and only while all others serve and are Ready (`standing.not_serving`
  says who is left out), nothing else is at work on the control plane, and no control node's kubelet is ordered to
  change. Their agents are trusted: a trial lasts until its node says that it has ended, or until another control node
  gets its turn while it is away, which takes its own back;
- in a pool never more than `atOnce` workers have theirs. What a worker says may be an attacker's word: a turn counts
  for LATE_SECONDS from when it was given, whatever is said meanwhile, and never again once it has ended. Who has had a
  turn more lately comes later;
- a worker whose hosted kubelet failed stops the workers of its pool for STOPS_SECONDS, and no control node. A control
  node stops all. Either only while that very pod is there, and pods of the same revision and version;
- while `spec.paused`, or on the way to another version, no turn is given;
- else a turn is taken back only where the level is not hosted: without its pod it means nothing.

Everything that has happened is on the Nodes. The memory holds only times, and what was written and not seen yet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from autarky.control.common.shapes import some
from autarky.control.common.skew import image_version
from autarky.control.kubelet.decide import turns
from autarky.control.kubelet.decide.beside import Once
from autarky.control.kubelet.decide.hosted_report import Report, State
from autarky.control.kubelet.decide.standing import HELD_SECONDS, Node, not_serving
from autarky.control.kubelet.manifests import files
from autarky.control.rollout.decide.failures import EXPIRES_SECONDS, delay_after
from autarky.control.upgrade.decide.absent import Lacking
from autarky.model.versions import Version

K = TypeVar("K")
_UNDER_WAY = (State.WAITING, State.PROVING)
LATE_SECONDS = 300.0
"""For how long a worker keeps others of its pool from their turns: more than a trial and its proof take."""
STOPS_SECONDS = 2 * LATE_SECONDS
"""For how long it does so by having failed: after that another one's failure is evidence for the rollout's verdict."""


@dataclass(frozen=True, slots=True)
class Situation:
    """hosted: whether the kubelet's level is. pods: node → uids of the DaemonSet's pods there that do not terminate.
    revisions: uid → of which revision of the DaemonSet. changing: nodes whose kubelets have their turn (`turns`).
    paused, moves, busy: as for `turns`."""

    nodes: Sequence[Node]
    pods: Mapping[str, Collection[str]]
    revisions: Mapping[str, str] = field(default_factory=dict)
    hosted: bool = True
    changing: Collection[str] = ()
    paused: bool = False
    moves: bool = False
    busy: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """A worker's, as it was first seen. since: monotonic seconds. over: whether it has ended, as that said once."""

    pod: str
    since: float
    over: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """written: node → the pod whose turn was written and has not been seen since. since: control node → since when
    (monotonic seconds) a trial is under way there, of whichever pods. turns: of workers, each until the turn names
    another pod. had: node → when it was given a turn last. failed: worker → (the revision that failed there last, since
    when), as long as there are pods of it."""

    written: Mapping[str, str] = field(default_factory=dict)
    since: Mapping[str, float] = field(default_factory=dict)
    turns: Mapping[str, Turn] = field(default_factory=dict)
    had: Mapping[str, float] = field(default_factory=dict)
    failed: Mapping[str, tuple[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """given: node → the pod that gets its turn. over: nodes whose turns are taken back. waits: node → why it gets none
    now. failed: node → its report. clocks_run: whether somebody has a turn that counts."""

    memory: Memory
    given: Mapping[str, str] = field(default_factory=dict)
    over: tuple[str, ...] = ()
    waits: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, Report] = field(default_factory=dict)
    clocks_run: bool = False


def decide(seen: Situation, memory: Memory, now: float) -> Decision:
    """`now`: monotonic seconds."""
    if not seen.hosted:
        return Decision(Memory(), over=tuple(node.name for node in seen.nodes if node.turn))
    lost = {node.name: pod for node in seen.nodes if (pod := _lost(node, seen, memory))}
    nodes = [replace(node, turn=lost[node.name]) if node.name in lost else node for node in seen.nodes]
    given, waits, memory = dict[str, str](), dict[str, str](), _followed(nodes, seen, memory, now)
    failed = {node.name: node.hosted for node in nodes if node.hosted is not None and _has_failed(node, seen)}
    had, over, beside = memory.had, frozenset[str](), _Beside(nodes, seen, memory, now)
    for node in sorted(nodes, key=lambda one: (had.get(one.name, float("-inf")), one.name)):
        if node.hosted is None or not (node.name in lost or _asks(node, seen)):
            continue
        if why := _against(node, beside):
            waits[node.name] = why
            continue
        given[node.name] = node.hosted.pod
        over |= _taken_back(node, beside)
        beside.give(node, node.hosted.pod)
    clocks_run = any(_counts(node, seen, beside.memory, now) for node in beside.nodes)
    memory = replace(beside.memory, written={**lost, **given})
    return Decision(memory, given, tuple(sorted(over)), waits, failed, clocks_run)


def at_work(seen: Situation, memory: Memory, now: float) -> str:
    """Why no control node's kubelet is ordered to change now, as a clause; empty where one may. One that is away, or
    does not come to an end, keeps nobody from a change that the control plane may wait for."""
    given = [replace(node, turn=memory.written.get(node.name, node.turn)) for node in seen.nodes if node.control]
    found = [one for one in given if _is_under_way(one, seen) and not one.away and not _is_late(one, memory.since, now)]
    return f"the hosted kubelet of control node {_names(found)} takes over" if found else ""


def is_behind(image: str, wanted: Version) -> bool:
    """Whether the DaemonSet's image, where kubelets follow, is to be that of another version. One of another
    repository, or with a tag that is no version, is somebody's own."""
    has = image_version(image)
    return has not in (None, wanted) and image == f"{files.IMAGE}:{has}"


@dataclass(frozen=True, slots=True)
class Following:
    """How often the DaemonSet's image was set to that version within EXPIRES_SECONDS of the time before, and when
    (monotonic seconds) last. A tool that keeps it at something else would have each node hand over all the time."""

    version: Version
    times: int
    last: float

    def again_at(self) -> float:
        return self.last + delay_after(self.times)


def set_once_more(before: Following | None, version: Version, now: float) -> Following:
    if before is None or before.version != version or now - before.last >= EXPIRES_SECONDS:
        return Following(version, 1, now)
    return Following(version, before.times + 1, now)


def hosts_first(
    found: turns.Decision, control: Collection[str], memory: Lacking | None, now: float, *, drain_seconds: int = 0
) -> tuple[Lacking | None, frozenset[str]]:
    """(What is remembered, the nodes whose hosts' kubelets change before the DaemonSet's image does). Workers, by
    whose word that is, are waited for while some of them come to an end, each counted once."""
    version, workers = str(found.lowest), found.outstanding - frozenset(control)
    if not workers:
        return None, found.outstanding
    before = memory if memory is not None and memory.revision == version else Lacking(version, workers, now)
    memory = before.looked_at(workers, now)
    is_over = now - memory.since >= HELD_SECONDS + drain_seconds
    return memory, found.outstanding - workers if is_over else found.outstanding


# --- what was written, and since when ------------------------------------------------------------------------------


def _lost(node: Node, seen: Situation, memory: Memory) -> str:
    """The pod whose turn was written and may have been lost on its way: it is written once more."""
    pod = memory.written.get(node.name, "")
    return pod if pod and node.hosted is not None and node.hosted.pod == pod and _asks(node, seen) else ""


def _followed(nodes: Sequence[Node], seen: Situation, memory: Memory, now: float) -> Memory:
    """The times, of the nodes that there are."""
    control, workers = ([node for node in nodes if node.control is kind] for kind in (True, False))
    since = {node.name: memory.since.get(node.name, now) for node in control if _is_under_way(node, seen)}
    turns = {node.name: turn for node in workers if (turn := _turn(node, memory.turns.get(node.name), now))}
    had = {node.name: memory.had[node.name] for node in nodes if node.name in memory.had}
    known, there = memory.failed, frozenset(seen.revisions.values())
    failed = {node.name: one for node in workers if (one := _failure(node, seen, known.get(node.name), there, now))}
    return Memory(memory.written, since, turns, had, failed)


def _turn(node: Node, before: Turn | None, now: float) -> Turn | None:
    if before is None or node.turn not in ("", before.pod):
        before = Turn(node.turn, now) if node.turn else None
    said = node.hosted
    if before is None or said is None or said.pod != before.pod or said.state in _UNDER_WAY:
        return before
    return replace(before, over=True)


def _failure(
    node: Node, seen: Situation, before: tuple[str, float] | None, there: Collection[str], now: float
) -> tuple[str, float] | None:
    """A worker may have its pod made again as often as it likes, and no pod of another revision. there: the revisions
    of which there are pods."""
    if node.hosted is not None and _has_failed(node, seen):
        revision = _revision(node.hosted.pod, seen)
        return before if before is not None and before[0] == revision else (revision, now)
    return before if before is not None and before[0] in there else None


def _with_turn(node: Node, pod: str, memory: Memory, now: float) -> Memory:
    if node.control:
        memory = replace(memory, since={**memory.since, node.name: memory.since.get(node.name, now)})
    else:
        before = memory.turns.get(node.name)
        turn = before if before is not None and before.pod == pod else Turn(pod, now)
        memory = replace(memory, turns={**memory.turns, node.name: turn})
    return replace(memory, had={**memory.had, node.name: now})


def _is_late(node: Node, since: Mapping[str, float], now: float) -> bool:
    return now - since.get(node.name, now) >= LATE_SECONDS


# --- whose turn it is ----------------------------------------------------------------------------------------------


def _is_under_way(node: Node, seen: Situation) -> bool:
    """Whether its trial has not ended, as it says. On a control node a pod that was deleted may have left a kubelet; a
    worker takes a place by its turn alone."""
    said = node.hosted
    if said is None or said.state not in _UNDER_WAY:
        return False
    may_be_left = node.control and said.state is State.PROVING
    return may_be_left or (said.pod == node.turn and _is_there(node, seen))


def _counts(node: Node, seen: Situation, memory: Memory, now: float) -> bool:
    """Whether it keeps others from their turns."""
    turn = memory.turns.get(node.name)
    return _is_under_way(node, seen) and (turn is None or not (turn.over or now - turn.since >= LATE_SECONDS))


def _asks(node: Node, seen: Situation) -> bool:
    said = node.hosted
    return said is not None and said.state is State.WAITING and _is_there(node, seen) and node.turn != said.pod


def _is_there(node: Node, seen: Situation) -> bool:
    return node.hosted is not None and node.hosted.pod in seen.pods.get(node.name, ())


def _has_failed(node: Node, seen: Situation) -> bool:
    return node.hosted is not None and node.hosted.state is State.FAILED and _is_there(node, seen)


def _revision(pod: str, seen: Situation) -> str:
    return seen.revisions.get(pod, "")


class _Beside:
    """The nodes of one pass, and what many of those that wait ask about the others, as in `beside`."""

    def __init__(self, nodes: Sequence[Node], seen: Situation, memory: Memory, now: float) -> None:
        self.nodes, self.seen, self.memory, self.now = list(nodes), seen, memory, now
        self._index = {node.name: number for number, node in enumerate(nodes)}
        self._once = Once()

    def give(self, node: Node, pod: str) -> None:
        self.nodes[self._index[node.name]] = replace(node, turn=pod)
        self.memory = _with_turn(node, pod, self.memory, self.now)
        self._once.forget()

    def that_stop(self, node: Node) -> str:
        """The names of those that do, of one that waits: it has not failed itself."""
        kind = _kind(node, self.seen)

        def look() -> str:
            failed = self._once(("failed",), self._failed).get(kind, ())
            return _names(one for one in failed if _stops(one, node, self.memory, self.now))

        return self._once(("stop", *kind, node.control, node.pool.name), look)

    def workers_with_turn(self, node: Node) -> tuple[int, str]:
        """How many others of its pool have one that counts, and their names."""
        pool = node.pool.name
        have = self._once(("have",), self._have).get(pool, [])
        if _counts(node, self.seen, self.memory, self.now):  # its turn is written once more
            return len(have) - 1, _names(one for one in have if one is not node)
        return len(have), self._once(("names", pool), lambda: _names(have))

    def _failed(self) -> dict[tuple[object, str], list[Node]]:
        """By what they are of."""
        return _grouped((_kind(one, self.seen), one) for one in self.nodes if _has_failed(one, self.seen))

    def _have(self) -> dict[str, list[Node]]:
        """Workers with a turn that counts, by their pool."""
        workers = (one for one in self.nodes if not one.control)
        return _grouped((one.pool.name, one) for one in workers if _counts(one, self.seen, self.memory, self.now))

    def control_nodes(self, node: Node) -> list[Node]:
        """The others."""
        return [one for one in self.nodes if one.control and one is not node]


def _grouped(nodes: Iterable[tuple[K, Node]]) -> dict[K, list[Node]]:
    found: dict[K, list[Node]] = {}
    for key, node in nodes:
        found.setdefault(key, []).append(node)
    return found


def _kind(node: Node, seen: Situation) -> tuple[object, str]:
    """Of which version and revision its hosted kubelet is: one that failed says something about its like only."""
    return (None, "") if node.hosted is None else (node.hosted.version, _revision(node.hosted.pod, seen))


def _against(node: Node, beside: _Beside) -> str:
    """Why it gets no turn now; empty where it may."""
    seen = beside.seen
    if seen.paused or seen.moves:
        return "spec.paused is true" if seen.paused else "the control plane comes first"
    if not node.ready or node.name in seen.changing:
        return "its host's kubelet changes" if node.ready else "it is not Ready"
    if stops := beside.that_stop(node):
        return f"{stops} failed before"
    if node.control:
        return _against_control_node(beside.control_nodes(node), seen)
    have, names = beside.workers_with_turn(node)
    return f"{names} has its turn" if have >= node.pool.at_once else ""


def _stops(failed: Node, other: Node, memory: Memory, now: float) -> bool:
    """Where their hosted kubelets are of one kind."""
    if failed.control or other.control:
        return failed.control
    _, since = memory.failed.get(failed.name, ("", now))
    return failed.pool.name == other.pool.name and now - since < STOPS_SECONDS


def _against_control_node(others: Sequence[Node], seen: Situation) -> str:
    if have := [one for one in others if _is_under_way(one, seen) and not one.away]:
        return f"control node {_names(have)} has its turn"
    if changing := [one for one in others if one.name in seen.changing]:
        return f"the kubelet of control node {_names(changing)} changes"
    return not_serving([replace(one, serves=one.serves is True and one.ready) for one in others]) or seen.busy


def _taken_back(node: Node, beside: _Beside) -> frozenset[str]:
    """The control nodes that are away with a turn, when another one gets its own: they wait for a new one then."""
    others = beside.control_nodes(node) if node.control else []
    return frozenset(one.name for one in others if one.away and one.turn and _is_under_way(one, beside.seen))


def _names(nodes: Iterable[Node]) -> str:
    return some(one.name for one in nodes)
