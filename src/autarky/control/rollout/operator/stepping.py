"""The controller that continues the rollouts of our DaemonSets while a node is off, or lags: see `decide.stepping`.

Contract: the only act is the graceful deletion of one pod of an old revision; its DaemonSet creates the next one. What
the cached objects show is read from the API again right before; the event that explains the deletion is written first.

One race remains: a node returns, and its pod becomes Ready, between that read and the deletion (milliseconds; its pod
needs seconds). Then the DaemonSet controller may replace another pod at the same moment: both terminate gracefully, and
the standby of an API server serves before its hosted pod stops.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar

from autarky.control.base.controller import ClusterController
from autarky.control.base.events import report
from autarky.control.base.operator_view import View, current
from autarky.control.common.pods import is_ready
from autarky.control.common.shapes import node_is_ready
from autarky.control.kubelet.decide import hosted_report
from autarky.control.kubelet.decide.hosted_report import State
from autarky.control.rollout.decide import stepping
from autarky.control.rollout.operator.workloads import (
    controllers_name,
    is_of,
    only_control_nodes_judge,
    selects,
    workload,
)
from autarky.errors import AutarkyError
from autarky.model.components import (
    COMPONENTS,
    KUBELET,
    NAME_LABEL,
    OPERATOR,
    Component,
)
from autarky.ports import Clock, Kube, Object
from autarky.render.values import CONTROL_PLANE_ACTIVE, SYSTEM

DAEMON_SETS = tuple(component for component in COMPONENTS.values() if component.kind == "DaemonSet")
LOOK_SECONDS = 1.0
"""Between two reconciles while a rollout may be stuck."""


@dataclass(slots=True)
class Stepping(ClusterController):
    view: View
    kube: Kube
    clock: Clock
    name: ClassVar[str] = "stepping"
    _since: dict[str, float] = field(default_factory=dict, init=False)
    """Node → since when it is not Ready, by this operator's own clock."""
    _lagging: dict[str, tuple[str | None, dict[str, stepping.Lag]]] = field(default_factory=dict, init=False)
    """DaemonSet → its revision, and the nodes that are on their way, or were since that began."""

    def begin_term(self) -> None:
        """This operator has not watched before: every node that is not Ready counts as having just become so."""
        self._since.clear()
        self._lagging.clear()

    async def reconcile(self) -> float | None:
        view = self.view
        if not current([view.nodes, view.pods, view.daemon_sets, view.daemon_set_revisions]):
            self.begin_term()
            return None
        self._follow(view.nodes.items.values())
        steps = await self.each(DAEMON_SETS, self._step)
        return LOOK_SECONDS if any(steps) else None

    def _follow(self, nodes: Iterable[Object]) -> None:
        ready = {node["metadata"]["name"]: node_is_ready(node) is True for node in nodes}
        self._since = stepping.not_ready_since(self._since, ready, self.clock.monotonic())

    async def _step(self, component: Component) -> bool:
        """Whether to reconcile again soon."""
        live = workload(self.view, component)
        if live is None or (not self._since and _is_rolled_out(live)):
            self._lagging.pop(component.name, None)
            return False
        seen = self._decide(component, live, self.view.nodes.items.values(), self.view.pods_owned_by(live))
        self.tell(seen.sentence, component.name)
        if seen.pod is None:
            return seen.open
        step = await self._seen_again(component)
        if step is not None and step.pod == seen.pod:
            await self._explain(live, step)
            await self.kube.delete("v1", "Pod", step.pod, SYSTEM)
            self.say(step.sentence, subject=component.name)
        return True

    async def _seen_again(self, component: Component) -> stepping.Step | None:
        """The same decision by what the API says now: the cached objects arrive one by one, and may be late."""
        live = await self.kube.get("apps/v1", component.kind, component.name, SYSTEM)
        if live is None:
            return None
        pods = self.kube.each("v1", "Pod", namespace=SYSTEM, labels=f"{NAME_LABEL}={component.label_value}")
        own = [pod async for pod in pods if is_of(pod, live)]
        nodes = await self.kube.list("v1", "Node")
        self._follow(nodes)
        return self._decide(component, live, nodes, own)

    def _decide(
        self, component: Component, live: Object, nodes: Iterable[Object], pods: Iterable[Object]
    ) -> stepping.Step:
        desired = live.get("status", {}).get("desiredNumberScheduled", 0)
        most = stepping.most_unavailable(live["spec"].get("updateStrategy") or {}, desired)
        if most is None or "deletionTimestamp" in live["metadata"]:
            return stepping.Step("its update strategy does not replace pods one after the other")
        name = controllers_name(self.view, component, live)
        places = self._places(component, live, name, nodes, [pod for pod in pods if is_of(pod, live)])
        observed = stepping.Observed(
            known=name is not None,
            most=most,
            desired=desired,
            unavailable=live.get("status", {}).get("numberUnavailable", 0),
            places=self._followed(component, name, places),
            by_workers=not only_control_nodes_judge(self.view, component),
        )
        return stepping.decide(observed)

    def _places(
        self, component: Component, live: Object, revision: str | None, nodes: Iterable[Object], pods: list[Object]
    ) -> tuple[stepping.Place, ...]:
        """The nodes that the DaemonSet selects, each with its pods. (Ours tolerate every taint.)"""
        now = self.clock.monotonic()
        on: dict[str, list[Object]] = {}
        for pod in pods:
            on.setdefault(pod["spec"].get("nodeName", ""), []).append(pod)
        return tuple(
            stepping.Place(
                node=(name := node["metadata"]["name"]),
                ready=node_is_ready(node) is True,
                away=stepping.is_away(self._since.get(name), now),
                pods=tuple(_pod(pod, revision) for pod in on.get(name, ()) if not _ends(pod)),
                ending=any(_ends(pod) for pod in on.get(name, ())),
                trusted=CONTROL_PLANE_ACTIVE in (node["metadata"].get("labels") or {}),
                refused=(says := _of_hosted_kubelet(component, node, on.get(name, ()))) is State.REFUSED,
                waits=says is State.WAITING,
            )
            for node in nodes
            if selects(live["spec"]["template"], node)
        )

    def _followed(
        self, component: Component, revision: str | None, places: Iterable[stepping.Place]
    ) -> tuple[stepping.Place, ...]:
        """Which of them lag, by how long they have had no available pod. Each revision begins again."""
        now, seen, (of, before) = self.clock.monotonic(), list(places), self._lagging.get(component.name, (None, {}))
        found = stepping.followed(before if of == revision else {}, seen, now)
        self._lagging[component.name] = revision, found
        return tuple(replace(place, lags=stepping.lags(found.get(place.node), now)) for place in seen)

    async def _explain(self, live: Object, step: stepping.Step) -> None:
        """A failure to write the event does not stop the step."""
        message, token = f"{step.sentence[0].upper()}{step.sentence[1:]}.", step.pod or ""
        try:
            await report(
                self.kube,
                live,
                "GoesOnWithoutNode",
                message,
                by=OPERATOR,
                token=token,
                now=self.clock.time(),
                warning=False,
            )
        except AutarkyError as error:
            self.say(f"the event about a step was not written: {error}", subject=live["metadata"]["name"])


def _is_rolled_out(live: Object) -> bool:
    """As the DaemonSet controller says, so that nothing is examined while there is nothing to do."""
    status = live.get("status", {})
    looked = status.get("observedGeneration", 0) >= live["metadata"]["generation"]
    return bool(looked and status.get("updatedNumberScheduled", -1) >= status.get("desiredNumberScheduled", 0))


def _pod(pod: Object, revision: str | None) -> stepping.Pod:
    label = (pod["metadata"].get("labels") or {}).get("controller-revision-hash")
    return stepping.Pod(pod["metadata"]["name"], label == revision, is_ready(pod))


def _of_hosted_kubelet(component: Component, node: Object, pods: Iterable[Object]) -> State | None:
    """What the node says of the kubelet of one of these pods, its DaemonSet's, that is not Ready."""
    said = hosted_report.read(node["metadata"]) if component.name == KUBELET else None
    if said is None:
        return None
    stay = (pod for pod in pods if not _ends(pod) and not is_ready(pod))
    return said.state if any(pod["metadata"]["uid"] == said.pod for pod in stay) else None


def _ends(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]
