"""What to do next for one Backup: pure.

A pod on a control node makes its archive, or removes it, and says at its end what it did. Invariants:

- at most one pod works for all Backups: a snapshot takes what etcd's disk can give;
- an archive is only removed when somebody asked for that (`spec.state: Removed`), never because an object is gone;
- a pod that ended without a word (it was evicted, its node died) is followed by another one, on another node if the
  archive does not have to be on that one; one that said what is wrong is not, since the next one would say it again,
  unless it said that it is its own node that cannot: then each attempt is on another one;
- a target that hangs keeps no other from its turn: an attempt that was not done within its time is the last one, and
  whoever waits when an attempt ends goes before the next one (`turns`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from autarky.control.backup.manifests.pods import ELSEWHERE, LONGEST_SECONDS

MOST_ATTEMPTS = 3
STARTS_SECONDS = 300.0
"""A pod that has not started by then does not: its directory or its Secret is not there."""
AGAIN_SECONDS = 3600.0
"""After a removal that failed: the server may be back."""


class Phase(Enum):
    """As users see it in Backup.status.phase."""

    PENDING = "Pending"
    RUNNING = "Running"
    COMPLETE = "Complete"
    FAILED = "Failed"
    REMOVING = "Removing"
    NOT_REMOVED = "NotRemoved"


class Verb(Enum):
    MAKE = "make"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Asked:
    """A Backup. kept: its archive should be there. on: the node that the spec names. local: the target is a directory
    of a node. node: where it was made. attempt: of the pod that was started last. idle: seconds since then."""

    name: str
    phase: Phase = Phase.PENDING
    kept: bool = True
    on: str | None = None
    local: bool = True
    node: str | None = None
    attempt: int = 0
    idle: float = 0.0


@dataclass(frozen=True, slots=True)
class Worker:
    """Its pod. said: what it said at its end; None while it runs, and where it ended without a word. age: in seconds.
    stuck: why it does not start, in the kubelet's words. overlong: it was ended, since its time was over."""

    verb: Verb
    node: str
    ended: bool = False
    said: Mapping[str, Any] | None = None
    running: bool = False
    age: float = 0.0
    stuck: str = ""
    overlong: bool = False


@dataclass(frozen=True, slots=True)
class Nodes:
    """able: the control nodes that a pod can work on, the best first. gone: nodes that are no Node of the cluster any
    more are in neither. silent: those that do not answer."""

    able: Sequence[str] = ()
    silent: Collection[str] = ()
    there: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Start:
    verb: Verb
    node: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Record:
    """The new phase, and what else the status says from now on; the pod is deleted after that is written."""

    phase: Phase
    message: str = ""
    result: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DropPod:
    """It is in the way, or has done its work."""

    why: str


@dataclass(frozen=True, slots=True)
class Forget:
    """Delete the Backup: its archive is gone, or there never was one."""

    why: str


@dataclass(frozen=True, slots=True)
class Wait:
    why: str = ""


Step = Start | Record | DropPod | Forget | Wait


def step(asked: Asked, pod: Worker | None, nodes: Nodes, *, busy: bool, ahead: bool = False) -> Step:
    """busy: a pod works for another Backup. ahead: another one has waited for longer."""
    if asked.phase is Phase.RUNNING:
        return _working(asked, pod, nodes, Verb.MAKE, Phase.FAILED, ahead=ahead)
    if asked.phase is Phase.REMOVING:
        return _working(asked, pod, nodes, Verb.REMOVE, Phase.NOT_REMOVED, ahead=ahead)
    if pod is not None:
        return DropPod("its work is recorded")
    return _kept(asked, nodes, busy=busy) if asked.kept else _unwanted(asked, nodes, busy=busy)


def _kept(asked: Asked, nodes: Nodes, *, busy: bool) -> Step:
    if asked.phase is Phase.PENDING:
        return _begin(asked, nodes, Verb.MAKE, busy=busy)
    return Record(Phase.COMPLETE) if asked.phase is Phase.NOT_REMOVED else Wait()


def _unwanted(asked: Asked, nodes: Nodes, *, busy: bool) -> Step:
    if asked.phase not in (Phase.COMPLETE, Phase.NOT_REMOVED):
        return Forget("it has no archive")
    if asked.local and asked.node not in nodes.there:
        return Forget(f"node {asked.node}, which had the archive, is no longer in the cluster")
    if asked.phase is Phase.NOT_REMOVED and asked.idle < AGAIN_SECONDS:
        return Wait()
    return _begin(asked, nodes, Verb.REMOVE, busy=busy)


def _begin(asked: Asked, nodes: Nodes, verb: Verb, *, busy: bool) -> Start | Wait:
    if busy:
        return Wait("another backup is being worked on")
    node = _place(asked, nodes, verb, without=None)
    return Wait(_nowhere(asked, verb)) if node is None else Start(verb, node, 1)


def _working(asked: Asked, pod: Worker | None, nodes: Nodes, verb: Verb, failed: Phase, *, ahead: bool) -> Step:
    if pod is None:
        return _again(asked, nodes, verb, failed, ahead=ahead)
    if pod.verb is verb and (pod.overlong or pod.said is not None):
        return _ended(asked, pod, nodes, failed)
    if why := _useless(pod, verb, nodes):
        return DropPod(why)
    if not pod.running and pod.age > STARTS_SECONDS:
        return Record(failed, f"its pod on {pod.node} does not start: {pod.stuck or 'a volume cannot be mounted'}")
    return Wait()


def _useless(pod: Worker, verb: Verb, nodes: Nodes) -> str:
    if pod.verb is not verb:
        return "it is of something else"
    if pod.ended:
        return "it ended without a word"
    if pod.node in nodes.silent or pod.node not in nodes.there:
        return f"node {pod.node} does not answer"
    return ""


def _again(asked: Asked, nodes: Nodes, verb: Verb, failed: Phase, *, ahead: bool) -> Step:
    if asked.attempt >= MOST_ATTEMPTS:
        return Record(failed, f"given up after {MOST_ATTEMPTS} attempts: its pod is gone")
    if verb is Verb.REMOVE and asked.local and asked.node not in nodes.there:
        return Forget(f"node {asked.node}, which had the archive, is no longer in the cluster")
    if ahead:
        return Wait("another backup goes first")
    node = _place(asked, nodes, verb, without=asked.node)
    return Wait(_nowhere(asked, verb)) if node is None else Start(verb, node, asked.attempt + 1)


def _ended(asked: Asked, pod: Worker, nodes: Nodes, failed: Phase) -> Step:
    if pod.overlong:
        hours = LONGEST_SECONDS // 3600
        return Record(failed, f"its pod on {pod.node} was not done after {hours} h: see whether its target answers")
    said = pod.said or {}
    if pod.verb is Verb.MAKE and said.get(ELSEWHERE) and _has_another(asked, nodes):
        return DropPod(f"another node is tried: {said.get('error')}")
    if error := said.get("error"):
        return Record(failed, str(error))
    if pod.verb is Verb.REMOVE:
        return Forget("its archive is removed")
    return Record(Phase.COMPLETE, str(said.get("message", "")), said)


def _place(asked: Asked, nodes: Nodes, verb: Verb, *, without: str | None) -> str | None:
    if asked.local and verb is Verb.REMOVE:
        return asked.node if asked.node in nodes.able else None
    if asked.on is not None:
        return asked.on if asked.on in nodes.able else None
    others = _after(nodes.able, without)
    return next(iter([*others, *nodes.able]), None)


def _after(able: Sequence[str], tried: str | None) -> list[str]:
    """All others, so that attempts go in turn: first those whose names come after it."""
    if tried is None:
        return list(able)
    return sorted((one for one in able if one != tried), key=lambda name: (name < tried, name))


def _has_another(asked: Asked, nodes: Nodes) -> bool:
    return asked.on is None and asked.attempt < MOST_ATTEMPTS and any(one != asked.node for one in nodes.able)


def _nowhere(asked: Asked, verb: Verb) -> str:
    where = asked.node if asked.local and verb is Verb.REMOVE else asked.on
    return f"waiting for node {where}" if where else "waiting for a control node that has a healthy member of etcd"
