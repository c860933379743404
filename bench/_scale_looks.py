"""What is looked at while a cluster rests: processor time by process, requests by client, the size of objects. Pure but
for the scripts, which test hosts run.

Requests: the API server's metrics do not tell clients apart, and nothing of autarky's counts its own. So the server is
made to log each request (klog's level 3) for as long as they are counted, and for no longer: that costs it processor
time. All of autarky's have one user agent; whose they are follows from the flow schema of priority and fairness, which
is in the same line: the operator is a service account of kube-system, and an agent is its node's kubelet (which has a
user agent of its own). A request is logged when it ends, and only if the level was 3 when it began: so the count begins
when all watches of before have ended.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from _memory import Process, row

OPERATOR, AGENT = "operator", "node agent"
CLIENTS = (OPERATOR, AGENT)

# Argument: /proc. First the ticks in a second; then a line for each process: its number, when it began, its ticks with
# those of children that have ended, its name, and of a Python AUTARKY_SLOT (or "-") and its command line.
TIMES = r"""
exec 2>/dev/null
proc=$1
getconf CLK_TCK
for directory in "$proc"/[0-9]*; do
  pid=${directory##*/} stat= name= slot= words=
  read -r stat <"$directory/stat" || continue
  read -r name <"$directory/comm" || continue
  case $name in
  python*)
    slot=$(tr '\0' '\n' <"$directory/environ" | sed -n 's/^AUTARKY_SLOT=//p')
    words=$(tr '\0\n\t' '   ' <"$directory/cmdline")
    ;;
  esac
  set -- ${stat##*) }
  printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$pid" "${20}" $((${12} + ${13} + ${14} + ${15})) "$name" "${slot:--}" "$words"
done
exit 0
"""
# Arguments: seconds, and a pattern for the logs of API servers. What autarky's programs have asked meanwhile, also when
# a log is rotated; none at all is for the caller to refuse.
REQUESTS = r"""
timeout "$1" tail -q -n 0 -F $2 2>/dev/null | grep -aF 'userAgent="autarky/'
exit 0
"""
_REQUEST = re.compile(r' "HTTP" verb="(?P<verb>\w+)" URI="(?P<uri>[^"]*)".* apf_fs="(?P<schema>[^"]*)"')
_WHOSE = {
    "kube-system-service-accounts": OPERATOR,
    "system-leader-election": OPERATOR,
    "system-nodes": AGENT,
    "system-node-high": AGENT,
}

Identity = tuple[str, str]
"""(number, when it began)"""


@dataclass(frozen=True)
class Time:
    """Seconds of a processor so far. where: the row of the process, as for memory."""

    where: str
    seconds: float


@dataclass(frozen=True)
class Spent:
    """by_row: seconds. ended: rows with a process that was there before, and is gone: its last seconds are in none."""

    by_row: Mapping[str, float]
    ended: tuple[str, ...]


def times(said: str) -> dict[Identity, Time]:
    """What TIMES says. ValueError where it has seen no process: nothing measured is no little time."""
    a_second, *lines = said.removesuffix("\n").split("\n")
    found: dict[Identity, Time] = {}
    for line in lines:
        pid, began, ticks, name, slot, words = line.split("\t")
        where = row(Process(None, name, slot, words))
        if where is not None:
            found[pid, began] = Time(where, int(ticks) / int(a_second))
    if not found:
        raise ValueError("no process was seen")
    return found


def spent(before: Mapping[Identity, Time], after: Mapping[Identity, Time]) -> Spent:
    """Between two looks. What has begun meanwhile counts from its beginning."""
    by_row: dict[str, float] = {}
    for identity, now in after.items():
        was = before.get(identity)
        more = now.seconds - (0.0 if was is None else was.seconds)
        by_row[now.where] = by_row.get(now.where, 0.0) + more
    ended = {time.where for identity, time in before.items() if identity not in after}
    return Spent(by_row, tuple(sorted(ended)))


def requests(lines: Iterable[str]) -> dict[str, Counter[str]]:
    """Client → what it has asked ("WATCH nodes"), how often. What commands and benchmarks ask is left out."""
    found: dict[str, Counter[str]] = {client: Counter() for client in CLIENTS}
    for line in lines:
        if (seen := _REQUEST.search(line)) is not None and (client := _WHOSE.get(seen["schema"])) is not None:
            found[client][f"{seen['verb']} {_what(seen['uri'])}"] += 1
    return found


def _what(uri: str) -> str:
    """The path without what all have in common, and without the names of hollow nodes, which are many."""
    path = uri.partition("?")[0].removeprefix("/apis/").removeprefix("/api/v1/")
    return re.sub(r"/hollow-\d+", "/…", path)


@dataclass(frozen=True)
class Size:
    """Bytes: as JSON without spaces, and as the Python objects that a watch keeps of it."""

    json: int
    python: int


def size(objects: Iterable[Any]) -> Size:
    """Of all of them, each parsed by itself, as the events of a watch are: so they share no keys."""
    as_json = as_python = 0
    for one in objects:
        text = json.dumps(one, separators=(",", ":"), ensure_ascii=False)
        as_json += len(text.encode())
        as_python += _memory_of(json.loads(text), set())
    return Size(as_json, as_python)


def _memory_of(value: Any, seen: set[int]) -> int:
    """Each object once; what every Python has anyway (None, True, False) is free."""
    if value is None or isinstance(value, bool) or id(value) in seen:
        return 0
    seen.add(id(value))
    size_of = sys.getsizeof(value)
    if isinstance(value, dict):
        return size_of + sum(_memory_of(key, seen) + _memory_of(inner, seen) for key, inner in value.items())
    if isinstance(value, list):
        return size_of + sum(_memory_of(inner, seen) for inner in value)
    return size_of
