"""What watches beside an operation must have seen: no long silence, versions that may run beside each other, and in the
logs of a workload no failure. Pure: no cluster.

Moments are in Unix seconds, by the clock that a lab's hosts share with this machine. A watch that saw nothing for a
while says nothing about that time: each silence counts, also the last one, before the end of the watch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

Span = tuple[float, float]
Minors = Mapping[str, set[int]]
"""Component → the minors of it that there are."""


# --- silence ---------------------------------------------------------------------------------------------

AFTERWARDS = 60.0
"""Seconds after an announced cut for which what starts again takes the processors."""
LEAST_SHARE = 0.5
"""Of the tries that were due: on a busy machine some are late, and none is caught up with."""


def silences(moments: Sequence[float], ended: float) -> list[Span]:
    """From each moment to the next one, and from the last one to the end of the watch."""
    assert moments, "nothing was seen at all"
    return list(pairwise([*moments, max(ended, moments[-1])]))


def too_long(
    found: Iterable[Span], limit: float, *, announced: Iterable[Span] = (), at_a_cut: float = 0.0
) -> list[float]:
    """How long those were that exceed the limit. at_a_cut: the limit of those that touch an announced time, or the
    time right AFTERWARDS, if it is higher."""
    cuts = list(announced)

    def limit_of(since: float, until: float) -> float:
        is_at_a_cut = any(since <= end + AFTERWARDS and begin <= until for begin, end in cuts)
        return max(limit, at_a_cut) if is_at_a_cut else limit

    return [until - since for since, until in found if until - since > limit_of(since, until)]


def tries_went_on(
    who: str, moments: Sequence[float], *, began: float, ended: float, every: float, longest: float
) -> None:
    """Of somebody who tries again every so many seconds, and waits for no answer: the longest silence has a bound."""
    due = int((ended - began) / every)
    assert len(moments) >= LEAST_SHARE * due, f"{who}: {len(moments)} tries of {due} that were due"
    gaps = too_long(silences([began, *moments], ended), longest)
    assert gaps == [], f"{who}: nothing was tried for so many seconds: {gaps}"


# --- version skew ----------------------------------------------------------------------------------------

SERVERS, PROXY = "kube-apiserver", "kube-proxy"
BEHIND = {"kube-controller-manager": 1, "kube-scheduler": 1, PROXY: 3, "kubelet": 3}
"""Component → how many minors it may be older than the newest API server. None may be newer than the oldest one."""
WITH_STANDBY = (SERVERS, "kube-controller-manager", "kube-scheduler")
_IMAGE = re.compile(r"/(kube-[a-z-]+):v1\.(\d+)\.\d+$")


def component_and_minor(image: str) -> tuple[str, int] | None:
    found = _IMAGE.search(image)
    return None if found is None else (found[1], int(found[2]))


@dataclass
class Looks:
    """began: when the first one may have been made. moments: when each was. sets: component → the sets of minors that
    were seen to run at one moment. broken: how the skew policy was."""

    began: float
    moments: list[float] = field(default_factory=list)
    sets: dict[str, set[tuple[int, ...]]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    @property
    def number(self) -> int:
        return len(self.moments)

    @property
    def gap(self) -> float:
        """The longest time between two of them, until now."""
        return max((after - before for before, after in pairwise([self.began, *self.moments])), default=0.0)

    def saw(self, running: Minors, parked: Minors, now: float) -> None:
        """parked: standbys on disks. Each may run from one moment to the next, so they are judged as if they did. Those
        that cannot be read now are not; then it does not count as a look, and neither does one without an API
        server."""
        for name, minors in running.items():
            self.sets.setdefault(name, set()).add(tuple(sorted(minors)))
        if not running.get(SERVERS):
            return
        together = {name: running.get(name, set()) | parked.get(name, set()) for name in {*running, *parked}}
        self.broken += [f"{said}; of these in standbys: {parked}" for said in violations(together)]
        if all(parked.get(name) for name in WITH_STANDBY):
            self.moments.append(now)


def violations(minors: Minors) -> Iterator[str]:
    """Of the version skew policy of Kubernetes, by no rule of the product's."""
    oldest, newest = min(minors[SERVERS]), max(minors[SERVERS])
    if newest - oldest > 1:
        yield f"API servers of 1.{oldest} and 1.{newest}"
    for name, behind in BEHIND.items():
        for minor in minors.get(name, ()):
            if not newest - behind <= minor <= oldest:
                yield f"{name} of 1.{minor} beside API servers of 1.{oldest} to 1.{newest}"


# --- the logs of a workload ------------------------------------------------------------------------------

TURNED_AWAY = 6
"""Attempts of one pod that may be made again: a server that stops sends each client away once, and says so."""
SLOW_ETCD = 2
"""Answers of one pod in which a server says of its etcd that it was slow."""
LONGEST_GAP = 6.0
"""Seconds between two questions. One is asked each second, and the next one waits for the answer."""
ANSWERED = "answered"
"""The line of a new connection on which all went well, behind the moment at which it began; else it says what not."""
CALL = "calling /healthz"
_ATTEMPT, _ERROR = "authz_header=", "error checking /healthz: "
_AT = re.compile(rf"^I\d{{4}} (\d\d):(\d\d):(\d\d\.\d{{6}}) .*{CALL}", re.MULTILINE)
_DAY = 86400.0


def the_api_answered(log: str, *, least: int, ended: float, read: float) -> None:
    """Each question of one pod: of client-go, which tries again by itself. So each attempt counts, and how long nothing
    was asked. read: when the log was."""
    asked = log.count(CALL)
    assert asked >= least, log[-2000:]
    failed = [line for line in log.splitlines() if _ERROR in line]
    unanswered = [line for line in failed if not _was_answered(line)]
    assert unanswered == [], unanswered[:5]
    assert len(failed) <= SLOW_ETCD, failed
    again = log.count(_ATTEMPT) - asked
    assert log.count(_ATTEMPT) > 0
    assert again <= TURNED_AWAY, f"{again} of {asked} questions were asked again"
    gaps = too_long(silences(_asked_at(log, read), ended), LONGEST_GAP)
    assert gaps == [], f"nothing was asked for so many seconds: {gaps}"


def new_connections_were_answered(log: str, *, least: int, began: float, ended: float) -> None:
    """Each one of one pod since then."""
    lines = [line.partition(" ") for line in log.splitlines()]
    assert len(lines) >= least, log[-2000:]
    moments = [float(at) for at, _, _ in lines]
    failed = [" ".join((at, said)) for at, _, said in lines if said != ANSWERED and float(at) >= began]
    assert failed == [], failed[:5]
    gaps = too_long(silences(moments, ended), LONGEST_GAP)
    assert gaps == [], f"no connection was tried for so many seconds: {gaps}"


def _asked_at(log: str, read: float) -> list[float]:
    """Its lines have the time of day only, in UTC. All of them are of the day before it was read."""
    of_day = [int(hours) * 3600 + int(minutes) * 60 + float(seconds) for hours, minutes, seconds in _AT.findall(log)]
    return [read - (read - one) % _DAY for one in of_day]


def _was_answered(line: str) -> bool:
    """Whether an API server has answered, and has nothing to say against itself: its etcd was slow for a moment, on a
    busy machine."""
    return line.count("[-]") == 1 and "[-]etcd failed" in line
