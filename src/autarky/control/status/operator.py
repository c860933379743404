"""The controller that writes the ControlPlane's status: what runs where, in which slot, and what went wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import ClassVar, TypeVar

from autarky.control.backup.operator import Schedules
from autarky.control.base.controller import ClusterController
from autarky.control.base.operator_view import View, current
from autarky.control.base.shield import unforeseen
from autarky.control.certificates import decide as certificates
from autarky.control.cluster_file.decide import defaults
from autarky.control.common.pods import has_ended, is_ready, is_what_it_says, node_of
from autarky.control.common.shapes import node_is_ready, within
from autarky.control.control_nodes.operator.roles import ControlNodes
from autarky.control.drift.decide import applied
from autarky.control.drift.decide.field_owners import edits
from autarky.control.etcd.operator.members import EtcdMembers
from autarky.control.etcd.operator.template import EtcdTemplate
from autarky.control.kubelet.decide import hosted_report
from autarky.control.kubelet.operator.kubelets import Kubelets
from autarky.control.leadership.decide import reported as level_3_reported
from autarky.control.levels.operator import Spec, not_understood
from autarky.control.rollout.decide.good_revision import content_of
from autarky.control.rollout.decide.verdict import Verdict
from autarky.control.rollout.operator.last_good import LastGood
from autarky.control.rollout.operator.rollouts import Rollouts
from autarky.control.rollout.operator.workloads import JUDGED, TWO_SLOTS, control_nodes, judged_workload, workload
from autarky.control.slots.decide import report as node_slots
from autarky.control.status import decide as plane_status
from autarky.control.upgrade.operator.upgrade import Upgrade
from autarky.model.cluster import Level
from autarky.model.components import (
    COMPONENTS,
    HOST,
    HOSTED,
    KUBE_PROXY,
    KUBELET,
    LOAD_BALANCER,
    OPERATOR,
    STANDBY,
    STATIC,
    labelled,
)
from autarky.model.defaults import edition_in
from autarky.ports import Clock, Kube, Object
from autarky.render.values import CONTROL_PLANE_ACTIVE

T = TypeVar("T")
SLOTS = (HOSTED, STANDBY, STATIC)
MOST_LETTERS, MOST_VERSIONS = 64, 10
_ON_WORKERS = {LOAD_BALANCER, KUBE_PROXY} | {
    name for name, one in COMPONENTS.items() if one.level in (Level.KUBELET, Level.ADD_ONS) and name != OPERATOR
}
"""Components that have their place on workers, too."""


@dataclass(slots=True)
class PlaneStatus(ClusterController):
    view: View
    kube: Kube
    clock: Clock
    rollouts: Rollouts
    spec: Spec
    etcd: EtcdMembers
    template: EtcdTemplate
    control_nodes: ControlNodes
    backups: Schedules
    upgrade: Upgrade
    kubelets: Kubelets
    name: ClassVar[str] = "status"

    async def reconcile(self) -> None:
        plane, odd = self.view.plane_as_it_lies, self.view.odd_plane
        if plane is None or not current([self.view.planes, self.view.nodes, self.view.pods]):
            return
        now = datetime.fromtimestamp(self.clock.time(), UTC)
        before, generation = plane.get("status") or {}, plane["metadata"]["generation"]
        looks, stamp = _Looks(), certificates.stamp(now)
        if odd is None:
            found = self._of_what_is_seen(looks, plane, before, now)
        else:
            found = plane_status.not_understood(not_understood(odd), generation=generation, before=before, now=stamp)
        if found != before:
            await self.kube.replace({**plane, "status": found}, subresource="status")
            for condition in found["conditions"]:
                self.tell(f"{condition['type']} is {condition['status']}: {condition['message']}", condition["type"])
        looks.raise_first()

    def _of_what_is_seen(self, looks: _Looks, plane: Object, before: Object, now: datetime) -> Object:
        view = self.view
        return plane_status.status(
            looks.at(lambda: list(_layers(view))),
            looks.at(lambda: _node_slots(view)),
            looks.at(lambda: _failures(self.rollouts)),
            looks.at(lambda: _on_trial(view, self.rollouts)),
            looks.at(lambda: _drift(view)),
            [*self.spec.unapplied.values(), *self.template.unapplied, *self.upgrade.unapplied],
            self.etcd.seen,
            self.control_nodes.unsettled,
            looks.at(lambda: _certificates(view, now)),
            controllers=looks.at(lambda: level_3_reported.text(reported_of_level_3(view, self.rollouts))),
            version="" if self.upgrade.version is None else str(self.upgrade.version),
            former_version="" if self.upgrade.former is None else str(self.upgrade.former),
            upgrade=self.upgrade.of_status,
            kubelets=self.kubelets.to_report,
            backups=self.backups.seen,
            old_defaults=looks.at(lambda: _old_defaults(plane)),
            generation=plane["metadata"]["generation"],
            before=before,
            now=certificates.stamp(now),
        )


@dataclass(slots=True)
class _Looks:
    """Observations: the failure of one does not stop the others, since the node agents act on what is reported here."""

    _failures: list[Exception] = field(default_factory=list)

    def at(self, look: Callable[[], T]) -> T | plane_status.Unseen:
        try:
            return look()
        except Exception as error:  # unexpected: reported, and raised after all the rest is written
            self._failures.append(error)
            return plane_status.Unseen(unforeseen(error))

    def raise_first(self) -> None:
        if self._failures:
            raise self._failures[0]


def _layers(view: View) -> Iterator[plane_status.Layer]:
    nodes = list(view.nodes.items.values())
    workers = {node["metadata"]["name"] for node in nodes} - control_nodes(view)
    one_takes_none = any(_takes_no_pods(node) for node in nodes if node["metadata"]["name"] in workers)
    yield from _kubelets(nodes, workers)
    for (component, slot), pods in _by_slot(view).items():
        images = sorted({pod["spec"]["containers"][0]["image"].rpartition(":")[2] for pod in pods})
        lacking = [pod for pod in pods if not is_ready(pod)]
        excused = sum(1 for pod in lacking if component in _ON_WORKERS and node_of(pod) in workers)
        if component in _ON_WORKERS and len(lacking) < len(pods) and one_takes_none:
            excused += sum(1 for pod in lacking if node_of(pod) is None)  # it waits for that one, to be apart
        level, total = COMPONENTS[component].level, len(pods)
        yield plane_status.Layer(level, component, slot, total - len(lacking), total, _shown(images), excused)


def _kubelets(nodes: Iterable[Object], workers: Collection[str]) -> Iterator[plane_status.Layer]:
    """Level 0, by the slot that is in force on each node, as that reports. Its pods say no more than that."""
    for slot, kubelets in _nodes_by_slot(nodes).items():
        versions = sorted({node.get("status", {}).get("nodeInfo", {}).get("kubeletVersion", "") for node in kubelets})
        away = [node["metadata"]["name"] for node in kubelets if not node_is_ready(node)]
        ready, excused = len(kubelets) - len(away), len(set(workers) & set(away))
        yield plane_status.Layer(0, KUBELET, slot, ready, len(kubelets), _shown(filter(None, versions)), excused)


def _nodes_by_slot(nodes: Iterable[Object]) -> dict[str, list[Object]]:
    """Without a slot in which there is none, but for the host's where there are no nodes."""
    found: dict[str, list[Object]] = {HOST: [], HOSTED: []}
    for node in nodes:
        said = hosted_report.read(node["metadata"])
        found[HOSTED if said is not None and said.state.is_of_node else HOST].append(node)
    return {slot: of_it for slot, of_it in found.items() if of_it or (slot == HOST and not found[HOSTED])}


def _takes_no_pods(node: Object) -> bool:
    taints = within(node, "spec", "taints") or ()
    return not node_is_ready(node) or any(within(one, "effect") in ("NoSchedule", "NoExecute") for one in taints)


def _shown(versions: Iterable[str]) -> tuple[str, ...]:
    """Kubelets report them: invented ones must not make the status too large to be written."""
    return tuple(one[:MOST_LETTERS] for one in islice(versions, MOST_VERSIONS))


def _by_slot(view: View) -> dict[tuple[str, str], list[Object]]:
    """(component, slot) → pods that should run; terminating and finished ones are left out. Of load balancers one for
    each node, one that is not ready if it has such a one: a worker may have any number of static pods."""
    found: dict[tuple[str, str], list[Object]] = defaultdict(list)
    where = control_nodes(view)
    for pod in view.pods.items.values():
        labels = pod["metadata"].get("labels") or {}
        component = labelled(labels)
        if component is None or component.name == KUBELET or has_ended(pod) or "deletionTimestamp" in pod["metadata"]:
            continue
        of_its_node = component.name == LOAD_BALANCER or is_what_it_says(pod, where)
        slot = component.slot_of(labels)
        if of_its_node and slot in SLOTS:
            found[component.name, slot].append(pod)
    return {key: _one_of_each_node(pods) if key[0] == LOAD_BALANCER else pods for key, pods in found.items()}


def _one_of_each_node(pods: Iterable[Object]) -> list[Object]:
    found: dict[str | None, Object] = {}
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node not in found or not is_ready(pod):
            found[node] = pod
    return list(found.values())


def _node_slots(view: View) -> list[plane_status.NodeSlots]:
    return [
        plane_status.NodeSlots(node["metadata"]["name"], node_is_ready(node), said.get("level"), said.get("slots", {}))
        for node in view.nodes.items.values()
        if CONTROL_PLANE_ACTIVE in (node["metadata"].get("labels") or {})
        and (said := node_slots.read(node)) is not None
    ]


def reported_of_level_3(view: View, rollouts: Rollouts) -> dict[str, level_3_reported.Reported]:
    """What is reported to the node agents of each hosted component of level 3."""
    ready = {
        node["metadata"]["name"]
        for node in view.nodes.items.values()
        if CONTROL_PLANE_ACTIVE in (node["metadata"].get("labels") or {}) and node_is_ready(node)
    }
    found = {}
    for component in TWO_SLOTS:
        if component.leads_by_lease and workload(view, component) is not None:
            kept = rollouts.kept.get(component.name) or LastGood()
            candidates = level_3_reported.candidates(view.pods_named(component.name), ready, component.name)
            content = "" if kept.template is None else content_of(kept.template, kept.objects)
            found[component.name] = level_3_reported.Reported(candidates, kept.record.good or "", content)
    return found


def _certificates(view: View, now: datetime) -> plane_status.Certificates | None:
    read = {node["metadata"]["name"]: certificates.read(node["metadata"]) for node in view.nodes.items.values()}
    reported = {name: found for name, found in read.items() if found is not None}
    first = certificates.earliest(reported)
    if first is None:
        return None
    node, name, end = first
    clause = f"{name} on {node}, at {certificates.stamp(end)}"
    trusted = control_nodes(view)
    own, others = (
        tuple(certificates.wrong({name: one for name, one in reported.items() if (name in trusted) == control}, now))
        for control in (True, False)
    )
    return plane_status.Certificates(clause, own, others)


def _old_defaults(plane: Object) -> str:
    """By the edition that was applied last, whatever a later edit asks for; "" where the cluster has the newest."""
    number = int(edition_in(applied.record_of(plane) or plane))
    lacking = defaults.missed(number)
    return defaults.sentence(number, lacking) if lacking else ""


def _drift(view: View) -> list[str]:
    """A sentence for each field of a workload that somebody has changed since it was applied."""
    workloads = [*view.daemon_sets.items.values(), *view.deployments.items.values()]
    found = [(live, comparison) for live in workloads if (comparison := applied.drift_of(live)) is not None]
    return [
        edit.sentence
        for live, comparison in found
        for edit in edits(f"{live['kind']} {live['metadata']['name']}", comparison.drifted, live)
    ]


def _on_trial(view: View, rollouts: Rollouts) -> list[str] | plane_status.Unseen:
    """The components that are there, and not judged: also those of which this operator has not come to a verdict."""
    if not current([view.daemon_sets, view.deployments]):
        return plane_status.Unseen("what the operator sees of the workloads may be stale")
    live = {one.name: judged_workload(view, one) for one in JUDGED}
    there = [name for name, one in live.items() if one is not None and "deletionTimestamp" not in one["metadata"]]
    verdicts = {name: verdict for name, (verdict, _) in rollouts.verdicts.items()}
    return [name for name in there if verdicts.get(name, Verdict.WAIT) is Verdict.WAIT]


def _failures(rollouts: Rollouts) -> list[plane_status.Rollout]:
    """Rollouts that were rolled back and not followed by a healthy one; those rolled back to a revision whose objects
    are not intact; healthy ones that cannot be kept as the last good revision; and failed ones that stay."""
    failures = []
    workloads = {component.name: component.for_kubectl for component in JUDGED}
    for component, kept in rollouts.kept.items():
        failure = kept.record.failure(kept.record.current)
        if failure is not None:
            sentence = f"{failure.sentence}; {failure.again(workloads[component])}"
            failures.append(plane_status.Rollout(component, sentence, rolled_back=True))
    for component, sentences in rollouts.differing.items():
        failures += [plane_status.Rollout(component, sentence, rolled_back=False) for sentence in sentences]
    for component, sentence in rollouts.unkept.items():
        failures.append(plane_status.Rollout(component, sentence, rolled_back=False))
    for component, (verdict, sentence) in rollouts.verdicts.items():
        if verdict is Verdict.FAILED:
            failures.append(plane_status.Rollout(component, sentence, rolled_back=False))
    return failures
