"""The controller that judges rollouts of the hosted levels 2 to 4, and rolls back those that fail.

Contract: a decision is stored before it is carried out, so that an operator killed at any point continues where it
was. The order of a rollback: store the record; restore the objects that the good template needs; write the event;
delete the failed pods that the good ones would wait for; exchange the template, by replacing the live object under its
resourceVersion with nothing else changed (server-side apply could not remove what `kubectl edit` owns); delete the
pods of which no container ever ran.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import ClassVar

from autarky.control.base.controller import ClusterController
from autarky.control.base.events import report
from autarky.control.base.operator_view import View, current
from autarky.control.common.shapes import image_of
from autarky.control.common.skew import breaks_skew
from autarky.control.drift.decide import applied
from autarky.control.rollout.decide import verdict as rollback
from autarky.control.rollout.decide.clocks import Memory
from autarky.control.rollout.decide.failures import TRY_AGAIN, Record
from autarky.control.rollout.decide.good_revision import revision_of
from autarky.control.rollout.decide.limits import Policy
from autarky.control.rollout.decide.observed import Observed, Pod
from autarky.control.rollout.operator import last_good
from autarky.control.rollout.operator.last_good import LastGood
from autarky.control.rollout.operator.trouble import has_never_run, last_words
from autarky.control.rollout.operator.workloads import (
    JUDGED,
    TWO_SLOTS,
    is_add_on,
    is_in_place,
    judged_workload,
    observe,
    workload,
)
from autarky.errors import AutarkyError, Conflict, UserError
from autarky.model.components import API_SERVER, OPERATOR, Component
from autarky.ports import Clock, Kube, Object
from autarky.render.values import SYSTEM

LOOK_SECONDS = 1.0
"""Between two reconciles while clocks run."""
CONTENT_SECONDS = 10.0
"""Between two comparisons with the last good content: Secrets and ConfigMaps are not watched."""
NOT_JUDGED = (rollback.Verdict.WAIT, "not judged yet")
"""Until one is, this time: after a failure to look, the verdict of before may be of another revision."""
STORED = (rollback.Verdict.KEEP_AS_GOOD, rollback.Verdict.ROLL_BACK)
"""The verdicts with which the record is stored in any case, with what belongs to it."""
EXCHANGE_TRIES = 5
HURRIED_SECONDS = 1
"""Grace period. 0 would remove the pod from the API before the kubelet has stopped its processes."""


@dataclass(slots=True)
class Rollouts(ClusterController):
    """etcd_up: whether a write succeeded just now. counted: called for each component that is rolled back.

    For the status: `verdicts`: component → (verdict, sentence) of the last reconcile, where it came to one; `left`:
    component that is waited for → in how many seconds it is decided; `differing`: component that was rolled back → a
    sentence for each object that the good revision needs and that has changed; `unkept`: component whose revision is
    healthy → why it cannot be kept as the last good one.
    """

    view: View
    kube: Kube
    clock: Clock
    etcd_up: Callable[[], bool]
    counted: Callable[[str], None]
    name: ClassVar[str] = "rollouts"
    verdicts: dict[str, tuple[rollback.Verdict, str]] = field(default_factory=dict, init=False)
    left: dict[str, float] = field(default_factory=dict, init=False)
    kept: dict[str, LastGood] = field(default_factory=dict, init=False)
    differing: dict[str, list[str]] = field(default_factory=dict, init=False)
    unkept: dict[str, str] = field(default_factory=dict, init=False)
    _refused: dict[str, float] = field(default_factory=dict, init=False)
    """When `unkept` was found."""
    _compared: dict[str, float] = field(default_factory=dict, init=False)
    _memory: dict[str, Memory] = field(default_factory=dict, init=False)

    def begin_term(self) -> None:
        """Another leader may have written meanwhile: what is stored is read again, and all clocks start from zero."""
        self.kept.clear()
        self.verdicts.clear()
        self.left.clear()
        self.differing.clear()
        self.unkept.clear()
        self._memory.clear()

    async def reconcile(self) -> float | None:
        settled = await self.each(JUDGED, self._look_at)
        if not all(settled):
            return LOOK_SECONDS
        return CONTENT_SECONDS if any(self.differing.values()) else None

    async def _look_at(self, component: Component) -> bool:
        settled = await self._judge(component)
        await self._compare_content(component)
        return settled

    async def _judge(self, component: Component) -> bool:
        """Judge one workload; whether the verdict is settled until something is observed to change."""
        live = judged_workload(self.view, component)
        policy = _policy(self.view)
        if live is None or policy is None or "deletionTimestamp" in live["metadata"]:
            self._forget(component)
            if live is None and is_add_on(component):
                self.kept.pop(component.name, None)  # what became of it is nobody's concern any more
            return True
        self.verdicts[component.name] = NOT_JUDGED
        self.left.pop(component.name, None)
        kept = await self._kept(component)
        if TRY_AGAIN in (live["metadata"].get("annotations") or {}):
            return await self._pardon(component, live, kept)
        level_3 = await self._level_3_in_place() if component.name == API_SERVER else {}
        observed = observe(self.view, component, live, etcd_up=self.etcd_up(), level_3=level_3)
        memory = self._memory.get(component.name, Memory())
        decision = rollback.decide(observed, memory, kept.record, policy, self.clock.monotonic())
        self._memory[component.name] = decision.memory
        self.verdicts[component.name] = (decision.verdict, decision.sentence)
        if decision.left is not None:
            self.left[component.name] = decision.left
        self.tell(f"{decision.verdict.value}: {decision.sentence}", component.name, revision=observed.revision)
        if decision.verdict is not rollback.Verdict.KEEP_AS_GOOD:
            self.unkept.pop(component.name, None)
        if decision.record != kept.record and decision.verdict not in STORED:
            # A verdict has expired: the next leader, which has not watched for so long, would go by it.
            await self._store(component, kept.with_record(decision.record))
        if decision.verdict is rollback.Verdict.KEEP_AS_GOOD:
            await self._keep(component, live, decision.record)
        elif decision.verdict is rollback.Verdict.ROLL_BACK:
            await self._roll_back(component, live, kept.with_record(decision.record), decision, observed)
        return decision.settled

    def _forget(self, component: Component) -> None:
        """The component is not hosted, or the requested state is not known."""
        self._memory.pop(component.name, None)
        self.verdicts.pop(component.name, None)
        self.left.pop(component.name, None)
        self.unkept.pop(component.name, None)

    async def _pardon(self, component: Component, live: Object, kept: LastGood) -> bool:
        """The user has asked to try again what was rolled back: first the record is cleared, then the request."""
        await self._store(component, kept.with_record(kept.record.pardoned()))
        self._memory.pop(component.name, None)
        annotations = {key: value for key, value in live["metadata"]["annotations"].items() if key != TRY_AGAIN}
        await self.kube.replace({**live, "metadata": {**live["metadata"], "annotations": annotations}})
        self.say("its rollbacks are forgotten: each revision is tried again", subject=component.name)
        return False

    async def try_again(self, component: Component, revisions: Collection[str]) -> None:
        """Forget that these revisions were rolled back: somebody asks for them again."""
        kept = await self._kept(component)
        record = functools.reduce(Record.without, revisions, kept.record)
        if record != kept.record:
            await self._store(component, kept.with_record(record))

    async def _kept(self, component: Component) -> LastGood:
        if component.name not in self.kept:
            self.kept[component.name] = await last_good.load(self.kube, component.name)
        return self.kept[component.name]

    # --- keep as good ----------------------------------------------------------------------------------

    async def _keep(self, component: Component, live: Object, record: Record) -> None:
        template, subject = live["spec"]["template"], f"{component.name} last good"
        if clash := await self._clashes(component, template):
            self.tell(f"healthy, but not kept as good: another component may be rolled back, and then {clash}", subject)
            return
        now = self.clock.monotonic()
        if component.name in self.unkept and now < self._refused[component.name] + CONTENT_SECONDS:
            return
        try:
            kept = await last_good.collect(self.kube, record, template, _applied(component, live))
        except UserError as error:
            sentences = f"healthy, but it cannot be kept as the last good revision: {error.what}; {error.fix}"
            self.unkept[component.name], self._refused[component.name] = sentences, now
            self.tell(sentences, subject)
            return
        self.unkept.pop(component.name, None)
        await self._store(component, kept)

    async def _clashes(self, component: Component, template: Object) -> str:
        """How the template would break rule 4 beside the last good revisions of the other components.

        If it were kept and another rollout in progress were rolled back, both would be good: neither would ever give
        way, and level 3 could not lead.
        """
        if is_add_on(component):
            return ""
        good = await self._good_images()
        api_servers = [image for one in TWO_SLOTS if one.name == API_SERVER and (image := good.pop(one.name, ""))]
        return breaks_skew(
            component.name,
            image_of(template, component.name),
            () if component.name == API_SERVER else api_servers,
            is_api_server=component.name == API_SERVER,
            level_3=good,
        )

    async def _level_3_in_place(self) -> dict[str, str]:
        """The images of level 3 that nothing rolls back: the good ones. One that is rolling out is judged by itself,
        and no API server is blamed for it."""
        good = await self._good_images()
        return {
            one.name: image
            for one in TWO_SLOTS
            if one.leads_by_lease and (image := good.get(one.name)) and is_in_place(self.view, one, image)
        }

    async def _good_images(self) -> dict[str, str]:
        """Of each component that is hosted and has a last good revision."""
        hosted = [component for component in TWO_SLOTS if workload(self.view, component) is not None]
        kept = {component.name: (await self._kept(component)).template for component in hosted}
        return {name: image_of(template, name) for name, template in kept.items() if template is not None}

    # --- roll back -------------------------------------------------------------------------------------

    async def _roll_back(
        self,
        component: Component,
        live: Object,
        kept: LastGood,
        decision: rollback.Decision,
        observed: Observed,
    ) -> None:
        if kept.template is None:
            return
        edited = await last_good.edited(self.kube, kept)
        if edited:
            kept = kept.with_record(kept.record.with_edited(observed.revision))
        await self._store(component, kept)
        self._differs(component, await last_good.restore(self.kube, kept))
        hints = [
            f"{name} has been edited since that revision was found healthy, and may be the cause" for name in edited
        ]
        await self._explain(component, live, kept.record, decision, hints)
        # The pods of a Deployment wait for no place, and its controller would make others at once.
        is_waited_for = component.kind == "DaemonSet"
        useless = rollback.never_served(observed, decision.memory) if is_waited_for else frozenset[str]()
        never_ran = frozenset(name for name in useless if has_never_run(self._named(name)))
        await self._end(useless - never_ran, HURRIED_SECONDS)
        if await self._exchange_template(live, kept):
            await self._end(never_ran, 0)
            self.counted(component.name)
            self.say(
                f"rolled back: {decision.sentence}",
                subject=component.name,
                failed=kept.record.current,
                good=kept.record.good,
            )

    async def _compare_content(self, component: Component) -> None:
        """Once after a rollback, then repeatedly while something differs: until it is restored, or until another
        revision is healthy."""
        kept, name = self.kept.get(component.name), component.name
        if kept is None or kept.record.current is None or name not in self.verdicts:
            self.differing.pop(name, None)
            return
        found, again = self.differing.get(name), self._compared.get(name, 0.0) + CONTENT_SECONDS
        if found is None or (found and self.clock.monotonic() >= again):
            self._differs(component, await last_good.differing(self.kube, kept))

    def _differs(self, component: Component, sentences: list[str]) -> None:
        self.differing[component.name] = sentences
        self._compared[component.name] = self.clock.monotonic()
        for sentence in sentences:
            self.tell(f"the last good revision may not start: {sentence}", f"{component.name} objects")

    async def _exchange_template(self, live: Object, kept: LastGood) -> bool:
        """Whether it was done: not if somebody has changed the template meanwhile. A conflict with controllers, which
        keep writing the status during a rollout, is no reason to give up."""
        failed = revision_of(live["spec"]["template"])
        for _ in range(EXCHANGE_TRIES):
            try:
                good = live if kept.applied is None else applied.with_recorded_template(live, kept.applied)
                await self.kube.replace({**good, "spec": {**live["spec"], "template": kept.template}})
            except Conflict:
                meta = live["metadata"]
                found = await self.kube.get(live["apiVersion"], live["kind"], meta["name"], meta["namespace"])
                if found is None or revision_of(found["spec"]["template"]) != failed:
                    return False
                live = found
            else:
                return True
        return False

    async def _end(self, pods: frozenset[str], grace_seconds: int) -> None:
        """Delete failed pods that never served, without the grace period that a serving one needs.

        The good pod waits for them, since two cannot share the port; and a server that never finished starting
        ignores SIGTERM: it would stay for its full grace period (six minutes). This happens before the template is
        exchanged, because a kubelet that has started to stop a pod cannot be hurried; the controller creates no other
        pod of the failed revision while these are still there, which is longer than the exchange takes.

        Those of which no container ever ran are removed from the API at once, after the exchange: a kubelet that waits
        for a registry that does not answer does nothing else with the pod for a minute, and there is nothing to stop.
        """
        for name in sorted(pods):
            await self.kube.delete("v1", "Pod", name, SYSTEM, grace_seconds=grace_seconds)

    async def _store(self, component: Component, kept: LastGood) -> None:
        """In this order, so that what this process believes to be stored is stored."""
        self.kept.pop(component.name, None)
        await last_good.save(self.kube, component.name, kept)
        self.kept[component.name] = kept

    async def _explain(
        self, component: Component, live: Object, record: Record, decision: rollback.Decision, hints: list[str]
    ) -> None:
        """An event on the workload. A failure to write it does not stop the rollback."""
        sentences = [decision.sentence, *self.differing[component.name], *hints]
        message = f"Rolling back to the last healthy revision: {'. '.join(sentences)}."
        failed = self._pod(decision.pod)
        words = await last_words(self.kube, failed) if failed is not None else ""
        if words:
            message += f" {words}"
        # The number of rollbacks does not identify an occasion: it is reset when the revision is to be tried again.
        token = f"{record.current}-{live['metadata'].get('generation', 0)}"
        try:
            await report(self.kube, live, "RolledBack", message, by=OPERATOR, token=token, now=self.clock.time())
        except AutarkyError as error:
            self.say(f"the event about a rollback was not written: {error}", subject=live["metadata"]["name"])

    def _pod(self, pod: Pod | None) -> Object | None:
        return None if pod is None else self._named(pod.name)

    def _named(self, name: str) -> Object | None:
        return self.view.pods.items.get((SYSTEM, name))


def _applied(component: Component, live: Object) -> Object | None:
    """The template that `up` applied, where it goes back. That of components with two slots does not: what the file
    asks for there is not wrong because it has failed once, and `autarky up` says that it differs."""
    return applied.recorded_template(live) if component not in TWO_SLOTS else None


def _policy(view: View) -> Policy | None:
    """What the ControlPlane says; the defaults where there is none; None while that is not known."""
    plane = view.control_plane
    if plane is None:
        return Policy() if current([view.planes]) else None
    wanted = plane["spec"].get("rollback") or {}
    return Policy(wanted.get("enabled", True), float(wanted.get("limitSeconds", 90)))
