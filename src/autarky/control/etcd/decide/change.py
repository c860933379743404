"""A change of this node's member to another template: its static pod is replaced, and restored if the member is not
healthy with the new one. Pure.

Contract: what is changed, and to what, is on the disk before anything happens (`Change`), so the agent may be killed
anywhere and needs no API: the member may be one that the API waits for. Whether it may begin is decided elsewhere
(`membership`): one member at a time.

Invariants:
- never two static pods of etcd at once: they would fight for one directory and its ports;
- the new one counts as healthy when its process runs, the former one's has ended, and it serves reads by the quorum;
- one that is not healthy in time goes back, and that is final for this template;
- what cannot be seen changes nothing (rule 2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

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
    why: it goes back; over: it is back, and the template is not tried again."""

    revision: str
    former: Object
    wanted: Object
    back: bool = False
    why: str = ""
    over: bool = False

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


@dataclass(frozen=True, slots=True)
class Seen:
    """back: whether it goes back. in_place: whether the target's static pod is; others: whether others are. None where
    they cannot be read. running: whether a process of the target runs; former_runs: of any other; None where the
    runtime does not say. starts: of the target's process. ready: whether the member serves."""

    back: bool
    in_place: bool | None
    others: bool
    running: bool | None
    former_runs: bool | None
    starts: int
    ready: bool


@dataclass(frozen=True, slots=True)
class Memory:
    """Since when (monotonic seconds) the others are gone, and the target is in place."""

    ending: float | None = None
    since: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    memory: Memory
    action: Action
    sentence: str
    why: str = ""


def decide(seen: Seen, memory: Memory, now: float) -> Decision:
    """The next step. `now`: monotonic seconds."""
    if seen.in_place is None or seen.running is None or seen.former_runs is None:
        return Decision(memory, Action.NOTHING, "the static pods, or what runs, cannot be read")
    if seen.others:
        return Decision(Memory(), Action.REMOVE, "its process with the former static pod is stopped")
    if not seen.in_place:
        ending = now if memory.ending is None else memory.ending
        if seen.former_runs and now - ending < END_SECONDS:
            return Decision(Memory(ending), Action.NOTHING, "waiting for its former process to exit")
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
