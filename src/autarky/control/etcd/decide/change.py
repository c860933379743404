"""A change of this node's member to another template: its static pod is replaced, and restored if the member is not
healthy with the new one. Pure.

Contract: what is changed, and to what, is on the disk before anything happens (`Change`), so the agent may be killed
anywhere and needs no API: the member may be one that the API waits for. Whether it may begin is decided elsewhere
(`membership`): one member at a time. A change is of one member of one etcd, and ends with it: then what is in place
stays for `local` to decide about.

Invariants:
- never two static pods of etcd at once: they would fight for one directory and its ports;
- the new one counts as healthy when its process runs, the former one's has ended, and it serves reads by the quorum;
- one that is not healthy in time goes back, and that is final for this template until another one was asked for;
- nothing is put in place for a member that etcd's linearizable list of members no longer has, or whose data is not
  there (rule 3); nor is what another member has touched;
- what cannot be seen changes nothing (rule 2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from autarky.control.etcd.decide.local import LOST_SECONDS, Data

Object = dict[str, Any]
STARTS = 3
"""After this many exits it is considered failed: the kubelet starts it again after 10 s, and then after 20."""
LIMIT = 120.0
"""Seconds within which it must be healthy. It takes some; a slow machine takes longer."""
END_SECONDS = 35.0
"""The kubelet kills it after 30 s."""


@dataclass(frozen=True, slots=True)
class Change:
    """On the disk. revision: of the template; former, wanted: static pods; back: on its way back to the former one;
    why: it goes back; over: it is back, and the template is not tried again before another one was asked for. member,
    cluster: whose change it is; None where an earlier release has written it. tried: how often the wanted pod's process
    was started before, in an earlier attempt."""

    revision: str
    former: Object
    wanted: Object
    back: bool = False
    why: str = ""
    over: bool = False
    member: int | None = None
    cluster: int | None = None
    tried: int = 0

    @property
    def target(self) -> Object:
        return self.former if self.back else self.wanted

    def going_back(self, why: str) -> Change:
        return replace(self, back=True, why=why)


class Action(Enum):
    NOTHING = "nothing"
    REMOVE = "remove the other static pods"
    PUT = "put the static pod in place"
    GO_BACK = "go back"
    DONE = "it is done"
    GIVE_UP = "the former one is restored"
    DROP = "it is of a member that there is no more"


@dataclass(frozen=True, slots=True)
class Seen:
    """back: whether it goes back. in_place: whether the target's static pod is; others: whether others are. None where
    they cannot be read. running: whether a process of the target runs; former_runs: of any other; None where the
    runtime does not say. starts: of the target's process, in this attempt. ready: whether the member serves. member,
    cluster: whose change it is. data: what the directory contains; None where it cannot be read. listed: the ids in
    etcd's list of members, of_cluster: whose list it is; None where there was none in this look."""

    back: bool
    in_place: bool | None
    others: bool
    running: bool | None
    former_runs: bool | None
    starts: int
    ready: bool
    member: int | None = None
    cluster: int | None = None
    data: Data | None = None
    listed: frozenset[int] | None = None
    of_cluster: int | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """Since when (monotonic seconds) the others are gone, the target is in place, and the data is missing."""

    ending: float | None = None
    since: float | None = None
    missed: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    memory: Memory
    action: Action
    sentence: str
    why: str = ""


def decide(seen: Seen, memory: Memory, now: float) -> Decision:
    """The next step. `now`: monotonic seconds."""
    if (why := _why_ended(seen)) is not None:
        return _drop(why)
    if _is_missing(seen):
        return _without_data(seen, now if memory.missed is None else memory.missed, now)
    return _next(seen, memory, now)


def _why_ended(seen: Seen) -> str | None:
    """Why there is no member any more that this change is of; None also where the note does not name it."""
    data = seen.data
    if seen.member is None:
        return None
    if data is not None and data.member is not None and (data.member, data.cluster) != (seen.member, seen.cluster):
        return "its data is another member's by now"
    if seen.listed is not None and seen.of_cluster == seen.cluster and seen.member not in seen.listed:
        return "etcd no longer lists it"
    return None


def _shows_no_data(seen: Seen) -> bool:
    return seen.data is not None and seen.data.member is None


def _is_missing(seen: Seen) -> bool:
    """A process that runs has its data, even if we do not see it."""
    return _shows_no_data(seen) and seen.running is False and seen.former_runs is False


def _without_data(seen: Seen, since: float, now: float) -> Decision:
    """Where no member answers, the API may wait for this very one: its disk is waited for."""
    if seen.listed is None or now - since < LOST_SECONDS:
        return Decision(Memory(missed=since), Action.NOTHING, "its data is missing; its disk may be mounted late")
    return _drop("its data is gone")


def _drop(why: str) -> Decision:
    return Decision(Memory(), Action.DROP, f"{why}: its change has ended")


def _next(seen: Seen, memory: Memory, now: float) -> Decision:
    if seen.in_place is None or seen.running is None or seen.former_runs is None:
        return Decision(memory, Action.NOTHING, "the static pods, or what runs, cannot be read")
    if seen.others:
        return Decision(Memory(), Action.REMOVE, "its process with the former static pod is stopped")
    if not seen.in_place:
        ending = now if memory.ending is None else memory.ending
        if seen.former_runs and now - ending < END_SECONDS:
            return Decision(Memory(ending), Action.NOTHING, "waiting for its former process to exit")
        if _shows_no_data(seen):  # moved aside: what still runs of it ends, and nothing new may start
            return Decision(Memory(ending), Action.NOTHING, "its data cannot be seen: waiting for its process to exit")
        return Decision(Memory(), Action.PUT, "its static pod is put in place")
    since = now if memory.since is None else memory.since
    return _judged(seen, Memory(since=since), now - since)


def _judged(seen: Seen, memory: Memory, waited: float) -> Decision:
    what = "as it was before" if seen.back else "with the new template"
    if seen.running and not seen.former_runs and seen.ready:
        return Decision(memory, Action.GIVE_UP if seen.back else Action.DONE, f"it serves {what}")
    if not seen.back and (why := _why_failed(seen, waited)) is not None:
        return Decision(Memory(), Action.GO_BACK, f"{why}: it goes back", why)
    return Decision(memory, Action.NOTHING, f"waiting until it serves {what}")


def _why_failed(seen: Seen, waited: float) -> str | None:
    if not seen.running and seen.starts >= STARTS:
        return f"it was started {seen.starts} times, and exited each time"
    if waited >= LIMIT:
        return f"it was not healthy after {LIMIT:.0f} s"
    return None
