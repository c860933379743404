"""Nodes whose kubelets are changed by their agents and scripts, and the operator that orders it; all may be cut.

Contract: agents decide by `own`, the operator by `nodes`, `turns` and `down`; what is here is the world between them.
The operator sees the Nodes as they were when it looked last. Whatever is done is done in single acts, and an actor that
is killed forgets all but what is on the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from autarky.control.kubelet.decide import down, nodes, order, own, pools, proof, report, turns
from autarky.control.kubelet.decide.observed import (
    Decision,
    Live,
    Memory,
    Pods,
    Seen,
    Staged,
    Step,
)
from autarky.control.kubelet.decide.order import CORDONED
from autarky.control.kubelet.decide.report import State
from autarky.control.upgrade.decide import absent, reported
from autarky.control.upgrade.decide.absent import Lacking
from autarky.model.versions import Version
from unit.control.kubelet.decide.simulated_node import V36, Machine, Object, is_ready, machine


class Killed(Exception):
    """Whoever acts ends here."""


@dataclass
class Acts:
    """So many more acts, and then it is killed; None: it is not."""

    left: int | None = None

    def act(self) -> None:
        if self.left is not None:
            if self.left == 0:
                raise Killed
            self.left -= 1


@dataclass
class World:
    """plane: the ControlPlane. servers: the minor that its API servers really have. api: whether it answers. asked: how
    often a person has asked again. view, plane_view: what the operator has seen last. passed: workers that the control
    plane has gone down without. orders: each order ever written → node and request."""

    plane: Object
    machines: dict[str, Machine] = field(default_factory=dict)
    servers: Version = V36
    api: bool = True
    now: float = 0.0
    asked: int = 0
    at_work: str = ""
    silent: set[str] = field(default_factory=set)
    view: dict[str, Object] = field(default_factory=dict)
    plane_view: Object = field(default_factory=dict)
    memory: turns.Memory = field(default_factory=turns.Memory)
    not_ready: absent.Memory = field(default_factory=absent.Memory)
    lacking: Lacking | None = None
    passed: set[str] = field(default_factory=set)
    last: turns.Decision | None = None
    watch: Callable[[World, turns.Situation, turns.Decision], None] | None = None

    # --- the operator ---

    def look(self) -> None:
        if self.api:
            self.view = {name: _copy(one.node) for name, one in self.machines.items()}
            self.plane_view = _copy(self.plane)

    def operator_restarts(self) -> None:
        self.memory, self.not_ready, self.lacking = turns.Memory(), absent.Memory(), None
        self.look()

    def situation(self) -> turns.Situation | None:
        plane = self.plane_view
        lowest = reported.lowest_version(plane) if plane else None
        if lowest is None:
            return None
        ready = {name: is_ready(node) for name, node in self.view.items()}
        self.not_ready = self.not_ready.with_nodes(ready, self.now)
        around = nodes.Around(
            plane=plane,
            pools=pools.read(plane["spec"].get("pools")),
            away=self.not_ready.away(self.now),
            serving={name for name, one in self.machines.items() if one.control and one.on} - self.silent,
        )
        return turns.Situation(
            nodes=nodes.found(self.view.values(), around).nodes,
            lowest=lowest,
            image=lambda version: f"autarky.dev/kubelet:{version}",
            paused=plane["spec"].get("paused") is True,
            asked=str(plane["metadata"].get("asked", "")),
            moves=bool(reported.noted_versions(plane)),
            busy=self.at_work,
        )

    def operate(self, acts: int | None = None) -> None:
        """One pass, by what was seen last."""
        if not self.api or (seen := self.situation()) is None:
            return
        decision = self.last = turns.decide(seen, self.memory, self.now)
        if self.watch is not None:
            self.watch(self, seen, decision)
        self.memory = decision.memory
        left = Acts(acts)
        try:
            self._write(decision, left)
            self._move_the_control_plane(seen, decision, left)
        except Killed:
            self.operator_restarts()

    def _write(self, decision: turns.Decision, left: Acts) -> None:
        for write in decision.writes:
            left.act()
            one = self.machines[write.node]
            if self.view[write.node]["spec"] != one.node["spec"]:  # the write is refused: it has not seen that
                continue
            one.annotations[order.ANNOTATION] = order.text(write.order)
            one.ordered[write.order.id] = write.order
            if write.cordon:
                one.annotations[CORDONED] = write.order.id
                one.node["spec"]["unschedulable"] = True
        for name in decision.uncordon:
            left.act()
            node = self.machines[name]
            if self.view[name]["metadata"]["annotations"].get(CORDONED) == node.annotations.pop(CORDONED, None):
                node.node["spec"].pop("unschedulable", None)

    def _move_the_control_plane(self, seen: turns.Situation, decision: turns.Decision, left: Acts) -> None:
        """As the plan for the control plane does: noted first, up at once, down when the kubelets are."""
        spec, status = self.plane["spec"], self.plane["status"]
        if self.plane_view != self.plane or spec.get("paused") or not status:
            return
        wanted, complete = spec["version"], status["version"]
        noted = set(status.get("upgrade", {}).get("versions", []))
        if wanted == complete and not noted:
            return
        left.act()
        if wanted not in noted:
            status["upgrade"] = {"versions": sorted({wanted, *noted})}
            return
        target = Version.parse(wanted)
        if target.minor < self.servers.minor:
            control = {name for name, one in self.machines.items() if one.control}
            found = down.decide(
                decision,
                control,
                self.not_ready.away(self.now),
                self.lacking,
                self.now,
                minor=f"{target.major}.{target.minor}",
            )
            self.lacking = found.memory
            if found.waits:
                return
            self.passed |= set(found.passed)
        self.servers = target
        status["version"] = wanted
        status.pop("upgrade", None)

    # --- the nodes ---

    def script(self, name: str) -> None:
        """One act of it, or of what starts it again."""
        self.machines[name].script(self.now)

    def cut(self, name: str) -> None:
        self.machines[name].cut()

    def start(self, name: str) -> None:
        self.machines[name].start()

    def agent(self, name: str, acts: int | None = None) -> Decision | None:
        """One pass of its agent."""
        one, left = self.machines[name], Acts(acts)
        if not one.on:
            return None
        if one.lies is not None:
            if self.api and (lie := one.lies(one.node)) is not None:
                one.annotations[report.ANNOTATION] = report.text(lie)
                one.lied = True
            return None
        seen = self.seen_by(one)
        decision = own.decide(seen, one.memory, self.now)
        if decision.step is Step.LOOK and self.api:
            live = self._live(one)
            decision = own.decide(replace(seen, live=live), decision.memory, self.now)
        one.memory = decision.memory
        try:
            self._carry_out(one, decision, left)
        except Killed:
            one.memory = Memory()
        return decision

    def _live(self, one: Machine) -> Live:
        said = one.report
        switches = said is not None and said.state is State.SWITCHING
        name = "" if one.order is None else one.order.id
        return Live(name, said.order if said is not None and switches else "", _copy(self.plane), self._before(one))

    def seen_by(self, one: Machine) -> Seen:
        found = one.order
        generation = "" if found is None else f"gen-{found.target.digest}"
        trial = one.disk.trial
        return Seen(
            order=found,
            disk=one.disk,
            boot=str(one.boot),
            others=one.others,
            runs=reported.parsed(one.node["status"]["nodeInfo"]["kubeletVersion"]),
            unschedulable=one.node["spec"].get("unschedulable") is True,
            staged=Staged(generation if generation in one.staged else "", free=0 if one.full else 2**40),
            pods=Pods(frozenset(f"p{number}" for number in range(one.pods))),
            proof=None if trial is None else self._proof(one),
        )

    def _before(self, one: Machine) -> proof.Before:
        return proof.Before(is_ready(one.node), one.sandboxes)

    def _proof(self, one: Machine) -> proof.Seen:
        sandboxes, living = frozenset(one.sandboxes), frozenset({"pod-1", "pod-2"})
        version = reported.parsed(one.node["status"]["nodeInfo"]["kubeletVersion"])
        ready = is_ready(one.node)
        return proof.Seen(self.api, one.works, one.works, ready, version, sandboxes, living)

    def _carry_out(self, one: Machine, decision: Decision, left: Acts) -> None:
        if decision.final is not None:
            left.act()
            one.disk = replace(one.disk, last=decision.final)
        match decision.step:
            case Step.STAGE if one.order is not None:
                left.act()
                generation = f"gen-{one.order.target.digest}"
                one.made_of[generation] = one.order.target
                one.staged.add(generation)
            case Step.DRAIN:
                left.act()
                one.pods = max(0, one.pods - 1)
            case Step.ASK if decision.asked is not None:
                assert self.api, "the API has just answered"
                assert not one.disk.ask
                assert one.disk.trial is None, "one at a time"
                left.act()
                one.disk = replace(one.disk, asked=decision.asked)
                left.act()
                one.disk = replace(one.disk, ask=decision.asked.order)
                lowest = reported.lowest_version(self.plane)
                assert lowest is not None
                assert decision.asked.version.minor <= lowest.minor, "rule 4"
                one.asked_at, one.asked_boot = self.now, one.boot
            case Step.PROVE if decision.verdict is not None and one.disk.trial is not None:
                left.act()
                one.verdict = one.disk.trial.order, decision.verdict, self.now
        if decision.report is not None and self.api:
            left.act()
            one.annotations[report.ANNOTATION] = report.text(decision.report)
            one.lied = False

    def pass_time(self, seconds: float) -> None:
        """What works shows itself; what does not is not Ready."""
        self.now += seconds
        for one in self.machines.values():
            if self.api:
                _set_ready(one.node, ready=one.works)
                if one.works and one.lies is None:
                    one.node["status"]["nodeInfo"]["kubeletVersion"] = str(one.runs)

    def go_on(self, rounds: int, looks_every: int = 1) -> None:
        """looks_every: so many rounds the operator sees anything new."""
        for number in range(rounds):
            self.pass_time(4.0)
            for name in self.machines:
                self.agent(name)
                self.script(name)
            if number % looks_every == 0:
                self.look()
            self.operate()


def _copy(obj: Object) -> Object:
    """What the world changes in an object."""
    return {
        key: {name: dict(part) if isinstance(part, dict) else part for name, part in value.items()}
        for key, value in obj.items()
    }


def _set_ready(node: Object, *, ready: bool) -> None:
    node["status"]["conditions"] = [{"type": "Ready", "status": "True" if ready else "False"}]


def world(control: int = 1, workers: int = 3, *, version: Version = V36, **spec: Any) -> World:
    plane: Object = {
        "metadata": {"name": "cluster"},
        "spec": {"version": str(version), "kubelets": {"follow": True}, **spec},
        "status": {"version": str(version)},
    }
    found = World(plane, servers=version)
    for number in range(1, control + 1):
        found.machines[f"c{number}"] = machine(f"c{number}", control=True, version=version)
    for number in range(1, workers + 1):
        found.machines[f"w{number}"] = machine(f"w{number}", control=False, version=version)
    found.look()
    return found
