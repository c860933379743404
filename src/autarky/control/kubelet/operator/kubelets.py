"""The controller that orders kubelets: which node's changes next, and to what.

Contract: `decide.nodes` reads the Nodes, `decide.turns` decides, and this writes what it decides, each Node in one
patch under the resourceVersion that was decided on: what a person changes meanwhile is looked at again. The order is in
the same write as the cordon that belongs to it. Everything that has happened is on the Nodes, so that another operator
goes on from there. In a cluster that asks for nothing (`telling.is_used`), or whose `spec.pools` or `spec.kubelets`
cannot be understood, no order is written; only cordons of orders that have ended are taken away.

For the status: `to_report`. For those that run after it in a pass: `decision` and `seen`; for `control.upgrade` also
whom the control plane waits for before it goes down a minor: `down`.

Danger: what nodes report is a possibly compromised machine's word; `decide` reads it, nothing here believes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from autarky.control.base.controller import ClusterController
from autarky.control.base.events import report
from autarky.control.base.operator_view import View, current
from autarky.control.common import understood
from autarky.control.common.pods import has_ended, is_ready, is_what_it_says
from autarky.control.common.shapes import node_is_ready, text, within
from autarky.control.common.skew import minor_of
from autarky.control.kubelet.decide import down, nodes, order, pools, telling, turns
from autarky.control.kubelet.decide.order import CORDONED
from autarky.control.kubelet.decide.pools import IMPLICIT, Pool
from autarky.control.kubelet.decide.report import State
from autarky.control.kubelet.decide.standing import is_over
from autarky.control.kubelet.decide.telling import Reported
from autarky.control.kubelet.manifests import files
from autarky.control.rollout.operator.workloads import control_nodes
from autarky.control.upgrade.decide import absent, reported
from autarky.control.upgrade.decide.absent import Lacking
from autarky.errors import ApiError, AutarkyError, Conflict
from autarky.model.components import API_SERVER, OPERATOR
from autarky.model.versions import Version
from autarky.ports import Clock, Kube, Object

LOOK_SECONDS = 1.0
"""Between two looks while a node has its turn: clocks run. Also where a Node was not written: if only its heartbeat
came first, nothing wakes us (`base.found_once`)."""
_TOO_MUCH = (413, 422)
"""HTTP statuses: the object, or what it is annotated with, would be too large."""
_ENDS = {
    State.DONE: ("KubeletChanged", "the kubelet is of {version} now"),
    State.WENT_BACK: ("KubeletWentBack", "the kubelet went back to what was there before {version}: {why}"),
    State.REFUSED: ("KubeletRefused", "the kubelet stays as it was, and does not get {version}: {why}"),
}


@dataclass(slots=True)
class Kubelets(ClusterController):
    """at_work: what else is at work on the control plane, where the nodes are these; empty where nothing is."""

    view: View
    kube: Kube
    clock: Clock
    at_work: Callable[[Sequence[turns.Node]], str]
    name: ClassVar[str] = "kubelets"
    hosted: telling.Hosted = field(default_factory=telling.Hosted, init=False)
    """What the controller of hosted ones has said last."""
    decision: turns.Decision | None = field(default=None, init=False)
    """That of this very pass; None while it is not known."""
    seen: turns.Situation | None = field(default=None, init=False)
    """By which it was decided."""
    drain_seconds: int = field(default=0, init=False)
    """The most of any pool."""
    _memory: turns.Memory = field(default_factory=turns.Memory, init=False)
    _absent: absent.Memory = field(default_factory=absent.Memory, init=False)
    _lacking: Lacking | None = field(default=None, init=False)
    """Whom the way down has waited for."""
    _ended: set[str] | None = field(default=None, init=False)
    """Orders that have ended, of which that has been said; None before the first look of a term."""
    _reported: Reported | None = field(default=None, init=False)
    _cordoned: bool = field(default=False, init=False)
    """Whether a cordon was to be taken away, and was not."""

    @property
    def to_report(self) -> Reported | None:
        """None where nothing is asked of kubelets."""
        return None if self._reported is None else replace(self._reported, hosted=self.hosted)

    def begin_pass(self) -> None:
        self.decision = self.seen = None

    def begin_term(self) -> None:
        """What an earlier leader has watched is watched again."""
        self._memory, self._absent = turns.Memory(), absent.Memory()
        self._lacking, self._ended = None, None

    async def reconcile(self) -> float | None:
        view, plane = self.view, self.view.control_plane
        self.decision, self.seen, self._cordoned = None, None, False
        if plane is None or not current([view.planes, view.nodes, view.pods]):
            self._lacking = None
            return None
        lowest, trouble = reported.lowest_version(plane), understood.kubelets(plane["spec"])
        self._forget_the_way_down(plane, lowest)
        if lowest is None:
            return None
        seen, said = self._situation(plane, lowest, asks=trouble is None and telling.is_used(plane))
        decision = turns.decide(seen, self._memory, self.clock.monotonic())
        self._memory = decision.memory
        if trouble is not None:
            self._reported = Reported(trouble=trouble)
            self.tell(f"no kubelet is changed: {trouble}")
        else:
            self._reported = telling.reported(decision, said, control_nodes(view)) if telling.is_used(plane) else None
            self.decision, self.seen = decision, seen
        await self._tell_of_ends(plane, seen)
        await self._act(decision)
        return LOOK_SECONDS if decision.writes or decision.memory.turns or self._cordoned else None

    def down(self, wanted: Version) -> down.Decision | None:
        """Whom the control plane waits for before it goes down to that version's minor. None while that is not known:
        also where the decision was made before that version was noted."""
        decision = self.decision
        if decision is None or minor_of(decision.lowest) > minor_of(wanted):
            return None
        now, minor = self.clock.monotonic(), f"{wanted.major}.{wanted.minor}"
        control, away = control_nodes(self.view), self._absent.away(now)
        found = down.decide(decision, control, away, self._lacking, now, minor=minor, drain_seconds=self.drain_seconds)
        self._lacking = found.memory
        return found

    # --- looking ---------------------------------------------------------------------------------------

    def _forget_the_way_down(self, plane: Object, lowest: Version | None) -> None:
        """While there is none, or nobody can go it."""
        wanted = reported.wanted_version(plane)
        goes = lowest is not None and wanted is not None and minor_of(wanted) <= minor_of(lowest)
        if not goes or not reported.noted_versions(plane) or reported.is_paused(plane):
            self._lacking = None

    def _situation(self, plane: Object, lowest: Version, *, asks: bool) -> tuple[turns.Situation, dict[str, str]]:
        """asks: whether anything may be ordered."""
        now, live = self.clock.monotonic(), self.view.nodes.items.values()
        ready = {node["metadata"]["name"]: node_is_ready(node) is True for node in live}
        self._absent = self._absent.with_nodes(ready, now)
        groups: tuple[Pool, ...] = pools.read(plane["spec"].get("pools")) if asks else IMPLICIT
        self.drain_seconds = max(pool.drain_seconds for pool in groups)
        found = nodes.found(live, nodes.Around(plane, groups, self._absent.away(now), self._serving()))
        seen = turns.Situation(
            found.nodes if asks else [replace(node, wanted=None) for node in found.nodes],
            lowest,
            files.image_of,
            paused=reported.is_paused(plane),
            asked=text(within(plane, "spec", "kubelets", "asked")) if asks else "",
            moves=reported.are_kubelets_held(plane),
            drains_wait=bool(reported.noted_versions(plane)),
            busy=self.at_work(found.nodes),
        )
        return seen, dict(found.said)

    def _serving(self) -> frozenset[str]:
        """Control nodes that have an API server which is Ready, as the API says."""
        where = control_nodes(self.view)
        servers = [pod for pod in self.view.pods_named(API_SERVER) if is_what_it_says(pod, where)]
        serve = [pod for pod in servers if is_ready(pod) and not has_ended(pod) and not _ends(pod)]
        return where & {text(pod["spec"].get("nodeName")) for pod in serve}

    # --- acting ----------------------------------------------------------------------------------------

    async def _act(self, decision: turns.Decision) -> None:
        """What gives pods room again comes first: an order may fail again and again, also since a worker has filled its
        own Node."""
        written = {write.node for write in decision.writes}
        try:
            await self.each([name for name in decision.uncordon if name not in written], self._uncordon)
        finally:
            await self.each(decision.writes, self._order)

    async def _order(self, write: turns.Write) -> None:
        ordered, version = write.order, write.order.target.version
        annotations: dict[str, str | None] = {order.ANNOTATION: order.text(ordered)}
        annotations |= {CORDONED: ordered.id} if write.cordon else {}
        spec: Object = {"spec": {"unschedulable": True}} if write.cordon else {}
        node = self._node(write.node)
        if node is None or not await patched(self.kube, node, annotations, spec, self.tell):
            return
        drained = ", and is cordoned for it" if write.cordon else ""
        self.tell(f"its kubelet is ordered: {version}{drained}", write.node)
        await self._explain(node, "KubeletOrdered", f"The kubelet is to be of {version}{drained}.", ordered.id)

    async def _uncordon(self, name: str) -> None:
        node = self._node(name)
        spec: Object = {"spec": {"unschedulable": None}}
        if node is None:
            return
        if await patched(self.kube, node, {CORDONED: None}, spec, self.tell):
            self.tell("it takes pods again: the order that it was cordoned for has ended", name)
        else:
            self._cordoned = True

    def _node(self, name: str) -> Object | None:
        return self.view.nodes.items.get((None, name))

    # --- saying ----------------------------------------------------------------------------------------

    async def _tell_of_ends(self, plane: Object, seen: turns.Situation) -> None:
        """On the ControlPlane: what is on the Node itself, its agent writes."""
        over = {one.order.id: one for one in seen.nodes if one.order is not None and is_over(one, one.order)}
        before, self._ended = self._ended, set(over)
        for name, one in over.items():
            if before is None or name in before or one.report is None or one.order is None:
                continue
            reason, sentence = _ENDS[one.report.state or State.DONE]
            said = sentence.format(version=one.order.target.version, why=one.report.why or "it does not say why")
            self.tell(said, one.name)
            failed = one.report.state is not State.DONE
            await self._explain(plane, reason, f"Node {one.name}: {said}.", name, warning=failed)

    async def _explain(self, obj: Object, reason: str, message: str, token: str, *, warning: bool = False) -> None:
        """A failure to write the event stops nothing."""
        now = self.clock.time()
        try:
            await report(self.kube, obj, reason, message, by=OPERATOR, token=token, now=now, warning=warning)
        except AutarkyError as error:
            self.say(f"the event about a kubelet was not written: {error}", subject=obj["metadata"]["name"])


async def patched(
    kube: Kube,
    node: Object,
    annotations: Mapping[str, str | None],
    spec: Object,
    tell: Callable[[str, str], None],
) -> bool:
    """Whether it was written: a Node that has changed meanwhile is looked at again. So is one that takes nothing more:
    a worker may have filled its own, and nobody else waits for it."""
    meta = node["metadata"]
    changes = {"resourceVersion": meta["resourceVersion"], "annotations": dict(annotations)}
    try:
        await kube.patch("v1", "Node", meta["name"], {"metadata": changes, **spec})
    except Conflict:
        return False
    except ApiError as error:
        if error.status not in _TOO_MUCH:
            raise
        tell(f"its Node does not take what it is to say: {error}", meta["name"])
        return False
    return True


def _ends(obj: Object) -> bool:
    return "deletionTimestamp" in obj["metadata"]
