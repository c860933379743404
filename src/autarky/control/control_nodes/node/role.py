"""Becoming a control node, and ceasing to be one, when the operator and a label say so.

Contract: `decide.procedure` says what comes when, and which writes in which order; this observes, and carries them
out. A node that
has everything (from `up`, or an earlier run) is reported and not touched. Errors are reported on the Node
and retried. When the node's role has changed, `role_changed` is set: the agent restarts in its new role.

Dangers: parts in use are removed only when the operator says so (`leave`), and any only after everything that served
has stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from autarky.control.base.controller import Controller
from autarky.control.common.pods import internal_address
from autarky.control.control_nodes.decide.observed import ANNOTATION, JOINING, READY, OwnNode, labels_and_report
from autarky.control.control_nodes.decide.procedure import OwnStep, Write
from autarky.control.control_nodes.decide.roles import own_row
from autarky.control.control_nodes.node import parts as control_parts
from autarky.control.control_nodes.node import role_on_disk
from autarky.control.control_nodes.node.parts import ControlParts, NotYet
from autarky.control.control_nodes.node.role_on_disk import State
from autarky.control.slots.manifests import Revision
from autarky.control.slots.node import on_disk as slots_on_disk
from autarky.control.slots.node import ports as ports_seen
from autarky.errors import AutarkyError
from autarky.model import ports
from autarky.model.components import COMPONENTS, WITH_STANDBY
from autarky.model.levels import HostedLevels
from autarky.ports import Clock, Kube, Object
from autarky.render.crds import API_VERSION, CONTROL_PLANE
from autarky.render.values import CONTROL_PLANE_ACTIVE, CONTROL_PLANE_REQUESTED

POLL_SECONDS = 1.0
"""Between two looks while there is something to do."""
REST_SECONDS = 30.0
"""Between two looks at the disk when nothing has changed."""
SERVING_PORTS = tuple(port for name in WITH_STANDBY for port in COMPONENTS[name].ports)


@dataclass(slots=True)
class ControlNode(Controller):
    """own_node: the Node as last seen, None before. balance: brings the load balancer in line with
    `role_on_disk`, at once. tell(subject, sentence): logs a sentence once."""

    name: ClassVar[str] = "control node"
    longest_pause: ClassVar[float] = 5.0  # the operator waits for it

    node: str
    kube: Kube
    parts: ControlParts
    own_node: Callable[[], Object | None]
    balance: Callable[[], Awaitable[object]]
    clock: Clock
    tell: Callable[[str, str], None]
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """To be set when the live Node may have changed."""
    role_changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def reconcile(self) -> float:
        return POLL_SECONDS if await self.look() else REST_SECONDS

    async def look(self) -> bool:
        """Look and act once; returns whether there is more to do."""
        live = self.own_node()
        if live is None:
            return True
        requested, active, reported = labels_and_report(live["metadata"], CONTROL_PLANE_REQUESTED, CONTROL_PLANE_ACTIVE)
        ready = self._ready()
        row = own_row(OwnNode(requested, active, reported, ready, role_on_disk.is_unfinished()))
        match row.step:
            case OwnStep.NOTHING:
                return False
            case OwnStep.ANNOUNCE:
                self._stay()
                await self._announce(live, ready)
            case OwnStep.BECOME:
                await self._become(live, row.writes)
            case OwnStep.CEASE:
                await self._cease(live, row.writes)
        return True

    def _ready(self) -> str | None:
        """What to report of what is on the disk; None while it is incomplete, or being removed."""
        if role_on_disk.is_unfinished():
            return None
        found = control_parts.complete()
        return None if found is None else f"{READY}{found}"

    def _stay(self) -> None:
        """It was leaving, and stays after all."""
        if role_on_disk.state() is State.LEAVING:
            role_on_disk.remember(State.READY)

    async def _announce(self, live: Object, text: str | None) -> None:
        if (live["metadata"].get("annotations") or {}).get(ANNOTATION) != text:
            await self.kube.patch("v1", "Node", self.node, {"metadata": {"annotations": {ANNOTATION: text}}})
            self.tell("control node", f"reported on the Node: {text or 'nothing any more'}")

    # --- becoming --------------------------------------------------------------------------------------

    async def _become(self, live: Object, writes: Sequence[Write]) -> None:
        """While something is missing, that is reported on the Node: it is how the operator knows."""
        if not role_on_disk.acts_as_control_node():
            role_on_disk.remember(State.PREPARED if role_on_disk.state() is State.PREPARED else State.JOINING)
        hands = self._makes(live)
        try:
            for write in writes:
                await hands[write]()
        except NotYet as error:
            self.tell("control node", error.what)
            await self._announce(live, f"{JOINING}{error.what}")
        except AutarkyError as error:
            await self._announce(live, f"{JOINING}failed, retrying: {error}"[:500])
            raise

    def _makes(self, live: Object) -> Mapping[Write, Callable[[], Awaitable[None]]]:
        """What carries out each write that makes a control node. Each is done again after an interruption."""
        revisions: list[Revision] = []
        with_etcd = False

        async def write_standbys() -> None:
            if internal_address(live) is None:
                raise NotYet("its Node has no address yet")
            revisions[:] = await self.parts.revisions()
            self.parts.write(revisions)

        async def fetch_keys() -> None:
            nonlocal with_etcd
            await self.parts.authorities()
            with_etcd = await self.parts.leaves(live)
            await self._remember_level()

        async def balance() -> None:
            if not role_on_disk.acts_as_control_node():
                role_on_disk.remember(State.PREPARED)
            await self._balanced(etcd=with_etcd)

        async def use_standbys() -> None:
            await self.parts.switch(revisions)
            role_on_disk.remember(State.READY)
            self.tell("control node", "all parts of a control node are in place")

        async def report() -> None:
            await self._announce(live, self._ready())
            self.role_changed.set()

        return {
            Write.STANDBYS: write_standbys,
            Write.KEYS: fetch_keys,
            Write.BALANCE_AS_CONTROL_NODE: balance,
            Write.USE_STANDBYS: use_standbys,
            Write.REPORT: report,
        }

    async def _remember_level(self) -> None:
        """Which levels are hosted: known at the next boot, with or without the API."""
        plane = await self.kube.get(API_VERSION, "ControlPlane", CONTROL_PLANE)
        if plane is None:
            raise NotYet("there is no ControlPlane, which says which levels are hosted")
        slots_on_disk.remember_wanted_level(HostedLevels.parse(plane["spec"]["selfHosted"]).lowest)

    async def _balanced(self, *, etcd: bool) -> None:
        await self.balance()
        if etcd and not await ports_seen.listens(ports.NLLB_ETCD):
            raise NotYet("its load balancer does not lead to etcd yet")

    # --- ceasing ---------------------------------------------------------------------------------------

    async def _cease(self, live: Object, writes: Sequence[Write]) -> None:
        """From here on nothing starts; what runs is stopped; then its parts are removed; the Node is updated last."""
        if role_on_disk.state() is None and not control_parts.has_standbys():
            await self._announce(live, None)  # an earlier run did the rest
            return
        hands = self._unmakes(live)
        try:
            for write in writes:
                await hands[write]()
        except NotYet as error:
            self.tell("control node", f"it leaves: {error.what}")

    def _unmakes(self, live: Object) -> Mapping[Write, Callable[[], Awaitable[None]]]:
        async def report() -> None:
            await self._announce(live, None)
            self.role_changed.set()

        return {
            Write.BALANCE_AS_WORKER: self._balance_as_worker,
            Write.REMOVE_PARTS: self._remove_parts,
            Write.REPORT_NOTHING: report,
        }

    async def _balance_as_worker(self) -> None:
        if role_on_disk.acts_as_control_node():
            role_on_disk.remember(State.LEAVING)
        if runs := await self._what_runs():
            raise NotYet(runs)
        role_on_disk.forget_initial_membership()
        role_on_disk.remember(State.CEASING)
        await self.balance()
        if await ports_seen.listens(ports.NLLB_ETCD):
            raise NotYet("its load balancer still leads to etcd")

    async def _remove_parts(self) -> None:
        control_parts.remove_standbys()
        if (none := control_parts.keep_way_back(self.node)) is not None:  # the keys are removed all the same
            self.tell(
                "way back", f"once its certificate has expired, its kubelet has no credential to rejoin with: {none}"
            )
        control_parts.remove_credentials()
        control_parts.sync_removals()
        role_on_disk.forget()
        self.tell("control node", "all parts of a control node are removed: this node is a worker")

    async def _what_runs(self) -> str:
        """Which part of a control node still runs here, as a clause; empty when none does. Withdraws standbys."""
        if control_parts.has_etcd_member():
            return "its etcd member is still there"
        for component in WITH_STANDBY:
            if slots_on_disk.manifest_paths_of(component):
                await slots_on_disk.run_script("withdraw", component)
        busy = [port for port in SERVING_PORTS if await ports_seen.listens(port)]
        return f"something still listens on {', '.join(map(str, busy))}" if busy else ""
