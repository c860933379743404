"""The controller of hosted kubelets (level 0): whose may take over next, and which version the DaemonSet has.

Contract: `decide.takeovers` decides, and this writes it: each turn on its Node, and the DaemonSet's image, each under
the resourceVersion that was decided on. It runs after `kubelets` in a pass, and goes by what that has seen and decided
there; where that was nothing, it does nothing.

The image follows the wanted version where kubelets do, once no host's kubelet is to change any more, up and down. What
was rolled back at that version stays back until somebody asks for it (docs/operator.md). Where another tool keeps the
image at something else, each time is later than the one before (`takeovers.Following`).

Danger: what nodes report is a possibly compromised machine's word; `decide` reads it, nothing here believes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from autarky.control.base.controller import ClusterController
from autarky.control.base.events import report
from autarky.control.base.operator_view import View, current
from autarky.control.common.shapes import image_of, some
from autarky.control.drift.decide import applied
from autarky.control.kubelet.decide import hosted_report, takeovers, telling, turns, wanted
from autarky.control.kubelet.operator.kubelets import Kubelets, patched
from autarky.control.rollout.decide.failures import TRY_AGAIN, Failure
from autarky.control.rollout.decide.good_revision import revision_of
from autarky.control.rollout.operator.last_good import LastGood
from autarky.control.rollout.operator.rollouts import Rollouts
from autarky.control.rollout.operator.workloads import control_nodes
from autarky.control.upgrade.decide import reported
from autarky.control.upgrade.decide.absent import Lacking
from autarky.control.upgrade.decide.templates import with_tag
from autarky.errors import AutarkyError, Conflict
from autarky.model.components import KUBELET, OPERATOR
from autarky.model.versions import Version
from autarky.ports import Clock, Kube, Object
from autarky.render.values import SYSTEM

LOOK_SECONDS, WAIT_SECONDS = 1.0, 10.0
"""Between two looks while a trial is under way, or where a Node was not written, as in `kubelets`; while somebody
waits for something else."""
SUBJECT = "image"
FOUGHT_TIMES = 3
"""So often the image was set within an hour each: then somebody else sets it, too, and the status says so."""


@dataclass(slots=True)
class HostedKubelets(ClusterController):
    """busy: what is at work on the control plane besides kubelets, a clause; empty where nothing is.

    For the status: `waits`: node → why it gets no turn now; `failed`: node → why its hosted kubelet is not in force;
    `behind`: why the DaemonSet stays at another version than is wanted, and how it would follow. `kubelets` tells it.
    """

    view: View
    kube: Kube
    clock: Clock
    kubelets: Kubelets
    rollouts: Rollouts
    busy: Callable[[], str]
    name: ClassVar[str] = "hosted kubelets"
    waits: dict[str, str] = field(default_factory=dict, init=False)
    failed: dict[str, str] = field(default_factory=dict, init=False)
    behind: str = field(default="", init=False)
    _memory: takeovers.Memory = field(default_factory=takeovers.Memory, init=False)
    _lacking: Lacking | None = field(default=None, init=False)
    """The workers that the image has waited for."""
    _following: takeovers.Following | None = field(default=None, init=False)
    _refused: bool = field(default=False, init=False)
    """Whether a turn was neither given nor taken back though it should be."""
    _ended: frozenset[str] | None = field(default=None, init=False)
    """Pods whose kubelets have failed, of which that has been said; None before the first look of a term."""

    def begin_term(self) -> None:
        """What an earlier leader has watched is watched again."""
        self._memory, self._lacking, self._ended = takeovers.Memory(), None, None

    async def reconcile(self) -> float | None:
        view, plane = self.view, self.view.control_plane
        seen, found = self.kubelets.seen, self.kubelets.decision
        if plane is None or seen is None or found is None or not current([view.daemon_sets]):
            self.waits, self.failed = {}, {}
            return None
        hosted = wanted.is_hosted(plane)
        situation = replace(
            self._situation(seen.nodes),
            hosted=hosted,
            changing=frozenset(found.memory.turns),
            paused=seen.paused,
            moves=seen.moves,
            busy=self.busy(),
        )
        decision = takeovers.decide(situation, self._memory, self.clock.monotonic())
        self._memory, self.waits, self._refused = decision.memory, dict(decision.waits), False
        self.failed = {name: said.why or "it does not say why" for name, said in decision.failed.items()}
        self.behind = self._behind(plane, found.lowest) if hosted else ""
        self.kubelets.hosted = telling.hosted(self.behind, self.failed, self.waits, control_nodes(view))
        await self._tell_of_failures(plane, decision)
        try:
            await self._act(decision)
        finally:  # a worker may keep anything from being written on its own Node
            holds = hosted and await self._follow(plane, found)
        if decision.clocks_run or self._refused:
            return LOOK_SECONDS
        return WAIT_SECONDS if decision.waits or holds else None

    def at_work(self, nodes: Sequence[turns.Node]) -> str:
        """Why no control node's kubelet is ordered to change now, a clause. Asked before it reconciles in a pass."""
        return takeovers.at_work(self._situation(nodes), self._memory, self.clock.monotonic())

    def _situation(self, nodes: Sequence[turns.Node]) -> takeovers.Situation:
        live, pods, revisions = self._workload(), dict[str, set[str]](), dict[str, str]()
        for pod in () if live is None else self.view.pods_owned_by(live):
            meta = pod["metadata"]
            if "deletionTimestamp" not in meta:
                pods.setdefault(pod["spec"].get("nodeName") or "", set()).add(meta["uid"])
                revisions[meta["uid"]] = (meta.get("labels") or {}).get("controller-revision-hash", "")
        return takeovers.Situation(nodes, pods, revisions)

    def _workload(self) -> Object | None:
        return self.view.daemon_sets.items.get((SYSTEM, KUBELET))

    # --- turns -----------------------------------------------------------------------------------------

    async def _act(self, decision: takeovers.Decision) -> None:
        """No control node gets its turn before that of one that is away has been taken back: it may be back by now."""
        kept = set(decision.over)

        async def take_back(name: str) -> None:
            if await self._take_back(name):
                kept.remove(name)

        try:
            await self.each(decision.over, take_back)
        finally:
            self._refused = bool(kept)
            wait = control_nodes(self.view) if kept else ()
            for name in set(decision.given).intersection(wait):
                self._was_not_written(name)
            await self.each([one for one in decision.given.items() if one[0] not in wait], self._give)

    async def _give(self, turn: tuple[str, str]) -> None:
        name, pod = turn
        node = self.view.nodes.items.get((None, name))
        if node is not None and await patched(self.kube, node, {hosted_report.TURN: pod}, {}, self.tell):
            self.tell(f"the kubelet of pod {pod} may take over from the host's", name)
        else:
            self._refused = self._refused or node is not None
            self._was_not_written(name)

    def _was_not_written(self, name: str) -> None:
        """It is not there, and nobody waits for it."""
        written = {other: one for other, one in self._memory.written.items() if other != name}
        self._memory = replace(self._memory, written=written)

    async def _take_back(self, name: str) -> bool:
        node = self.view.nodes.items.get((None, name))
        if node is None:
            return True
        if not await patched(self.kube, node, {hosted_report.TURN: None}, {}, self.tell):
            return False
        self.tell("the turn of its hosted kubelet has been taken back", name)
        return True

    # --- the image -------------------------------------------------------------------------------------

    async def _follow(self, plane: Object, found: turns.Decision) -> bool:
        """Whether it waits for something."""
        live, version = self._workload(), found.lowest
        if live is None or not self._is_to_follow(plane, live, version):
            self._lacking = None
            return False
        why = self._against(plane, live, found, version)
        if why:
            self.tell(f"the DaemonSet is to be of {version}, and waits: {why}", SUBJECT)
        else:
            await self._set(live, version)
        return bool(why)

    def _is_to_follow(self, plane: Object, live: Object, version: Version) -> bool:
        """And has yet to."""
        if "deletionTimestamp" in live["metadata"] or not wanted.follows(plane) or wanted.against_all(plane):
            return False
        return takeovers.is_behind(image_of(live["spec"]["template"], KUBELET), version)

    def _against(self, plane: Object, live: Object, found: turns.Decision, version: Version) -> str:
        now, control = self.clock.monotonic(), control_nodes(self.view)
        drain_seconds = self.kubelets.drain_seconds
        self._lacking, first = takeovers.hosts_first(found, control, self._lacking, now, drain_seconds=drain_seconds)
        if reported.is_paused(plane):
            return "spec.paused is true"
        if first:
            return f"the kubelets of {some(first)} come first"
        if KUBELET not in self.rollouts.kept:
            return "it is not known yet whether that was rolled back before"
        if (failure := self._rolled_back(live, version)) is not None:
            self._following = None  # what follows was asked for, and is nobody else's word
            return f"that was rolled back: {failure.sentence}"
        before = self._following
        early = before is not None and before.version == version and now < before.again_at()
        return "it was set to something else each time" if early else ""

    def _rolled_back(self, live: Object, version: Version) -> Failure | None:
        """What broke the skew is judged against the versions that run then."""
        kept = self.rollouts.kept.get(KUBELET, LastGood())
        failure = kept.record.failure(revision_of(with_tag(live["spec"]["template"], KUBELET, version)))
        return None if failure is None or failure.by_skew else failure

    def _behind(self, plane: Object, version: Version) -> str:
        """For as long as nobody asks for it again."""
        live, before = self._workload(), self._following
        if live is None or not self._is_to_follow(plane, live, version):
            return ""
        if self._rolled_back(live, version) is None:
            if before is None or before.version != version or before.times < FOUGHT_TIMES:
                return ""
            leave = "have that stop, or leave it to that with `spec.kubelets.follow: false`"
            return f"the hosted kubelets do not keep {version}: somebody sets ds/{KUBELET} to another image: {leave}"
        command = f"kubectl -n kube-system annotate ds/{KUBELET} {TRY_AGAIN}=now"
        return f"the hosted kubelets do not get {version}: it was rolled back; to try again: {command}"

    async def _set(self, live: Object, version: Version) -> None:
        """As if it had been applied: nobody has changed it against the file."""
        template, recorded = with_tag(live["spec"]["template"], KUBELET, version), applied.recorded_template(live)
        changed = live
        if recorded is not None:
            changed = applied.with_recorded_template(live, with_tag(recorded, KUBELET, version))
        try:
            await self.kube.replace({**changed, "spec": {**live["spec"], "template": template}})
        except Conflict:
            return
        self._following = takeovers.set_once_more(self._following, version, self.clock.monotonic())
        self.tell(f"the DaemonSet follows to {version}", SUBJECT)
        token = f"{version}-{live['metadata'].get('generation', 0)}"
        message = f"The hosted kubelet follows the control plane to {version}."
        await self._explain(live, "KubeletFollows", message, token, warning=False)

    # --- saying ----------------------------------------------------------------------------------------

    async def _tell_of_failures(self, plane: Object, decision: takeovers.Decision) -> None:
        before, self._ended = self._ended, frozenset(said.pod for said in decision.failed.values())
        for name, said in decision.failed.items():
            if before is None or said.pod in before:
                continue
            sentence = f"the hosted kubelet {said.version} is not tried any more: {self.failed[name]}"
            self.tell(sentence, name)
            await self._explain(plane, "KubeletHostedFailed", f"Node {name}: {sentence}.", said.pod, warning=True)

    async def _explain(self, obj: Object, reason: str, message: str, token: str, *, warning: bool) -> None:
        """A failure to write the event stops nothing."""
        now = self.clock.time()
        try:
            await report(self.kube, obj, reason, message, by=OPERATOR, token=token, now=now, warning=warning)
        except AutarkyError as error:
            self.say(f"the event about a hosted kubelet was not written: {error}", subject=obj["metadata"]["name"])
