"""When a schedule's next backup is due, which have outlived their use, and whether the last one is too old: pure.

Invariants: the newest complete backup of a schedule is never given up, however old it is and whatever the retention
says. Only wall clocks tell how old a backup is: one that is said to be from the future makes the next one due, since a
clock that was ahead must not stop backups until that time has come.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from autarky.control.backup.decide.step import Phase
from autarky.control.backup.manifests.definitions import KEPT

Object = dict[str, Any]

RETRY_SECONDS = 600.0
"""After a failure, if the interval is not shorter."""
AHEAD_SECONDS = 300.0
"""How far another node's clock may be ahead."""
KEPT_FAILURES = 3
_UNITS = {"m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True)
class Schedule:
    """every, days: in seconds, days; days None: of any age. count: how many complete ones are kept."""

    every: float
    count: int
    days: int | None = None
    paused: bool = False


@dataclass(frozen=True, slots=True)
class Made:
    """A backup of the schedule. at: when it was asked for, in seconds since 1970. kept: nobody has given it up."""

    name: str
    at: float
    phase: Phase
    kept: bool = True


def seconds(text: str) -> float | None:
    """Of "30m", "6h", "1d"; None if it is something else."""
    found = re.fullmatch(r"([1-9][0-9]{0,3})([mhd])", text)
    return None if found is None else float(int(found[1]) * _UNITS[found[2]])


def due_in(schedule: Schedule, made: Sequence[Made], now: float) -> float | None:
    """Seconds until the next one; 0: now. None while it is paused, or one is under way."""
    if schedule.paused or any(one.phase in (Phase.PENDING, Phase.RUNNING) and one.kept for one in made):
        return None
    last = max((one for one in made if one.at <= now + AHEAD_SECONDS), key=lambda one: one.at, default=None)
    if last is None:
        return 0.0
    pause = min(schedule.every, RETRY_SECONDS) if last.phase is Phase.FAILED else schedule.every
    return max(0.0, last.at + pause - now)


def pause_after(schedule: Schedule, made: Sequence[Made]) -> float:
    """Seconds that pass between two that are asked for, by whatever clock."""
    last = max(made, key=lambda one: one.at, default=None)
    failed = last is not None and last.phase is Phase.FAILED
    return min(schedule.every, RETRY_SECONDS) if failed else schedule.every


def outlived(schedule: Schedule, made: Sequence[Made], now: float) -> list[str]:
    """Names of those that are to be given up."""
    newest_first = sorted((one for one in made if one.kept), key=lambda one: one.at, reverse=True)
    complete = [one for one in newest_first if one.phase is Phase.COMPLETE]
    # Against the newest one as well: a clock that is ahead for a moment must not make all others old.
    newest = min([now, *(one.at for one in complete[:1])])
    oldest = None if schedule.days is None else newest - schedule.days * _UNITS["d"]
    old = [one for number, one in enumerate(complete) if number > 0 and _is_old(one, number, schedule.count, oldest)]
    failed = [one for one in newest_first if one.phase is Phase.FAILED]
    return [one.name for one in (*old, *failed[KEPT_FAILURES:])]


def _is_old(one: Made, number: int, count: int, oldest: float | None) -> bool:
    return number >= count or (oldest is not None and one.at < oldest)


def overdue(schedule: Schedule, last: float | None, since: float, now: float) -> bool:
    """Whether the last complete one (or the schedule itself, while there is none) is older than two intervals and an
    hour. last, since: when it was made, and when the schedule was."""
    return now - (since if last is None else last) > 2 * schedule.every + 3600


# --- from objects ---------------------------------------------------------------------------------------


def made_of(obj: Object) -> Made:
    """A Backup, as the API has it."""
    meta, kept = obj["metadata"], obj["spec"].get("state", KEPT) == KEPT
    return Made(meta["name"], since_1970(meta["creationTimestamp"]), phase_of(obj), kept)


def phase_of(obj: Object) -> Phase:
    """Pending where its status says nothing that is known."""
    known = {one.value: one for one in Phase}
    return known.get(str((obj.get("status") or {}).get("phase")), Phase.PENDING)


def since_1970(stamp: str) -> float:
    """Seconds, of an RFC 3339 time."""
    return datetime.fromisoformat(stamp).timestamp()
