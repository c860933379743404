"""The duty of judging rollouts of the hosted control plane, and of taking back those that fail.

Contract: what was decided is stored before it is done, so that an operator killed at any point goes on where
it was: record, then the objects that the good template needs, then the event, then the end of failed pods that
the good ones would wait for, then the template itself, by replacing the live object under its resourceVersion
with nothing else changed. (Server-side apply could not take out what `kubectl edit` owns.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from autarky.agents.operator import last_good
from autarky.agents.operator.duty import Duty
from autarky.agents.operator.events import report
from autarky.agents.operator.last_good import LastGood
from autarky.agents.operator.trouble import last_words
from autarky.agents.operator.view import View, current
from autarky.agents.operator.workloads import COMPONENTS, Component, observe, revision_of, workload
from autarky.decide import rollback
from autarky.errors import AutarkyError, Conflict, UserError
from autarky.ports import Clock, Kube, Object
from autarky.render.values import SYSTEM

LOOK_SECONDS = 1.0
"""Between two looks while clocks run."""
EXCHANGE_TRIES = 5
HURRIED_SECONDS = 1
"""0 would be a removal from the API without a word to the kubelet."""


@dataclass(slots=True)
class Rollouts(Duty):
    """etcd_up: whether a write went through just now. counted: hears of each component that went back.

    `verdicts` is for the status: component → (verdict, sentence) of the last round.
    """

    view: View
    kube: Kube
    clock: Clock
    etcd_up: Callable[[], bool]
    counted: Callable[[str], None]
    name: str = "rollouts"
    verdicts: dict[str, tuple[rollback.Verdict, str]] = field(default_factory=dict, init=False)
    kept: dict[str, LastGood] = field(default_factory=dict, init=False)
    _memory: dict[str, rollback.Memory] = field(default_factory=dict, init=False)

    def begin_term(self) -> None:
        """Another leader may have written meanwhile: what is stored is read anew, and no time has passed."""
        self.kept.clear()
        self._memory.clear()

    async def round(self) -> float | None:
        settled = [await self._judge(component) for component in COMPONENTS]
        return None if all(settled) else LOOK_SECONDS

    async def _judge(self, component: Component) -> bool:
        """One look at one workload; whether nothing more will come of it by itself."""
        live = workload(self.view, component)
        policy = _policy(self.view)
        if live is None or policy is None or "deletionTimestamp" in live["metadata"]:
            self._forget(component)
            return True
        kept = await self._kept(component)
        observed = observe(self.view, component, live, etcd_up=self.etcd_up())
        memory = self._memory.get(component.name, rollback.Memory())
        decision = rollback.decide(observed, memory, kept.record, policy, self.clock.monotonic())
        self._memory[component.name] = decision.memory
        self.verdicts[component.name] = (decision.verdict, decision.sentence)
        self.tell(f"{decision.verdict.value}: {decision.sentence}", component.name, revision=observed.revision)
        if decision.verdict is rollback.Verdict.KEEP_AS_GOOD:
            await self._keep(component, live, decision.record)
        elif decision.verdict is rollback.Verdict.ROLL_BACK:
            await self._roll_back(component, live, kept.with_record(decision.record), decision, observed)
        return decision.settled

    def _forget(self, component: Component) -> None:
        """The component is not hosted, or what it should be is not known."""
        self._memory.pop(component.name, None)
        self.verdicts.pop(component.name, None)

    async def _kept(self, component: Component) -> LastGood:
        if component.name not in self.kept:
            self.kept[component.name] = await last_good.load(self.kube, component.name)
        return self.kept[component.name]

    async def _keep(self, component: Component, live: Object, record: rollback.Record) -> None:
        template = live["spec"]["template"]
        try:
            objects = await last_good.collect(self.kube, template)
        except UserError as error:
            self.tell(f"healthy, but it cannot be kept as the last good revision: {error.what}", component.name)
            return
        await self._store(component, LastGood(record, template, objects))

    async def _roll_back(
        self,
        component: Component,
        live: Object,
        kept: LastGood,
        decision: rollback.Decision,
        observed: rollback.Observed,
    ) -> None:
        if kept.template is None:
            return
        await self._store(component, kept)
        for sentence in await last_good.restore(self.kube, kept):
            self.tell(f"going back to a revision that may not start: {sentence}", f"{component.name} objects")
        await self._explain(live, kept.record, decision)
        if not component.leads_by_lease:
            await self._end(rollback.never_served(observed, decision.memory))
        if await self._exchange_template(live, kept.template):
            self.counted(component.name)
            self.say(
                f"rolled back: {decision.sentence}",
                subject=component.name,
                failed=kept.record.current,
                good=kept.record.good,
            )

    async def _exchange_template(self, live: Object, template: Object) -> bool:
        """Whether it was done: not if somebody has changed the template meanwhile. Controllers write to the
        status all the time in a rollout, which is no reason to give up."""
        failed = revision_of(live["spec"]["template"])
        for _ in range(EXCHANGE_TRIES):
            try:
                await self.kube.replace({**live, "spec": {**live["spec"], "template": template}})
            except Conflict:
                meta = live["metadata"]
                found = await self.kube.get(live["apiVersion"], live["kind"], meta["name"], meta["namespace"])
                if found is None or revision_of(found["spec"]["template"]) != failed:
                    return False
                live = found
            else:
                return True
        return False

    async def _end(self, pods: frozenset[str]) -> None:
        """End failed API servers that never served, without the time that one that serves needs.

        The good one waits for them, since two cannot share the port; and a server whose start never came to an
        end does not heed SIGTERM: it would stay for its whole grace period (75 s). Before the template is
        exchanged, because a kubelet that has begun to stop a pod cannot be hurried; the controller makes no other
        pod of the failed revision while these are still there, which is longer than the exchange takes.
        """
        for name in sorted(pods):
            await self.kube.delete("v1", "Pod", name, SYSTEM, grace_seconds=HURRIED_SECONDS)

    async def _store(self, component: Component, kept: LastGood) -> None:
        """In this order: what is believed to be stored is stored."""
        self.kept.pop(component.name, None)
        await last_good.save(self.kube, component.name, kept)
        self.kept[component.name] = kept

    async def _explain(self, live: Object, record: rollback.Record, decision: rollback.Decision) -> None:
        """An event on the workload. That it cannot be written keeps nothing from going back."""
        message = f"Rolling back to the last healthy revision: {decision.sentence}."
        failed = self._pod(decision.pod)
        words = await last_words(self.kube, failed) if failed is not None else ""
        if words:
            message += f" {words}"
        failure = record.failure(record.current)
        token = f"{record.current}-{failure.count if failure else 0}"
        try:
            await report(self.kube, live, "RolledBack", message, token=token, now=self.clock.time())
        except AutarkyError as error:
            self.say(f"the event on a rollback was not written: {error}", subject=live["metadata"]["name"])

    def _pod(self, pod: rollback.Pod | None) -> Object | None:
        return None if pod is None else self.view.pods.items.get((SYSTEM, pod.name))


def _policy(view: View) -> rollback.Policy | None:
    """What the ControlPlane says; the defaults where there is none; None while that is not known."""
    plane = view.control_plane
    if plane is None:
        return rollback.Policy() if current([view.planes]) else None
    wanted = plane["spec"].get("rollback") or {}
    return rollback.Policy(wanted.get("enabled", True), float(wanted.get("limitSeconds", 90)))
