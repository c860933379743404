"""The controller that applies the ControlPlane's spec: it moves levels and changes arguments. (Another version is for
`control.upgrade`.)

Contract: a value is applied to a workload when it has changed since it was applied last, and nothing else is touched
there: edits by others stand. Levels move as `up` moves them: `decide.moves` decides, `act` acts; the node agents handle
the standbys. What is not applied, and why, is in `unapplied`, for the status.

Danger: retiring a workload is the one destructive act. It needs two witnesses for each standby (its node's agent and
its pod), and the spec is read again right before. The kubelet's needs none (`decide.moves`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from autarky.control.base.controller import ClusterController
from autarky.control.base.operator_view import View, current
from autarky.control.common.pods import is_ready, lacks_network
from autarky.control.drift.decide import applied
from autarky.control.drift.decide.owners import split_flags
from autarky.control.kubelet.decide import hosted_report
from autarky.control.levels import act as hosting
from autarky.control.levels.decide import arguments
from autarky.control.levels.decide import moves as levels
from autarky.control.rollout.operator.rollouts import Rollouts
from autarky.control.rollout.operator.workloads import TWO_SLOTS, control_nodes, pods_of, workload
from autarky.control.slots.decide.report import standby_serves
from autarky.control.status.decide import Unapplied
from autarky.model.components import COMPONENTS, ETCD, KUBELET, WITH_STANDBY, Component
from autarky.model.defaults import edition_in
from autarky.model.levels import HostedLevels
from autarky.ports import Clock, Kube, Object
from autarky.render.crds import API_VERSION, CONTROL_PLANE
from autarky.render.values import CONTROL_PLANE_ACTIVE

_KUBELET = COMPONENTS[KUBELET]
LOOK_SECONDS = 1.0
"""Between two reconciles while a level moves."""


@dataclass(slots=True)
class Spec(ClusterController):
    view: View
    kube: Kube
    clock: Clock
    rollouts: Rollouts
    name: ClassVar[str] = "spec"
    unapplied: dict[str, Unapplied] = field(default_factory=dict, init=False)
    _memory: dict[str, levels.Memory] = field(default_factory=dict, init=False)
    _without_copy: dict[str, str] = field(default_factory=dict, init=False)
    """Component → the uid of its hosted workload, once no retired copy was found beside it."""

    def begin_term(self) -> None:
        """Observations of an earlier term are stale."""
        self._memory.clear()
        self._without_copy.clear()

    async def reconcile(self) -> float | None:
        view, plane = self.view, self.view.control_plane
        if view.odd_plane is not None:
            self.tell(not_understood(view.odd_plane))
        if plane is None or not current([view.planes, view.nodes, view.pods, view.daemon_sets, view.deployments]):
            self._memory.clear()
            return None
        self.unapplied.clear()
        self._judge_other_arguments(plane)
        self._judge_defaults(plane)
        settled = await self._move_levels(plane)
        for component in TWO_SLOTS:
            await self._give_arguments(plane, component)
        return None if settled else LOOK_SECONDS

    def _note(self, subject: str, reason: str, sentence: str, *, refused: bool = False) -> None:
        self.unapplied[subject] = Unapplied(reason, sentence, refused)
        self.tell(sentence, subject)

    # --- what is not applied ---------------------------------------------------------------------------

    def _judge_other_arguments(self, plane: Object) -> None:
        """Arguments of what runs on hosts and not from these workloads."""
        record = (applied.record_of(plane) or {}).get("spec", {}).get("componentArguments") or {}
        wanted = plane["spec"].get("componentArguments") or {}
        ours = {*WITH_STANDBY, KUBELET, *([ETCD] if self.view.hosts_etcd(plane) else [])}
        for name in sorted((record.keys() | wanted.keys()) - ours):
            if record.get(name) != wanted.get(name):
                sentence = f"the arguments of {name} come from the cluster file: set them there and run `autarky up`"
                self._note(f"{name} arguments", "SetInTheFile", sentence, refused=True)

    def _judge_defaults(self, plane: Object) -> None:
        """Defaults are filled in when the file is read."""
        record, asked = applied.record_of(plane), edition_in(plane)
        if record is not None and edition_in(record) != asked:
            sentence = (
                f"the defaults of edition {asked} come from the cluster file: set them there and run `autarky up`"
            )
            self._note("defaults", "SetInTheFile", sentence, refused=True)

    # --- levels ----------------------------------------------------------------------------------------

    async def _move_levels(self, plane: Object) -> bool:
        """All are watched at the same time; they move one by one, in the order of `up`: the kubelet, which runs them
        all, goes before the others and comes after them. Whether all is done."""
        wanted = HostedLevels.parse(plane["spec"]["selfHosted"])
        order = (*TWO_SLOTS, _KUBELET) if wanted.kubelet else (_KUBELET, *TWO_SLOTS)
        decisions = [(component, await self._decide(component, wanted)) for component in order]
        for component, decision in decisions:
            match decision.step:
                case levels.Step.BRING_BACK:
                    if await self._bring_back(component):
                        return False
                case levels.Step.FINISH:
                    await hosting.bring_back(self.kube, component.name)
                    self.tell(f"{decision.sentence}: it is used up", f"{component.name} level")
                    return False
                case levels.Step.RETIRE:
                    await self._retire(component, plane, decision.sentence)
                    return False
                case levels.Step.WAIT:
                    self._note(component.name, "LevelMoves", f"{component.name}: {decision.sentence}")
                    return False
                case levels.Step.NOTHING:
                    pass
        return True

    async def _decide(self, component: Component, wanted: HostedLevels) -> levels.Decision:
        memory = self._memory.get(component.name, levels.Memory())
        seen = replace(self._seen(component, wanted), kept=await self._is_kept(component, wanted))
        decision = levels.decide(seen, memory, self.clock.monotonic())
        self._memory[component.name] = decision.memory
        return decision

    async def _is_kept(self, component: Component, wanted: HostedLevels) -> bool:
        """Whether a retired copy is left beside its hosted workload. Asked once for each workload: whoever brings one
        back creates it first."""
        live = workload(self.view, component)
        uid = None if live is None else live["metadata"]["uid"]
        if not wanted.hosts(component.level) or uid in (None, self._without_copy.get(component.name)):
            return False
        if await hosting.is_kept(self.kube, component.name):
            return True
        self._without_copy[component.name] = uid
        return False

    def _seen(self, component: Component, wanted: HostedLevels) -> levels.Seen:
        live = workload(self.view, component)
        ends = live is not None and "deletionTimestamp" in live["metadata"]
        return levels.Seen(
            hosted=wanted.hosts(component.level),
            workload=None if ends else live is not None,
            leaving=self._leaving(component),
            turn=self._is_turn_of(component, wanted),
            in_force=self._hosted_in_force() if component is _KUBELET else None,
            standbys={
                node["metadata"]["name"]: self._standby_serves(component, node, wanted.lowest)
                for node in self.view.nodes.items.values()
                if CONTROL_PLANE_ACTIVE in (node["metadata"].get("labels") or {})
            },
        )

    def _leaving(self, component: Component) -> int:
        """Of the kubelets those on control nodes that are Ready: no other node may hold up the levels."""
        pods = pods_of(self.view, component, "hosted")
        if component is not _KUBELET:
            return len(pods)
        there = self._ready_control_nodes()
        return sum(1 for pod in pods if pod["spec"].get("nodeName") in there)

    def _ready_control_nodes(self) -> dict[str, Object]:
        nodes = {name: self.view.nodes.items[None, name] for name in control_nodes(self.view)}
        return {name: node for name, node in nodes.items() if is_ready(node)}

    def _hosted_in_force(self) -> set[str]:
        """Of control nodes that are Ready; no other node may hold up the levels."""
        ready = self._ready_control_nodes()
        said = {name: hosted_report.read(node["metadata"]) for name, node in ready.items()}
        return {name for name, one in said.items() if one is not None and one.state.is_of_node}

    def _is_turn_of(self, component: Component, wanted: HostedLevels) -> bool:
        """Whether the components before it that are hosted each have a Ready pod."""
        before = TWO_SLOTS if component is _KUBELET else TWO_SLOTS[: TWO_SLOTS.index(component)]
        hosted = [one for one in before if wanted.hosts(one.level) and workload(self.view, one) is not None]
        return all(any(is_ready(pod) for pod in pods_of(self.view, one, "hosted")) for one in hosted)

    def _standby_serves(self, component: Component, node: Object, lowest: int) -> bool | None:
        """As the node's agent reports, and by a pod that its kubelet considers Ready."""
        name = node["metadata"]["name"]
        pods = [pod for pod in pods_of(self.view, component, "standby") if pod["spec"].get("nodeName") == name]
        if not any(is_ready(pod) and "deletionTimestamp" not in pod["metadata"] for pod in pods):
            return False
        answers = is_ready(node) or lacks_network(node)  # what is meant runs on the host's network
        return answers and standby_serves(node, component.name, lowest)

    async def _retire(self, component: Component, plane: Object, why: str) -> None:
        """The watched objects may be slightly stale: a request for the level that comes at this moment counts."""
        now = await self.kube.get(API_VERSION, plane["kind"], CONTROL_PLANE)
        if now is None or now["spec"]["selfHosted"] != plane["spec"]["selfHosted"]:
            return
        self._without_copy.pop(component.name, None)
        await hosting.retire(self.kube, component.name)
        self.tell(f"{why}: the hosted workload is retired", f"{component.name} level")
        self._note(component.name, "LevelMoves", f"{component.name}: its hosted pods are terminating")

    async def _bring_back(self, component: Component) -> bool:
        """Whether there was something to bring back."""
        if await hosting.bring_back(self.kube, component.name):
            self.tell("its level is hosted again: the workload is back, unchanged", f"{component.name} level")
            self._note(component.name, "LevelMoves", f"{component.name}: its hosted pods are starting")
            return True
        sentence = f"{component.name} should be hosted, but its workload is missing: run `autarky up` to apply it"
        self._note(component.name, "WorkloadMissing", sentence)
        return False

    # --- arguments -------------------------------------------------------------------------------------

    async def _give_arguments(self, plane: Object, component: Component) -> None:
        live = workload(self.view, component)
        if live is None or "deletionTimestamp" in live["metadata"]:
            return
        wanted = (plane["spec"].get("componentArguments") or {}).get(component.name) or {}
        subject = f"{component.name} arguments"
        if not (changes := arguments.changed(arguments.given_to(live), wanted)):
            self._judge_rolled_back(component, live, wanted)
            return
        if names := arguments.refused(wanted):
            flags = ", ".join(f"--{name}" for name in names)
            self._note(subject, "ArgumentRefused", f"{flags} of {component.name} may not be set", refused=True)
            return
        if (found := arguments.give(live, component.name, wanted)) is None:
            sentence = f"the command line of {component.name} cannot be parsed: write each flag as --name=value"
            self._note(subject, "CommandNotUnderstood", sentence, refused=True)
            return
        await self.kube.replace(found)
        self.tell(f"arguments applied: {', '.join(changes)}", subject)

    def _judge_rolled_back(self, component: Component, live: Object, wanted: Mapping[str, str]) -> None:
        """A rollback restores the template but not the record of the arguments, or they would be applied forever."""
        kept = self.rollouts.kept.get(component.name)
        failure = kept.record.failure(kept.record.current) if kept is not None else None
        if failure is not None and (gone := _not_there(live, component.name, wanted)):
            sentence = f"{component.name} was rolled back and runs without {', '.join(gone)}: {failure.sentence}"
            self._note(f"{component.name} arguments", "RolledBack", sentence, refused=True)


def not_understood(clause: str) -> str:
    """The message about a ControlPlane whose spec is invalid."""
    return f"nothing of the ControlPlane is applied: {clause}; fix it with `kubectl edit controlplane`"


def _not_there(live: Object, container: str, wanted: Mapping[str, str]) -> list[str]:
    """The flags of the spec that the command line lacks, as far as it can be parsed."""
    for found in live["spec"]["template"]["spec"].get("containers") or []:
        flags = split_flags(found.get("command") or []) if found["name"] == container else None
        if flags is not None:
            return [f"--{name}" for name, value in sorted(wanted.items()) if flags.get(f"--{name}") != value]
    return []
