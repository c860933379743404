"""The agent's loop on a control node: observe, decide, act, log one sentence.

Contract: level-triggered; every reconcile observes everything again, so a missed event costs REST_SECONDS. An
unreachable API is an input like any other. All decisions are made by the `decide` of each subject; this module only
observes and acts. Each action is atomic, so the process may be killed between any two.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from autarky.control.agents.manifests import node_agent as agent
from autarky.control.base import node_metrics as metrics
from autarky.control.base.controller import Controller
from autarky.control.base.decision_log import DecisionLog
from autarky.control.base.node_view import ApiView
from autarky.control.base.pending_events import PendingEvents
from autarky.control.base.shield import Run, Shield
from autarky.control.checkpoint.manifests import is_checkpoint
from autarky.control.checkpoint.node.checkpointer import Checkpointer
from autarky.control.checkpoint.node.follower import Follower
from autarky.control.checkpoint.node.images import ImageKeeping
from autarky.control.common.pods import pod_health
from autarky.control.control_nodes.node import role_on_disk
from autarky.control.etcd.node.quorum import EtcdQuorum
from autarky.control.leadership.decide import leader as leadership
from autarky.control.leadership.node.lease_again import LeaseAgain
from autarky.control.slots.decide import pivot as slots
from autarky.control.slots.decide import report as node_slots
from autarky.control.slots.node import announce
from autarky.control.slots.node import on_disk as slots_on_disk
from autarky.control.slots.node import ports as ports_seen
from autarky.control.slots.node.announce import Announcer
from autarky.control.slots.node.hand_over import HandOver
from autarky.control.slots.node.running_here import RunningHere
from autarky.errors import AutarkyError
from autarky.kube import KubeClient
from autarky.model.components import (
    API_SERVER,
    COMPONENTS,
    LED_BY_LEASE,
    NODE_AGENT,
    WITH_STANDBY,
)
from autarky.ports import Clock, Object

LOOK_SECONDS = 0.5
"""A hosted API server drains for 15 s and its standby needs 5 s to start, so half a second is soon enough."""
REST_SECONDS = 2.0
"""Between two complete reconciles while the node's API server serves from its hosted slot and the API reports no
change: only its port is tested meanwhile."""
VERBS = {slots.Action.ACTIVATE_STANDBY: "activate", slots.Action.WITHDRAW_STANDBY: "withdraw"}
REASONS = {slots.Action.ACTIVATE_STANDBY: "StandbyActivated", slots.Action.WITHDRAW_STANDBY: "StandbyWithdrawn"}
COUNTERS = {slots.Action.ACTIVATE_STANDBY: metrics.ACTIVATIONS, slots.Action.WITHDRAW_STANDBY: metrics.WITHDRAWALS}


@dataclass(slots=True)
class NodeAgent(Controller):
    """Methods other than `reconcile` return what the last reconcile observed.

    hosted: whether this process is that of the DaemonSet. others_serve: whether an API server of another node does.
    """

    name: ClassVar[str] = "slots"
    rest: ClassVar[float | None] = LOOK_SECONDS

    node: str
    kube: KubeClient
    api: ApiView
    own_ports: ports_seen.OwnPorts
    clock: Clock
    log: DecisionLog
    quorum: EtcdQuorum
    images: ImageKeeping
    hosted: bool
    hand_over: HandOver
    running: RunningHere
    others_serve: Callable[[], Awaitable[bool]]
    checkpointers: Mapping[str, Checkpointer] = field(init=False)
    followers: Mapping[str, Follower] = field(init=False)
    own_checkpointer: Checkpointer = field(init=False)
    announcer: Announcer = field(init=False)
    lease_again: LeaseAgain = field(init=False)
    _memory: slots.Memory = field(default_factory=slots.Memory)
    _leases: dict[str, leadership.LeaseMemory] = field(default_factory=dict)
    _serves: dict[str, bool] = field(default_factory=dict)
    _withdrawn: set[str] = field(default_factory=set)
    """The components whose standby this process has withdrawn."""
    _has_served: bool = False
    """Whether this process has seen the hosted API server of its node serve."""
    _rests_until: float = 0.0
    _shields: dict[str, Shield] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.announcer = Announcer(
            *(self.node, self.kube, self.api, self.clock, self.log.tell, PendingEvents(self.log.tell)),
            agent=os.environ.get(agent.POD_UID, ""),
        )
        self.lease_again = LeaseAgain(self.kube, self.heard)
        parts = (self.kube, self.api, self.clock, self.images, self.log.tell, self.announcer.happened)
        self.checkpointers = {component: Checkpointer(component, *parts) for component in WITH_STANDBY}
        follows = (self.kube, self.api, self.clock, self.images, self.log.tell)
        self.followers = {component: Follower(component, *follows) for component in LED_BY_LEASE}
        self.own_checkpointer = Checkpointer(NODE_AGENT, *parts, prepare=agent.standby_agent)

    async def etcd_up(self) -> bool:
        """Whether etcd's quorum serves, wherever its members are."""
        return await self.quorum.is_up()

    def hosted_serves(self, component: str) -> bool:
        """As of the last reconcile; False when that is not known."""
        return self._serves.get(component, False)

    def heard(self) -> None:
        """The API has reported a change: the next reconcile is a complete one."""
        self._rests_until = 0.0

    async def reconcile(self) -> None:
        """Observe everything and act; while this node rests, test its API server's port only."""
        hosted = self.hand_over.judged(await self.own_ports.hosted_api_server())
        now = self.clock.monotonic()
        if hosted is slots.Health.READY and now < self._rests_until:
            return
        self._rests_until = now + REST_SECONDS  # a change that is reported meanwhile resets it
        if not await self._pass(hosted):
            self._rests_until = 0.0

    async def _pass(self, hosted_api_server: slots.Health) -> bool:
        """Returns whether the node may rest now. An unexpected failure of one part does not stop the others."""
        if role_on_disk.leaves():
            await self._leave()
            return False
        await self._part("level", self._follow_wanted_level)
        lowest = slots_on_disk.wanted_level()
        if lowest is None:
            self.log.tell("level", "which levels are hosted is not known yet")
            return False
        active = slots_on_disk.active_standbys()
        etcd_up = await self.etcd_up()
        parts: dict[str, Run] = {
            API_SERVER: partial(self._api_server, hosted_api_server, _wanted(API_SERVER, lowest), active, etcd_up),
            **{c: partial(self._controller, c, _wanted(c, lowest), active, etcd_up) for c in LED_BY_LEASE},
            NODE_AGENT: partial(self._standby_agent, etcd_up),
            "annotation": partial(self._announce, lowest, active),
        }
        done = [await self._part(name, run) for name, run in parts.items()]
        return all(done) and etcd_up and active is not None and not any(active.values())

    async def _part(self, name: str, run: Run) -> bool:
        """Returns whether it ran and succeeded."""
        shield = self._shields.setdefault(name, Shield(name, self.clock, self.log.tell))
        return await shield.attempt(run)

    async def _announce(self, lowest: int, active: Mapping[str, bool] | None) -> None:
        """When the standbys cannot be read, the last report stays."""
        if active is None:
            return
        standby_balanced = await ports_seen.standby_balanced(self.node) if active[API_SERVER] else False
        slots_now = {c: self._slots(c, active=active[c], balanced=bool(standby_balanced)) for c in WITH_STANDBY}
        self.announcer.wants(lowest, slots_now)

    def _slots(self, component: str, *, active: bool, balanced: bool) -> node_slots.Slots:
        hosted, standby = self.api.hosted_pod(component), self.api.standby_pod(component)
        ready = standby is not None and pod_health(standby) is slots.Health.READY
        version, emulates = announce.current_version(component)
        return node_slots.Slots(
            slot=node_slots.slot_name(hosted=hosted is not None, standby=active),
            revision=node_slots.revision_of(hosted),
            standby=announce.current_revision(component),
            version=version,
            emulates=emulates,
            checkpoint=announce.checkpoint_stamp(component),
            serves=active and (balanced if component == API_SERVER else ready),
            refused=self._refused(component),
        )

    def _refused(self, component: str) -> str:
        """Why the standby is not made a copy of what runs here, or of what is good on another node."""
        follower = self.followers.get(component)
        return self.checkpointers[component].refused or ("" if follower is None else follower.refused)

    async def _leave(self) -> None:
        """This node is no longer a control node: nothing replaces what stops here. Other nodes serve."""
        self.hand_over.go_on()
        active = slots_on_disk.active_standbys() or {}
        for component in (component for component, is_active in active.items() if is_active):
            why = "this node becomes a worker: its standby is withdrawn"
            self.log.tell(component, why)
            await self._act(component, (slots.Action.WITHDRAW_STANDBY,), why)

    async def _follow_wanted_level(self) -> None:
        level = self.api.lowest_hosted_level
        if level is None:
            return
        try:
            slots_on_disk.remember_wanted_level(level)
        except OSError as error:  # a full disk must not keep standbys from being withdrawn
            self.log.tell("level on disk", f"the hosted levels cannot be written to disk: {error}")

    # --- level 2 ---

    async def _api_server(
        self, hosted: slots.Health, wanted: slots.Slot, active: Mapping[str, bool] | None, etcd_up: bool
    ) -> None:
        component = API_SERVER
        self._serves[component] = hosted is slots.Health.READY
        standby_active = None if active is None else active[component]
        serves = hosted is slots.Health.READY and standby_active
        self._has_served |= hosted is slots.Health.READY
        first = self._is_first(component)
        seen = slots.Seen(
            hosted=hosted,
            standby_active=standby_active,
            balanced=await ports_seen.balanced(self.node) if serves else None,
            balancer_applies=True,
            etcd_up=etcd_up,
            covered=first and not self._has_served and standby_active is False and await self.others_serve(),
        )
        settle = slots.settle_seconds(first=first)
        decision = slots.decide(wanted, seen, self._memory, self.clock.monotonic(), settle=settle)
        self._memory = decision.memory
        self.log.tell(component, decision.sentence)
        await self._act(component, decision.actions, decision.sentence)
        if self.hand_over.pending and (not etcd_up or await ports_seen.standby_balanced(self.node)):
            self.hand_over.go_on()
        await self.checkpointers[component].reconcile(wanted, hosted, etcd_up=etcd_up)

    # --- level 3 ---

    async def _controller(
        self, component: str, wanted: slots.Slot, active: Mapping[str, bool] | None, etcd_up: bool
    ) -> None:
        pod = self.api.hosted_pod(component)
        seen = leadership.Seen(
            hosted=await self._health_of(pod),
            hosted_pod=None if pod is None else pod["metadata"]["uid"],
            standby_active=None if active is None else active[component],
            lease=self.api.lease(component),
            elsewhere=leadership.is_held_elsewhere(self.api.lease(component), socket.gethostname()),
            readable=etcd_up and self.api.leases_readable(component),
            candidates=self.api.reported_of(component).elsewhere(self.node),
        )
        memory = self._leases.get(component, leadership.LeaseMemory())
        settle = slots.settle_seconds(first=self._is_first(component))
        found = leadership.decide(wanted, seen, memory, self.clock.monotonic(), settle=settle)
        if slots.Action.ACTIVATE_STANDBY not in found.decision.actions:
            self.lease_again.forget(component)
        elif (is_still := self.lease_again.is_still(component, seen.lease)) is None:
            return  # the memory stays: the decision does not change while the API is asked
        elif not is_still:
            self._leases[component] = leadership.after_outage(memory)
            return
        self._leases[component] = found.memory
        self.log.tell(component, found.decision.sentence)
        await self._act(component, found.decision.actions, found.decision.sentence)
        # Ready is not enough: a pod that did not lead when it could is not worth keeping, even if another node leads.
        has_failed = found.memory.failed is not None
        leads = seen.hosted is slots.Health.READY and found.decision.settled and not has_failed
        self._serves[component] = leads and seen.readable
        proven = slots.Health.READY if leads else slots.Health.NOT_READY
        judged = proven if seen.readable else slots.Health.UNKNOWN
        await self.checkpointers[component].reconcile(wanted, judged, etcd_up=etcd_up)
        await self.followers[component].reconcile(wanted, seen.hosted if seen.readable else slots.Health.UNKNOWN)

    # --- the agent itself ---

    async def _standby_agent(self, etcd_up: bool) -> None:
        """Checkpoint this hosted agent, which has been healthy; a waiting one has not proved anything."""
        if not self.hosted:
            return
        pod = self.api.hosted_pod(NODE_AGENT)
        seen = await self._health_of(pod) if self.api.pods_readable else slots.Health.UNKNOWN
        await self.own_checkpointer.reconcile(slots.Slot.HOSTED, seen, etcd_up=etcd_up)

    async def _health_of(self, pod: Object | None) -> slots.Health:
        """As the API shows it, unless that dates from before this boot."""
        return slots.Health.ABSENT if pod is None else pod_health(pod, runs=await self.running.runs(pod))

    def _is_first(self, component: str) -> bool:
        """Whether this node has not pivoted yet, as far as is known: its standby is what `up` wrote."""
        return component not in self._withdrawn and not is_checkpoint(announce.current_revision(component))

    # --- acting ---

    async def _act(self, component: str, actions: tuple[slots.Action, ...], why: str) -> None:
        for action in actions:
            try:
                await slots_on_disk.run_script(VERBS[action], component)
                if action is slots.Action.WITHDRAW_STANDBY:
                    self._withdrawn.add(component)
                COUNTERS[action].labels(component).inc()
                self.log.say(f"{action.value}: done", component=component)
                self.announcer.happened(REASONS[action], f"{component}: {why}")
            except AutarkyError as error:
                self.log.tell(f"{component} {action.value}", f"{action.value} failed: {error}")


def _wanted(component: str, lowest_hosted: int) -> slots.Slot:
    return slots.Slot.HOSTED if lowest_hosted <= COMPONENTS[component].level else slots.Slot.STANDBY
