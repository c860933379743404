"""Whose processor time it was: from the lines of `_timeline_sampler.py` to areas by component, and to those that used
most.

Between two looks a process is taken to have worked evenly: an area has steps. What a process used since its own start
counts where it is first seen, if it began after the look before; what it had used before the first look does not. What
the machine did and no process has (programs that lived between two looks, the last moments of others, interrupts) is
drawn as such, and never spread over those that were seen.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from _memory import PROGRAMS, Process, row

RUNTIME, AGENTS, COMMAND, BENCH = "containerd, shims, runc", "agents", "the autarky command", "this benchmark"
OTHERS, UNSEEN = "others", "between looks"
COMPONENTS = (
    *("kube-apiserver", "etcd", "kubelet", RUNTIME, "kube-controller-manager", "kube-scheduler", "kube-proxy"),
    *(AGENTS, "operator", "haproxy", COMMAND, BENCH, OTHERS, UNSEEN),
)
"""In the order in which they are stacked."""
MACHINE = "this machine"
"""What runs beside the test hosts."""
_RUNTIME = ("containerd", "runc")
_BENCH = ("_timeline_sampler", "timeline.py")


@dataclass(frozen=True)
class Seen:
    """A process by what it is. where: a test host of this cluster, MACHINE, or the group of another one. container: an
    id, or empty."""

    where: str
    container: str
    process: Process


@dataclass(frozen=True)
class Step:
    """From one look to the next, in monotonic seconds. used: processors by component, on average. stalled: the share of
    the time in which something waited for a processor, None where the kernel does not say."""

    begin: float
    end: float
    used: Mapping[str, float]
    stalled: float | None


@dataclass(frozen=True)
class User:
    """What has used processor time, in one or several processes. waited: seconds that its threads were ready to run and
    had no processor, as far as it was looked at; many threads wait longer than the clock runs."""

    where: str
    what: str
    seconds: float
    waited: float
    processes: int


@dataclass
class Usage:
    """steps: of all. users: those that used most first. by_host: seconds that each test host's group used, and those
    that its processes were seen to. stolen: seconds that a hypervisor took."""

    steps: list[Step] = field(default_factory=list)
    users: list[User] = field(default_factory=list)
    by_host: dict[str, tuple[float, float]] = field(default_factory=dict)
    stolen: float = 0.0


def read_looks(text: str) -> list[dict[str, Any]]:
    """A last line that was not written to its end is left out."""
    lines = text.split("\n")[:-1]
    return [json.loads(line) for line in lines]


def component(seen: Seen, hosts: Collection[str]) -> str:
    """hosts: those of the cluster."""
    process = seen.process
    if seen.where not in hosts:
        return _beside(process)
    if process.name.startswith(_RUNTIME):
        return RUNTIME
    where = row(process) or OTHERS
    if where.startswith("node agent"):
        return AGENTS
    return where if where in COMPONENTS else OTHERS


def _beside(process: Process) -> str:
    if process.name == "kubectl" or any(word in process.words for word in _BENCH):
        return BENCH
    return COMMAND if "-m autarky " in f"{process.words} " else OTHERS


def title(seen: Seen, pods: Mapping[str, str]) -> str:
    """pods: container → its pod and its own name. A process that is not in one is called by its program."""
    process = seen.process
    name = row(process) or process.name
    if name == OTHERS:
        name = process.name
    if seen.where == MACHINE and (side := _beside(process)) != OTHERS:
        name = side if process.name != "kubectl" else "kubectl, of this benchmark"
    pod = pods.get(seen.container, "")
    return f"{name} in {pod}" if pod else PROGRAMS.get(name, name)


def usage(looks: Sequence[Mapping[str, Any]], hosts: Mapping[str, str], pods: Mapping[str, str], begin: float) -> Usage:
    """hosts: group → name, of the cluster's test hosts. Looks before `begin` only say what had been used by then."""
    found = Usage()
    tally = _Tally(hosts, pods)
    if looks:
        tally.learn(looks[0])
    for look, following in pairwise(looks):
        counts = following["at"] > begin
        used = tally.step(look, following, counts=counts)
        if counts:
            found.steps.append(_step(look, following, used))
            found.stolen += following["stolen"] - look["stolen"]
    found.users = tally.users()
    found.by_host = tally.by_host()
    return found


def _step(look: Mapping[str, Any], following: Mapping[str, Any], used: Mapping[str, float]) -> Step:
    """used: seconds by component."""
    span = max(following["at"] - look["at"], 1e-3)
    work = following["busy"] - look["busy"]
    everything = {**used, UNSEEN: max(0.0, work - sum(used.values()))}
    stalled = None
    if look["stalled"] is not None and following["stalled"] is not None:
        stalled = min(1.0, (following["stalled"] - look["stalled"]) / span)
    return Step(look["at"], following["at"], {name: each / span for name, each in everything.items()}, stalled)


class _Tally:
    """What was seen so far, look by look."""

    def __init__(self, hosts: Mapping[str, str], pods: Mapping[str, str]) -> None:
        self._hosts, self._pods = hosts, pods
        self._seen: dict[str, Seen] = {}
        self._used: dict[str, float] = {}
        self._first_waited: dict[str, float] | None = None
        self._waited: dict[str, float] = {}
        self._seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._processes: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._by_host: dict[str, tuple[float, float]] = {}

    def learn(self, look: Mapping[str, Any]) -> None:
        """What its processes are, and what they have used by then."""
        for key, group, container, name, slot, words in look["seen"]:
            where = self._hosts.get(group, group or MACHINE)
            self._seen[key] = Seen(where, container, Process(None, name, slot, words))
        self._used.update(look["used"])
        waited = dict(look.get("waited", ()))
        if self._first_waited is None:
            self._first_waited = waited
        # Threads that end take their share with them.
        self._waited.update({key: max(each, self._waited.get(key, 0.0)) for key, each in waited.items()})

    def step(self, look: Mapping[str, Any], following: Mapping[str, Any], *, counts: bool) -> dict[str, float]:
        """Seconds by component. Learns what follows."""
        before = dict(self._used)
        self.learn(following)
        used: defaultdict[str, float] = defaultdict(float)
        seen_by_host: defaultdict[str, float] = defaultdict(float)
        for key, now in following["used"]:
            seconds, seen = now - before.get(key, 0.0), self._seen[key]
            if seconds <= 0 or not counts:
                continue
            used[component(seen, self._hosts.values())] += seconds
            seen_by_host[seen.where] += seconds
            user = (seen.where, title(seen, self._pods))
            self._seconds[user] += seconds
            self._processes[user].add(key)
        if counts:
            self._add_hosts(look["usage"], following["usage"], seen_by_host)
        return dict(used)

    def _add_hosts(self, look: Mapping[str, float], following: Mapping[str, float], seen: Mapping[str, float]) -> None:
        for group, name in self._hosts.items():
            now, before = following.get(group), look.get(group, 0.0)
            # A host that was cut and boots begins at nothing.
            grown = 0.0 if now is None else now - before if now >= before else now
            all_of_it, of_it = self._by_host.get(name, (0.0, 0.0))
            self._by_host[name] = (all_of_it + grown, of_it + seen.get(name, 0.0))

    def users(self) -> list[User]:
        first = self._first_waited or {}
        found = []
        for (where, what), seconds in self._seconds.items():
            keys = self._processes[where, what]
            waited = sum(max(0.0, self._waited.get(key, 0.0) - first.get(key, 0.0)) for key in keys)
            found.append(User(where, what, seconds, waited, len(keys)))
        return sorted(found, key=lambda user: (-user.seconds, user.where, user.what))

    def by_host(self) -> dict[str, tuple[float, float]]:
        return dict(self._by_host)


def report(found: Usage, most: int = 10) -> list[str]:
    """Lines: those that used most, the components, the hosts."""
    lines = [f"{'used':>8}  {'waited':>8}  {'processes':>9}  where and what"]
    for user in found.users[:most]:
        what = f"{user.where}: {user.what}"
        lines.append(f"{user.seconds:6.2f} s  {user.waited:6.1f} s  {user.processes:9}  {what}")
    lines += ["waited: its threads were ready to run and had no processor, all of them added up", ""]
    lines += [f"{seconds:6.2f} s  {name}" for name, seconds in by_component(found.steps).items()]
    for name, (everything, seen) in sorted(found.by_host.items()):
        lines.append(f"{everything:6.2f} s  used by host {name}, of which processes were seen to use {seen:.2f} s")
    if found.stolen:
        lines.append(f"{found.stolen:6.2f} s  taken by a hypervisor: other runs will differ")
    return lines


def by_component(steps: Sequence[Step]) -> dict[str, float]:
    """Seconds, in the order of COMPONENTS; none of what used nothing."""
    total = {name: sum(step.used.get(name, 0.0) * (step.end - step.begin) for step in steps) for name in COMPONENTS}
    return {name: seconds for name, seconds in total.items() if seconds > 0.005}
