"""When a schedule's next backup is due, which have outlived their use, and whether the last one is too old: pure.

Invariants: the newest complete backup of a schedule is never given up, however old it is and whatever the retention
or a clock says. Which one was made before which follows from etcd's revision: it only rises, also over a restore. Over
one by hand with etcd's own tools it may fall: so the one with the latest stamp is not given up, either. Only
wall clocks tell how old a backup is: one that is said to be from the future makes the next one due and excuses none
that is late, since a clock that was ahead must not stop backups, nor hide that they fail, until that time has come.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate, count
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
    """A backup of the schedule. at: when it was asked for, in seconds since 1970. kept: nobody has given it up.
    revision: of etcd, when it was made; 0 where that is not known."""

    name: str
    at: float
    phase: Phase
    kept: bool = True
    revision: int = 0


def seconds(text: str) -> float | None:
    """Of "30m", "6h", "1d"; None if it is something else."""
    found = re.fullmatch(r"([1-9][0-9]{0,3})([mhd])", text)
    return None if found is None else float(int(found[1]) * _UNITS[found[2]])


def is_ahead(at: float, now: float) -> bool:
    """Whether that time is in the future, by more than clocks differ."""
    return at > now + AHEAD_SECONDS


def oldest_first(made: Sequence[Made], now: float) -> list[Made]:
    """In the order in which they were made. Wall clocks decide only where there is no revision, and what they say of
    the future not even there: such a one counts as the oldest."""
    return sorted(made, key=lambda one: (one.revision, not is_ahead(one.at, now), one.at, one.name))


def last_complete(made: Sequence[Made], now: float) -> Made | None:
    """The one that says how old the schedule's backups are: not one from the future."""
    found = [one for one in oldest_first(made, now) if one.phase is Phase.COMPLETE and not is_ahead(one.at, now)]
    return found[-1] if found else None


def due_in(schedule: Schedule, made: Sequence[Made], now: float) -> float | None:
    """Seconds until the next one; 0: now. None while it is paused, or one is under way."""
    if schedule.paused or any(one.phase in (Phase.PENDING, Phase.RUNNING) and one.kept for one in made):
        return None
    last = max((one for one in made if not is_ahead(one.at, now)), key=lambda one: one.at, default=None)
    if last is None:
        return 0.0
    pause = min(schedule.every, RETRY_SECONDS) if last.phase is Phase.FAILED else schedule.every
    return max(0.0, last.at + pause - now)


def pause_after(schedule: Schedule, made: Sequence[Made], now: float) -> float:
    """Seconds that pass between two that are asked for, by whatever clock. The own one may be behind, and one that made
    an earlier backup may have been ahead."""
    by_stamp = sorted(made, key=lambda one: one.at)
    lasts = (by_stamp[-1:], [one for one in by_stamp if not is_ahead(one.at, now)][-1:])
    failed = any(one.phase is Phase.FAILED for last in lasts for one in last)
    return min(schedule.every, RETRY_SECONDS) if failed else schedule.every


def free_name(schedule: str, now: float, taken: Collection[str]) -> str:
    """Of a backup that is asked for now: of this second, or of the next one whose name nobody has. A clock that begins
    again at each boot comes back to a second that it has seen. schedule: its name."""
    names = (f"{schedule}-{datetime.fromtimestamp(second, UTC):%Y%m%d-%H%M%S}" for second in count(int(now)))
    return next(name for name in names if name not in taken)


def outlived(schedule: Schedule, made: Sequence[Made], now: float) -> list[str]:
    """Names of those that are to be given up, the oldest first. The one with the latest stamp is kept beside those that
    are counted: if the order is right, it costs none of them."""
    kept = [one for one in oldest_first(made, now) if one.kept]
    complete = [one for one in kept if one.phase is Phase.COMPLETE]
    aged, too_many = _aged(schedule, complete, now), len(complete) - schedule.count
    stamped = [one for one in reversed(complete) if not is_ahead(one.at, now)]
    latest = max(stamped, key=lambda one: one.at, default=None)
    given_up = [one for number, one in enumerate(complete[:-1]) if number < too_many or one.name in aged]
    old = [one for one in given_up if one is not latest]
    failed = [one for one in kept if one.phase is Phase.FAILED]
    return [one.name for one in (*old, *failed[:-KEPT_FAILURES])]


def _aged(schedule: Schedule, complete: Sequence[Made], now: float) -> set[str]:
    """Names of those that are older than the schedule's days. complete: the oldest first. None is older than one that
    was made before it, whatever its stamp says."""
    if schedule.days is None:
        return set()
    today = _today(schedule, complete, now)
    oldest = today - schedule.days * _UNITS["d"]
    reached = accumulate((one.at if one.at <= today else -math.inf for one in complete), max)
    return {one.name for one, at in zip(complete, reached, strict=True) if max(one.at, at) < oldest}


def _today(schedule: Schedule, complete: Sequence[Made], now: float) -> float:
    """From when ages are counted. A clock that is ahead for a moment must not make all others old, nor must the one
    backup that is made meanwhile: time passes with each of them, and not by much more than an interval."""
    newest = [one.at for one in complete[-1:]]
    before = [one.at + _late_after(schedule) for one in complete[-2:-1]]
    return min([now, *newest, *before])


def _late_after(schedule: Schedule) -> float:
    return 2 * schedule.every + 3600


def overdue(schedule: Schedule, last: float | None, since: float, now: float) -> bool:
    """Whether the last complete one (or the schedule itself, while there is none) is older than two intervals and an
    hour. last, since: when it was made, and when the schedule was. A time in the future is none: where nothing else is
    known, nobody can say that they are recent."""
    known = [at for at in (last, since) if at is not None and not is_ahead(at, now)]
    return not known or now - known[0] > _late_after(schedule)


def lateness(schedule: Schedule, made: Sequence[Made], since: float, now: float) -> str:
    """A sentence that has no running time in it; empty while none is overdue. since: when the schedule was made."""
    last = last_complete(made, now)
    if schedule.paused or not overdue(schedule, None if last is None else last.at, since, now):
        return ""
    newest = "there is no complete backup" if last is None else f"the last one is {last.name}"
    return f"backups are overdue: {newest}"


def from_the_future(made: Sequence[Made], now: float) -> str:
    """A sentence on the complete ones that do not count as the last one; empty where there is none."""
    found = [one for one in oldest_first(made, now) if one.phase is Phase.COMPLETE and is_ahead(one.at, now)]
    if not found:
        return ""
    names = f"{found[-1].name} is" if len(found) == 1 else f"{found[-1].name} and {len(found) - 1} more are"
    return f"{names} from the future, which says nothing of how old they are: a clock was ahead, or is behind now"


# --- from objects ---------------------------------------------------------------------------------------


def made_of(obj: Object) -> Made:
    """A Backup, as the API has it."""
    meta, kept = obj["metadata"], obj["spec"].get("state", KEPT) == KEPT
    return Made(meta["name"], since_1970(meta["creationTimestamp"]), phase_of(obj), kept, _revision(obj))


def _revision(obj: Object) -> int:
    """That of the archive; where there is none, that of the object's last change, since nobody changes a failed one.
    Both are etcd's."""
    in_archive = (obj.get("status") or {}).get("revision")
    if in_archive is not None or phase_of(obj) is Phase.COMPLETE:
        return int(in_archive or 0)
    version = str(obj["metadata"].get("resourceVersion"))
    return int(version) if version.isdecimal() else 0


def phase_of(obj: Object) -> Phase:
    """Pending where its status says nothing that is known."""
    known = {one.value: one for one in Phase}
    return known.get(str((obj.get("status") or {}).get("phase")), Phase.PENDING)


def since_1970(stamp: str) -> float:
    """Seconds, of an RFC 3339 time."""
    return datetime.fromisoformat(stamp).timestamp()
