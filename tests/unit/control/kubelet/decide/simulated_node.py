"""A node as it really is: its disk, its kubelet, and the script that switches that. It can be cut between any two acts.

Contract: the files are those of the script's contract (`control.kubelet.manifests.files`), and the script goes on from
them alone. What an agent knows is `OnDisk`; the rest is the machine's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from autarky.control.kubelet.decide import order, own, report
from autarky.control.kubelet.decide.observed import (
    Memory,
    OnDisk,
    Other,
    Outcome,
    Phase,
    Result,
    Trial,
)
from autarky.control.kubelet.decide.order import Order
from autarky.control.kubelet.decide.proof import Verdict
from autarky.control.kubelet.decide.report import Report
from autarky.model.versions import Version
from autarky.render.values import CONTROL_PLANE_ACTIVE

Object = dict[str, Any]
V36, V36_5, V37 = Version(1, 36, 4), Version(1, 36, 5), Version(1, 37, 1)
VERSIONS = (V36, V36_5, V37)
LIMIT, WAIT_SECONDS, MOST_SECONDS, ASK_SECONDS = 90.0, 10.0, 600.0, 60.0


@dataclass
class Machine:
    """broken: the versions that never get healthy on it; harmful: those that kill its pods. disk: in the agent's words;
    asked_at, asked_boot: of the ask; until, ceiling: of the trial, looked_at: when the script did so last. verdict: the
    last one, of which order and when. results: order → its result; begun: the orders that the script has begun with."""

    name: str
    control: bool
    node: Object
    disk: OnDisk
    made_of: dict[str, order.Target]
    on: bool = True
    boot: int = 1
    runs: Version = V36
    broken: set[Version] = field(default_factory=set)
    harmful: set[Version] = field(default_factory=set)
    others: frozenset[Other] | None = frozenset()
    lies: Callable[[Object], Report | None] | None = None
    lied: bool = False
    staged: set[str] = field(default_factory=set)
    full: bool = False
    pods: int = 2
    memory: Memory = field(default_factory=Memory)
    asked_at: float = 0.0
    asked_boot: int = 0
    trial_of: str = ""
    former: str = ""
    until: float = 0.0
    ceiling: float = 0.0
    looked_at: float = 0.0
    verdict: tuple[str, Verdict, float] | None = None
    harmed: int = 0
    results: dict[str, Outcome] = field(default_factory=dict)
    begun: list[str] = field(default_factory=list)
    ordered: dict[str, Order] = field(default_factory=dict)

    @property
    def sandboxes(self) -> dict[str, str]:
        """Those that are ready → the pod."""
        return {f"s1-{self.harmed}": "pod-1", f"s2-{self.harmed}": "pod-2"}

    @property
    def works(self) -> bool:
        return self.on and self.runs not in self.broken

    @property
    def annotations(self) -> dict[str, str]:
        found: dict[str, str] = self.node["metadata"]["annotations"]
        return found

    @property
    def order(self) -> Order | None:
        return _order(self.annotations.get(order.ANNOTATION))

    @property
    def report(self) -> Report | None:
        return _report(self.annotations.get(report.ANNOTATION))

    @property
    def is_under_way(self) -> bool:
        """In truth: its last order has not ended, or its script works."""
        found, last = self.order, self.disk.last
        ordered = found is not None and not own.is_over(found, last)
        works = {self.disk.ask, "" if self.disk.trial is None else self.disk.trial.order} - {"", *self.results}
        return ordered or bool(works)

    def restart(self) -> None:
        """With what is in force."""
        self.runs = self.made_of[self.disk.current].version
        self.harmed += self.runs in self.harmful

    def switch(self, generation: str) -> None:
        target = self.made_of[generation]
        self.disk = replace(self.disk, current=generation, target=target.digest, version=target.version)

    def script(self, now: float) -> None:
        """One act of its script, or of what starts it again."""
        if not self.on:
            return
        trial, ask, result = self.disk.trial, self.disk.ask, self.disk.result
        if result is not None and result.order in (ask, "" if trial is None else trial.order):
            self.disk = replace(self.disk, trial=None, ask="" if trial is None else ask)
        elif trial is not None:
            self._go_on(trial, now)
            self.looked_at = now
        elif ask and (self.asked_boot != self.boot or now - self.asked_at > ASK_SECONDS):
            self.disk = replace(self.disk, ask="")
        elif ask:
            self.begun.append(ask)
            self.former = self.disk.current
            self.until, self.ceiling = now + LIMIT, now + MOST_SECONDS
            self.disk = replace(self.disk, trial=Trial(ask, Phase.FORTH))
            self.trial_of = f"gen-{self.ordered[ask].target.digest}"

    def _go_on(self, trial: Trial, now: float) -> None:
        verdict = None if self.verdict is None or self.verdict[0] != trial.order else self.verdict
        match trial.phase:
            case Phase.FORTH if self.disk.current != self.trial_of:
                self.switch(self.trial_of)
            case Phase.FORTH:
                self.restart()
                self.disk = replace(self.disk, trial=Trial(trial.order, Phase.PROVING))
            case Phase.PROVING if verdict is not None and verdict[1] is Verdict.GOOD:
                self._end(trial.order, Outcome.GOOD)
            case Phase.PROVING if verdict is not None and verdict[1] is Verdict.WAIT and self._stands_still(now):
                self.until += now - self.looked_at
            case Phase.PROVING if now >= self.until:
                self.disk = replace(self.disk, trial=Trial(trial.order, Phase.BACK))
            case Phase.BACK if self.disk.current != self.former:
                self.switch(self.former)
            case Phase.BACK:
                self.restart()
                self._end(trial.order, Outcome.BACK if self.works else Outcome.FAILED)

    def _stands_still(self, now: float) -> bool:
        return self.verdict is not None and now - self.verdict[2] < WAIT_SECONDS and now < self.ceiling

    def _end(self, name: str, outcome: Outcome) -> None:
        self.results[name] = outcome
        self.disk = replace(self.disk, result=Result(name, outcome, str(self.boot), "why"))

    def cut(self) -> None:
        self.on, self.memory, self.verdict = False, Memory(), None

    def start(self) -> None:
        """What was not proven is not started."""
        if self.on:
            return
        self.on, self.boot = True, self.boot + 1
        trial, result = self.disk.trial, self.disk.result
        if trial is not None and (result is None or result.order != trial.order):
            self.switch(self.former)
            self._end(trial.order, Outcome.BACK)
        self.disk = replace(self.disk, trial=None, ask="")
        self.restart()


def machine(name: str, *, control: bool, version: Version = V36) -> Machine:
    """As `up` leaves it, its kubelet of the version that runs."""
    target = order.Target(version, base=f"base-{name}")
    labels = {"number": name[1:], **({CONTROL_PLANE_ACTIVE: ""} if control else {})}
    node: Object = {
        "metadata": {"name": name, "labels": labels, "annotations": {}},
        "spec": {},
        "status": {
            "nodeInfo": {"kubeletVersion": str(version)},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    generation = f"gen-{target.digest}"
    disk = OnDisk(target.base, generation, target.digest, version)
    return Machine(name, control, node, disk, {generation: target}, runs=version)


@lru_cache(maxsize=1024)
def _order(value: str | None) -> Order | None:
    return order.read({"annotations": {order.ANNOTATION: value}})


@lru_cache(maxsize=1024)
def _report(value: str | None) -> Report | None:
    return report.read({"annotations": {report.ANNOTATION: value}})


def is_ready(node: Object) -> bool:
    return bool(node["status"]["conditions"][0]["status"] == "True")
