"""What ran when, as bars and marks on one axis: seconds of the monotonic clock.

That clock is the kernel's, and test hosts share this machine's: no two clocks are compared. Journals have it
themselves. The runtime, the API and the command write the time of day, of the same kernel; `Clock` turns one into the
other. Times of the API have no fraction: such a mark is drawn where its second begins, and belongs up to a second
later.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from autarky.model.runtime import Container, ContainerStatus, Sandbox

STARTING, RUNNING, WAITING = "starting", "running", "waiting"
STARTING_ID, STARTED_ID = "7d4958e842da4a758f6c1cdc7b36dcc5", "39f53479d3a045ac8e11786248231fbf"
STOPPING_ID, STOPPED_ID = "de5b426a63be47a7b6ac3eaac82e2f6f", "9d1aaa27d60140bd96365438aad20286"
FAILED_ID, BOOTED_ID = "be02cf6855d2428ba40df7e9d022f03d", "b07a249cd024414a82dd00cd181378ff"
"""Of systemd's messages (sd-messages.h)."""
MESSAGE_IDS = (STARTING_ID, STARTED_ID, STOPPING_ID, STOPPED_ID, FAILED_ID, BOOTED_ID)
ALWAYS_SHOWN = ("containerd.service", "kubelet.service")
SHORTEST_UNIT = 0.3
SHORTEST_PHASE = 0.1
"""Seconds: what took less would be a lane of nothing."""
READY = ("Ready", "True")
IN_API, IS_SCHEDULED, IS_READY = "in the API", "scheduled", "Ready"
_BEHIND_POD = " / "


@dataclass(frozen=True)
class Bar:
    """end: None of what still ran when it was looked at."""

    begin: float
    end: float | None
    text: str
    kind: str = RUNNING


@dataclass(frozen=True)
class Mark:
    at: float
    text: str


@dataclass(frozen=True)
class Lane:
    """where: a test host, or what stands above them."""

    where: str
    name: str
    bars: tuple[Bar, ...] = ()
    marks: tuple[Mark, ...] = ()

    @property
    def begin(self) -> float:
        return min((*(bar.begin for bar in self.bars), *(mark.at for mark in self.marks)), default=float("inf"))


@dataclass(frozen=True)
class Clock:
    """ahead: seconds that the time of day is ahead of the monotonic clock."""

    ahead: float

    def monotonic(self, of_day: float) -> float:
        return of_day - self.ahead

    def parsed(self, text: str) -> float:
        """Of a time of the API (RFC 3339)."""
        return self.monotonic(datetime.fromisoformat(text).timestamp())


# --- systemd --------------------------------------------------------------------------------------


def unit_lanes(host: str, journal: str) -> list[Lane]:
    """journal: `journalctl -o json` of systemd's own messages with MESSAGE_IDS, of one boot. containerd, the kubelet,
    and services that took their time to start."""
    entries = [json.loads(line) for line in journal.splitlines() if line.startswith("{")]
    by_unit: dict[str, list[tuple[float, str]]] = {}
    booted = []
    for entry in entries:
        at = int(entry["__MONOTONIC_TIMESTAMP"]) / 1e6
        if entry["MESSAGE_ID"] == BOOTED_ID:
            booted.append(Mark(at, "systemd has booted"))
        elif str(unit := entry.get("UNIT", "")).endswith(".service"):
            by_unit.setdefault(unit, []).append((at, entry["MESSAGE_ID"]))
    lanes = [Lane(host, "boot", (), tuple(booted))] if booted else []
    for unit, changes in by_unit.items():
        bars = _unit_bars(unit, changes)
        slow = any(
            bar.kind == STARTING and bar.end is not None and bar.end - bar.begin >= SHORTEST_UNIT for bar in bars
        )
        if bars and (unit in ALWAYS_SHOWN or slow):
            lanes.append(Lane(host, unit.removesuffix(".service"), tuple(bars)))
    return lanes


def _unit_bars(unit: str, changes: Sequence[tuple[float, str]]) -> list[Bar]:
    """A unit that does not say when it is ready has no starting. One that has ended at once (oneshot) only that."""
    bars: list[Bar] = []
    began: tuple[float, str] | None = None

    def close(at: float) -> None:
        nonlocal began
        if began is not None:
            bars.append(Bar(began[0], at, f"{unit}: {began[1]}", began[1]))
        began = None

    for at, message in sorted(changes):
        close(at)
        if message == STARTING_ID:
            began = (at, STARTING)
        elif message == STARTED_ID:
            began = (at, RUNNING)
    if began is not None:
        bars.append(Bar(began[0], None, f"{unit}: {began[1]}", began[1]))
    return bars


# --- containers -----------------------------------------------------------------------------------


def container_lanes(
    host: str,
    clock: Clock,
    sandboxes: Sequence[Sandbox],
    containers: Sequence[tuple[Container, ContainerStatus]],
    since: float,
) -> list[Lane]:
    """A lane for each container of a pod, with all its runs that began after `since`: from its sandbox (its first run)
    or its own creation until it started, and from then until it ended."""
    made = {sandbox.id: sandbox.created for sandbox in sandboxes}
    bars: dict[str, list[Bar]] = {}
    for container, status in sorted(containers, key=lambda pair: pair[0].created):
        if clock.monotonic(container.created) < since:
            continue
        # Only the first container of a sandbox waits for it.
        created = min(container.created, made.pop(container.sandbox_id, container.created))
        name = pod_and_container(container)
        bars.setdefault(name, []).extend(_container_bars(clock, name, created, container.attempt, status))
    return [Lane(host, name, tuple(each)) for name, each in bars.items()]


def pod_and_container(container: Container) -> str:
    pod = container.pod_name or container.sandbox_id[:12]
    return pod if pod.startswith(container.name) else f"{pod}{_BEHIND_POD}{container.name}"


def _container_bars(clock: Clock, name: str, created: float, attempt: int, status: ContainerStatus) -> list[Bar]:
    run = f"{name}, run {attempt + 1}"
    begin = clock.monotonic(created)
    if status.started is None:
        # One that could not be started has an end all the same.
        end = None if status.finished is None else clock.monotonic(status.finished)
        return [Bar(begin, end, f"{run}: not started", STARTING)]
    started = clock.monotonic(status.started)
    end = None if status.finished is None else clock.monotonic(status.finished)
    code = "" if status.exit_code is None else f", exit code {status.exit_code}"
    return [Bar(begin, started, f"{run}: being made", STARTING), Bar(started, end, f"{run}{code}", RUNNING)]


# --- the API --------------------------------------------------------------------------------------


def pod_marks(pods: Iterable[Mapping[str, Any]], clock: Clock, since: float) -> dict[tuple[str, str], list[Mark]]:
    """(Node, pod) → when it was created, scheduled and Ready, as far as that was after `since`."""
    found: dict[tuple[str, str], list[Mark]] = {}
    for pod in pods:
        metadata, status = pod["metadata"], pod.get("status", {})
        times = [(IN_API, metadata.get("creationTimestamp"))]
        for condition in status.get("conditions") or ():
            word = {"PodScheduled": IS_SCHEDULED, "Ready": IS_READY}.get(condition["type"])
            if word and condition["status"] == "True":
                times.append((word, condition.get("lastTransitionTime")))
        marks = [Mark(clock.parsed(time), word) for word, time in times if time]
        key = (pod.get("spec", {}).get("nodeName", ""), metadata["name"])
        found[key] = [mark for mark in marks if mark.at >= since - 1]
    return found


def with_marks(lanes: Sequence[Lane], marks: Mapping[tuple[str, str], Sequence[Mark]]) -> list[Lane]:
    """Those of a pod on the lane of its first container that has not ended: not on that of an init container."""
    by_pod: dict[tuple[str, str], list[Lane]] = {}
    for lane in lanes:
        by_pod.setdefault(_pod_of(lane), []).append(lane)

    def marked(lane: Lane) -> Lane:
        own = by_pod[_pod_of(lane)]
        chosen = next((each for each in own if each.bars and each.bars[-1].end is None), own[-1])
        return replace(lane, marks=(*lane.marks, *marks.get(_pod_of(lane), ()))) if lane is chosen else lane

    return [marked(lane) for lane in lanes]


def _pod_of(lane: Lane) -> tuple[str, str]:
    return lane.where, lane.name.partition(_BEHIND_POD)[0]


def node_lanes(nodes: Iterable[Mapping[str, Any]], clock: Clock, since: float) -> list[Lane]:
    """When each Node became Ready, if that was after `since`."""
    lanes = []
    for node in nodes:
        name = node["metadata"]["name"]
        conditions = node.get("status", {}).get("conditions") or ()
        times = [(IN_API, node["metadata"].get("creationTimestamp"))]
        times += [(IS_READY, c.get("lastTransitionTime")) for c in conditions if (c["type"], c["status"]) == READY]
        marks = [Mark(clock.parsed(time), word) for word, time in times if time]
        if shown := tuple(mark for mark in marks if mark.at >= since - 1):
            lanes.append(Lane(name, "Node", (), shown))
    return lanes


def lease_lanes(where: str, leases: Iterable[Mapping[str, Any]], clock: Clock, since: float) -> list[Lane]:
    """Of leases that were acquired after `since`: by their last holder. Who held them before is not in the API."""
    lanes = []
    for lease in leases:
        spec = lease.get("spec") or {}
        if not spec.get("acquireTime") or not spec.get("holderIdentity"):
            continue
        at = clock.parsed(spec["acquireTime"])
        if at >= since:
            text = f"{spec['holderIdentity']}, transition {spec.get('leaseTransitions', 0)}"
            lanes.append(Lane(where, f"lease {lease['metadata']['name']}", (Bar(at, None, text),)))
    return sorted(lanes, key=lambda lane: lane.begin)


# --- the command ----------------------------------------------------------------------------------


def phase_lanes(where: str, events: str, clock: Clock) -> list[Lane]:
    """events: what `up -o json` has written. A lane for each phase that took its time, and below it one for each thing
    that it has said it waits for."""
    lanes: list[Lane] = []
    began: dict[str, float] = {}
    waits: dict[str, _Waits] = {}
    for line in events.splitlines():
        if not line.startswith("{"):
            continue
        event = json.loads(line)
        kind, phase, at = event["kind"], event["phase"], clock.monotonic(event["time"])
        if kind == "phase-started":
            began[phase] = at
            waits[phase] = _Waits(phase)
        elif kind == "waiting" and phase in waits:
            waits[phase].heard(event["what"], at, ended=not event["last"])
        elif kind == "phase-ended" and phase in began and at - began[phase] >= SHORTEST_PHASE:
            lanes.append(Lane(where, phase, (Bar(began[phase], at, f"{event['title']}: {event['outcome']}"),)))
            lanes += waits[phase].lanes(where, at)
    return lanes


class _Waits:
    """Of one phase. A wait is over with an event that has seen nothing last, or with its phase."""

    def __init__(self, phase: str) -> None:
        self._phase = phase
        self._open: dict[str, float] = {}
        self._bars: dict[str, list[Bar]] = {}

    def heard(self, what: str, at: float, *, ended: bool) -> None:
        begin = self._open.setdefault(what, at)
        if ended:
            del self._open[what]
            self._bars.setdefault(what, []).append(Bar(begin, at, f"{self._phase} waits until {what}", WAITING))

    def lanes(self, where: str, phase_end: float) -> list[Lane]:
        for what in list(self._open):
            self.heard(what, phase_end, ended=True)
        return [Lane(where, f"… {what}", tuple(bars)) for what, bars in self._bars.items()]


def in_order(lanes: Iterable[Lane], first: Sequence[str]) -> list[Lane]:
    """By place, those of `first` first; at each by when they began."""
    places = {name: number for number, name in enumerate(first)}
    return sorted(lanes, key=lambda lane: (places.get(lane.where, len(places)), lane.where, lane.begin))
