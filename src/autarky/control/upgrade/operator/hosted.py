"""What is seen of the hosted components, for the decision which step of an upgrade is next: `decide.steps`.

Contract: a component is in place when its revision was found good, and every node has it, but for those that the
rollout goes on without (`decide.absent`): else a machine that is off, or a worker that lies, would hold up every
upgrade, and every way back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from autarky.control.base.operator_view import View
from autarky.control.common import emulation
from autarky.control.common.pods import has_ended, is_ready, node_of
from autarky.control.common.shapes import image_of, mapping, node_is_ready, within
from autarky.control.common.skew import image_version, minor_of
from autarky.control.control_nodes.decide import recorded
from autarky.control.control_nodes.operator import record
from autarky.control.rollout.decide.good_revision import revision_of
from autarky.control.rollout.decide.verdict import Verdict
from autarky.control.rollout.operator.rollouts import NOT_JUDGED, Rollouts
from autarky.control.rollout.operator.workloads import controllers_name, is_of, selects, workload
from autarky.control.slots.decide import report as slots
from autarky.control.upgrade.decide import absent, path, steps
from autarky.control.upgrade.decide.checks_of_nodes import is_control_node
from autarky.control.upgrade.decide.reported import parsed
from autarky.control.upgrade.decide.templates import with_step
from autarky.model.components import API_SERVER, COMPONENTS, WITH_STANDBY
from autarky.model.versions import Version
from autarky.ports import Clock, Object

NAMED = 10
"""Nodes that a status names."""


@dataclass(slots=True)
class Hosted:
    view: View
    clock: Clock
    rollouts: Rollouts
    _absent: absent.Memory = field(default_factory=absent.Memory, init=False)

    def forget(self) -> None:
        """This operator has not watched before: nobody counts as absent yet."""
        self._absent = absent.Memory()

    def parts(self, wanted: Version, known: frozenset[Version], *, emulated: str, minor: str) -> list[steps.Part]:
        """known: the versions that the plan may replace. emulated: what it has had components emulate. minor: what a
        soak emulates."""
        now, nodes = self.clock.monotonic(), self.view.nodes.items.values()
        ready = {node["metadata"]["name"]: node_is_ready(node) is True for node in nodes}
        self._absent = self._absent.with_nodes(ready, now)
        # Up a minor, whoever comes back with a standby of before would be too old for level 3 (rule 11).
        all_may_be_away = all(minor_of(wanted) <= minor_of(one) for one in known)
        away = self._absent.away(now) if all_may_be_away else frozenset()
        # Down a minor its kubelet would be too new (rule 4), whoever has forgotten it.
        is_patch = all(minor_of(wanted) == minor_of(one) for one in known)
        lost = frozenset[str]() if is_patch else forgotten_control_nodes(self.view)
        parts = [self._part(name, wanted, away, emulated=emulated, minor=minor) for name in steps.ORDER]
        return [replace(part, lost=lost) if part.name in WITH_STANDBY else part for part in parts]

    def _part(self, name: str, wanted: Version, away: frozenset[str], *, emulated: str, minor: str) -> steps.Part:
        live = workload(self.view, COMPONENTS[name])
        assert live is not None  # noqa: S101 # whoever asks has looked
        template = live["spec"]["template"]
        kept = self.rollouts.kept.get(name)
        flags = emulation.given(template, name)
        ours = has_flag_of(template, name, emulated)
        emulates, foreign = (emulated, "") if ours else ("", ", ".join(flags))

        def failed(target: str) -> str:
            found = None if kept is None else kept.record.failure(_stepped(template, name, wanted, target, emulated))
            # What broke the skew is judged against the versions that run then.
            return "" if found is None or found.by_skew else found.sentence

        good = kept is not None and kept.record.good == revision_of(template)
        without = self._without(name, live, away) if good else None
        return steps.Part(
            name,
            image_version(image_of(template, name)),
            in_place=without is not None,
            standbys={node: version for node, version in standbys(self.view, name).items() if node not in away},
            failed=failed(""),
            emulates=emulates,
            standbys_emulate=_standbys_emulate(self.view, name, emulated),
            failed_emulating=failed(minor) if name in emulation.EMULATING else "",
            foreign=foreign,
            without=without or frozenset(),
            rolled_out=_is_rolled_out(live) and self.rollouts.verdicts.get(name, NOT_JUDGED)[0] is Verdict.WAIT,
        )

    async def try_again(self, wanted: Version, *, emulated: str, minor: str) -> None:
        """Forget of each component that the revisions of a new plan were rolled back before it. The cause may be gone,
        and within the plan nothing is tried twice."""
        for name in steps.ORDER:
            live = workload(self.view, COMPONENTS[name])
            if live is not None:
                template = live["spec"]["template"]
                targets = {"", minor} if name in emulation.EMULATING else {""}
                revisions = {_stepped(template, name, wanted, target, emulated) for target in targets}
                await self.rollouts.try_again(COMPONENTS[name], revisions)

    def waits_for(self, name: str) -> tuple[tuple[str, ...], float | None]:
        """(The nodes on which the component is not of the wanted template and Ready yet, the first of them; in how many
        seconds those that have begun are decided)."""
        live = workload(self.view, COMPONENTS[name])
        revision = None if live is None else controllers_name(self.view, COMPONENTS[name], live)
        if live is None or revision is None:
            return (), None
        if live["kind"] == "DaemonSet":
            lacking = set(_lacking(self.view, live, revision))
        else:
            pods = [pod for pod in self.view.pods.items.values() if is_of(pod, live) and _stays(pod)]
            lacking = {str(node_of(pod)) for pod in pods if not _is_new(pod, revision) and node_of(pod)}
        return tuple(sorted(lacking)[:NAMED]), self.rollouts.left.get(name)

    def _without(self, name: str, live: Object, away: frozenset[str]) -> frozenset[str] | None:
        """The nodes that the rollout has gone on without; None while it goes on."""
        rolled_out, now = _is_rolled_out(live), self.clock.monotonic()
        revision = controllers_name(self.view, COMPONENTS[name], live) if live["kind"] == "DaemonSet" else None
        if revision is None:
            return frozenset() if rolled_out else None
        lacking = {} if rolled_out else _lacking(self.view, live, revision)
        self._absent = self._absent.with_lacking(name, revision, frozenset(lacking), now)
        if not lacking:
            return frozenset() if rolled_out else None
        workers = frozenset(node for node, trusted in lacking.items() if not trusted)
        excused = away | (workers & self._absent.away(now)) | self._absent.lagging(name, workers, now)
        return frozenset(lacking) if lacking.keys() <= excused else None


def _stepped(template: Object, component: str, wanted: Version, target: str, emulated: str) -> str:
    """The revision that the step to that version makes of the template. emulated: what the plan has had it do."""
    flagged = has_flag_of(template, component, emulated)
    return revision_of(with_step(template, component, wanted, target, flagged=flagged))


def has_flag_of(template: Object, component: str, emulated: str) -> bool:
    """Whether what it emulates is the plan's, and may be taken away."""
    flags = emulation.given(template, component)
    return bool(emulated and flags) and all(emulation.means(one, emulated) for one in flags)


def served(view: View) -> Version | None:
    """That the hosted API servers are to have; None where there are none, or their image's tag is no version."""
    return _tags(view).get(API_SERVER)


def versions_of(view: View, plane: Object) -> tuple[Version | None, frozenset[Version]]:
    """(What the control plane has had completely last, what was wanted since), for where nobody has noted it: while
    another component is behind the hosted API servers, they are on their way between two. (What is ahead of them
    somebody has set by hand.) (None, none) where there are none of a version, and where they emulate something that is
    not among the arguments in the ControlPlane: whether that is a plan's own, nobody knows then."""
    tags = _tags(view)
    has, live = tags.get(API_SERVER), workload(view, COMPONENTS[API_SERVER])
    if has is None or live is None:
        return None, frozenset()
    asked = within(plane, "spec", "componentArguments", API_SERVER)
    if emulation.given(live["spec"]["template"], API_SERVER) and emulation.FLAG not in mapping(asked):
        return None, frozenset()
    lowest = min(version for version in tags.values() if version is not None)
    return lowest, frozenset({has} - {lowest})


def _tags(view: View) -> dict[str, Version | None]:
    """Hosted component → the version of its template's image."""
    live = {name: workload(view, COMPONENTS[name]) for name in steps.ORDER}
    return {
        name: image_version(image_of(one["spec"]["template"], name)) for name, one in live.items() if one is not None
    }


def kubelets(view: View, *, only_of_control_nodes: bool) -> dict[str, Version | None]:
    """Node → the version that its kubelet reports. What a worker says may not stop a plan in the middle."""
    return {
        node["metadata"]["name"]: path.kubelet_of(node)
        for node in view.nodes.items.values()
        if is_control_node(node) or not only_of_control_nodes
    }


def standbys(view: View, component: str) -> dict[str, Version | None]:
    """Control node → the version of its standby, as its agent reports it."""
    if component not in WITH_STANDBY:
        return {}
    return {
        node["metadata"]["name"]: parsed(slots.read(node).get("slots", {}).get(component, {}).get("version"))
        for node in view.nodes.items.values()
        if is_control_node(node)
    }


def forgotten_control_nodes(view: View) -> frozenset[str]:
    """Machines that may be off, and come back as they were, whose Nodes somebody has deleted: they are in the record of
    control nodes, which only `autarky node remove` takes them from, or have a member of etcd."""
    known = recorded.control_nodes(record.records(view.control_nodes), view.etcd_members.items.values())
    return known - {name for _, name in view.nodes.items}


def _standbys_emulate(view: View, component: str, emulated: str) -> dict[str, str]:
    """Control node → what its standby emulates, where that is the plan's."""
    if not emulated:
        return {}
    said = {
        node["metadata"]["name"]: slots.read(node).get("slots", {}).get(component, {}).get("emulates", "")
        for node in view.nodes.items.values()
    }
    return {name: emulated for name, value in said.items() if emulation.means(str(value), emulated)}


def _stays(pod: Object) -> bool:
    return "deletionTimestamp" not in pod["metadata"]


def _is_new(pod: Object, revision: str) -> bool:
    """Ready, and of that revision, as its controller calls it."""
    labels = pod["metadata"].get("labels") or {}
    return is_ready(pod) and revision in (labels.get("controller-revision-hash"), labels.get("pod-template-hash"))


def _lacking(view: View, live: Object, revision: str) -> Mapping[str, bool]:
    """Node that the DaemonSet selects and that has no Ready pod of that revision → whether it is a control node."""
    there = {
        pod["spec"].get("nodeName")
        for pod in view.pods.items.values()
        if is_of(pod, live) and _is_new(pod, revision) and _stays(pod)
    }
    return {
        node["metadata"]["name"]: is_control_node(node)
        for node in view.nodes.items.values()
        if selects(live["spec"]["template"], node) and node["metadata"]["name"] not in there
    }


def servers_have_left(view: View, version: Version) -> bool:
    """Whether an API server, a standby of one, or what hosted ones are to be, is known to be of an earlier minor."""
    live = workload(view, COMPONENTS[API_SERVER])
    templates = [] if live is None else [live["spec"]["template"]]
    pods = [] if live is None else [pod for pod in view.pods.items.values() if is_of(pod, live) and not has_ended(pod)]
    found = [image_version(image_of(one, API_SERVER)) for one in (*templates, *pods)]
    known = [*found, *standbys(view, API_SERVER).values()]
    return any(one is not None and minor_of(one) < minor_of(version) for one in known)


def _is_rolled_out(live: Object) -> bool:
    """As its controller says, of the template that is wanted now."""
    status = live.get("status") or {}
    if status.get("observedGeneration", 0) < live["metadata"]["generation"]:
        return False
    if live["kind"] == "DaemonSet":
        wanted, updated, ready = (
            status.get(name, 0) for name in ("desiredNumberScheduled", "updatedNumberScheduled", "numberReady")
        )
        return bool(updated >= wanted and ready >= wanted)
    wanted = live["spec"].get("replicas", 1)
    return bool(
        status.get("updatedReplicas", 0) >= wanted and status.get("replicas", 0) == status.get("updatedReplicas")
    )
