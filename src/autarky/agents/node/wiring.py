"""The composition root of the node agent: its identity, its clients, its tasks."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from autarky import places
from autarky.agents.log import logger
from autarky.agents.node import agent as node_agent
from autarky.agents.node import lock, own_identity
from autarky.agents.node.lock import Hold
from autarky.clock import SystemClock
from autarky.control.agents.manifests.node_agent import KUBELET_PKI, SLOT
from autarky.control.agents.node import ParkedAgent
from autarky.control.base import health, rounds
from autarky.control.base import node_metrics as metrics
from autarky.control.base.decision_log import Say, Told
from autarky.control.base.node_view import ApiView
from autarky.control.base.shield import Shield
from autarky.control.base.waiting import changed_within
from autarky.control.certificates.manifests import leaves
from autarky.control.certificates.node import LeafKeeping
from autarky.control.checkpoint.node.images import ImageKeeping
from autarky.control.clocks.node.clock_watch import ClockWatch
from autarky.control.clocks.node.unhiding import Unhiding
from autarky.control.common import understood
from autarky.control.control_nodes.node import role_on_disk
from autarky.control.control_nodes.node.parts import ControlParts
from autarky.control.control_nodes.node.role import ControlNode
from autarky.control.etcd.manifests.members import KIND
from autarky.control.etcd.node.membership import EtcdMembership
from autarky.control.etcd.node.quorum import EtcdQuorum
from autarky.control.leadership.node.stale_leases import Undertaker
from autarky.control.load_balancer.node.balancer import LoadBalancer
from autarky.control.slots.node import on_disk as slots_on_disk
from autarky.control.slots.node.activation_watch import ActivationWatch
from autarky.control.slots.node.hand_over import HandOver
from autarky.control.slots.node.ports import OwnPorts
from autarky.control.slots.node.running_here import RunningHere
from autarky.control.slots.node.standby_coming import StandbyComing
from autarky.control.slots.node.stop_paths import StopPaths
from autarky.cri.client import CriClient
from autarky.cri.images import ImageKeeper
from autarky.errors import AutarkyError
from autarky.kube import KubeClient, Reflector
from autarky.model import ports
from autarky.model.components import API_SERVER, LED_BY_LEASE, NODE_AGENT, WITH_STANDBY
from autarky.net.tls import client_context
from autarky.ports import Object
from autarky.render.crds import API_VERSION
from autarky.render.kubeconfig import LOCAL_SERVER
from autarky.render.node import KUBELET_KUBECONFIG
from autarky.render.values import SYSTEM
from autarky.store import NOT_UNDERSTOOD

ROTATED = Path(f"{KUBELET_PKI}/kubelet-client-current.pem")
KUBECONFIG = Path(KUBELET_KUBECONFIG)
CA = Path(f"{places.PKI}/ca.crt")
IDLE_SECONDS = 10.0


class Duty(Protocol):
    """Something that goes on beside the agent's rounds."""

    async def run(self) -> None: ...


def run(node: str, hold: Hold) -> bool:
    """Act until told to end (False) or until this process should be executed anew (True): a hosted agent
    waits for the lock, or the kubelet's certificate was renewed."""
    return asyncio.run(_run(node, hold))


async def _run(node: str, hold: Hold) -> bool:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    slot = os.environ.get(SLOT, "hosted")
    log = logger(node=node, slot=slot)

    def say(sentence: str, **values: object) -> None:
        log.info(sentence, **values)

    say("this agent acts on the node now")
    hand_over, stop_paths = HandOver(SystemClock()), StopPaths()
    credentials = _credentials_stamp()
    acting = asyncio.create_task(_act(node, slot, hold, say, hand_over, stop_paths))
    waiting = asyncio.create_task(ended.wait())
    anew = asyncio.create_task(_changed(credentials))
    beating = asyncio.create_task(_beat(hold, say))
    done, pending = await asyncio.wait({acting, waiting, anew}, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    beating.cancel()  # until now: what cannot be cancelled would be seen
    if acting in done and acting.exception() is not None:
        await acting
    say("this agent ends" if waiting in done else "this agent starts anew")
    return waiting not in done


async def _beat(hold: Hold, say: Say) -> None:
    """As long as this loop turns and no round hangs for good."""
    told = Told(say)
    hold.began()
    while True:
        if hung := rounds.hangs():
            told.tell("watchdog", f"{hung}: this agent gives no beat any more")
        else:
            hold.alive()
        await asyncio.sleep(lock.BEAT_SECONDS)


def _problem(hold: Hold) -> str | None:
    """For the kubelet, which asks in a thread that may live on when all else hangs."""
    silent = hold.silent()
    return None if silent < lock.hang_seconds() else f"this agent has given no beat for {silent:.0f} s"


async def _kept(duty: Duty, said: Told) -> None:
    """The duty, whatever becomes of it: its failures end no other."""
    await Shield(type(duty).__name__, SystemClock(), said.tell).keep(duty.run)


async def _with_duties(duties: Sequence[Duty], said: Told, until: Awaitable[None]) -> None:
    """All of them at once, until that has ended."""
    async with asyncio.TaskGroup() as group:
        beside = [group.create_task(_kept(duty, said)) for duty in duties]
        await until
        for task in beside:
            task.cancel()


async def _act(node: str, slot: str, hold: Hold, say: Say, hand_over: HandOver, stop_paths: StopPaths) -> None:
    if role_on_disk.acts_as_control_node():
        await _act_on_control_node(node, slot, hold, say, hand_over, stop_paths)
    else:
        await _act_on_worker(node, hold, say)


async def _act_on_worker(node: str, hold: Hold, say: Say) -> None:
    """Until this node is a control node. A worker has no slots of its own, but a load balancer."""
    said = Told(say)
    clock, kube, cri = SystemClock(), _client(said), CriClient()
    changed = asyncio.Event()
    api = ApiView(kube, clock, node, changed.set, said.tell, control_node=False)
    balancer = _load_balancer(node, kube, said)
    duty = _control_node_duty(node, kube, cri, api, balancer, said, changed)
    telling = LeafKeeping(node, kube, clock, said.tell, lambda: None, lambda: api.own_node, lambda: False)
    try:
        answering = health.Answering(ports.NODE_AGENT, clock, partial(_problem, hold), tell=said.tell)
        duties: list[Duty] = [answering, api, balancer, duty, telling, Unhiding(cri, clock, said.tell)]
        await _with_duties(duties, said, _until_control_node(duty.role_changed))
    finally:
        for close in (cri.close, kube.close):
            await close()


async def _until_control_node(role_changed: asyncio.Event) -> None:
    while not role_on_disk.acts_as_control_node():
        await changed_within(role_changed, IDLE_SECONDS)


def _load_balancer(node: str, kube: KubeClient, said: Told) -> LoadBalancer:
    return LoadBalancer(node, kube, SystemClock(), said.tell, role_on_disk.balances_as_control_node)


def _control_node_duty(
    node: str,
    kube: KubeClient,
    cri: CriClient,
    api: ApiView,
    balancer: LoadBalancer,
    said: Told,
    changed: asyncio.Event,
) -> ControlNode:
    parts = ControlParts(node, kube, cri)
    return ControlNode(
        node, kube, parts, lambda: api.own_node, balancer.round, SystemClock(), said.tell, changed=changed
    )


async def _act_on_control_node(
    node: str, slot: str, hold: Hold, say: Say, hand_over: HandOver, stop_paths: StopPaths
) -> None:
    """Until somebody else is to act, or this node is a control node no more."""
    clock, said = SystemClock(), Told(say)
    kube = _client(said)
    changed, node_changed = asyncio.Event(), asyncio.Event()

    def heard() -> None:
        agent.heard()
        stop_paths.remember(api.hosted_pods(API_SERVER))
        changed.set()
        node_changed.set()

    api = ApiView(kube, clock, node, heard, said.tell)
    own_ports = OwnPorts(client_context(CA.read_bytes(), None, None))
    keeping, plan = _leaf_keeping(node, kube, said, api)
    # Before anything here uses one of them; nothing about them keeps this agent from acting.
    await Shield(type(keeping).__name__, clock, said.tell).attempt(keeping.round)
    kept, cri = ImageKeeper(), CriClient()
    images = ImageKeeping(kept, clock, said.tell)
    hosted, quorum = slot == "hosted", EtcdQuorum(said.tell)
    running = RunningHere(cri, clock)
    agent = node_agent.NodeAgent(node, kube, api, own_ports, clock, said, quorum, images, hosted, hand_over, running)
    controllers = _controller_clients(said)
    agent.announcer.changed = changed
    metrics.observe(WITH_STANDBY, lambda: api.reachable)
    undertaker = Undertaker(controllers, clock, say, agent.announcer.happened, api.lease)
    watch = ActivationWatch(cri, clock, said.tell, agent.etcd_up, agent.hosted_serves)
    balancer = _load_balancer(node, kube, said)
    hosted_api_servers = partial(api.hosted_pods, API_SERVER)
    coming = StandbyComing(node, cri, clock, said.tell, hand_over, balancer.known_endpoints, hosted_api_servers)
    clocks = _clock_watch(node, kube, said, balancer, api)
    members = _etcd_membership(node, kube, cri, said, api)
    control_node = _control_node_duty(node, kube, cri, api, balancer, said, node_changed)
    hooks, told = stop_paths.hook_of(hand_over.before_stop), (said.tell, agent.announcer.happened)
    duties: list[Duty] = [
        health.Answering(ports.NODE_AGENT, clock, partial(_problem, hold), hooks, *told),
        *(api, undertaker, images, watch, coming, agent.announcer),
        *(balancer, clocks, members, control_node, plan, keeping, Unhiding(cri, clock, said.tell)),
    ]
    if agent.hosted:
        Path(places.STANDBY, NODE_AGENT).mkdir(mode=0o700, exist_ok=True)
        duties.append(ParkedAgent(cri, clock, said.tell))
    rounds_of_agent = node_agent.run(agent, lambda: hold.must_yield() or not role_on_disk.acts_as_control_node())
    try:
        await _with_duties(duties, said, rounds_of_agent)
    finally:
        for close in (
            agent.lease_again.close,
            own_ports.close,
            quorum.close,
            kept.close,
            cri.close,
            kube.close,
            *(c.close for c in controllers.values()),
        ):
            await close()


def _leaf_keeping(node: str, kube: KubeClient, said: Told, api: ApiView) -> tuple[LeafKeeping, Reflector]:
    clock, changed, only = SystemClock(), asyncio.Event(), f"metadata.name={leaves.CONFIG_MAP}"
    plan = Reflector(kube, clock, "v1", "ConfigMap", namespace=SYSTEM, fields=only, on_change=changed.set)

    def told_plan() -> Object | None:
        return plan.items.get((SYSTEM, leaves.CONFIG_MAP))

    keeps = role_on_disk.acts_as_control_node
    keeping = LeafKeeping(node, kube, clock, said.tell, told_plan, lambda: api.own_node, keeps, changed=changed)
    return keeping, plan


def _etcd_membership(node: str, kube: KubeClient, cri: CriClient, said: Told, api: ApiView) -> EtcdMembership:
    clock, changed = SystemClock(), asyncio.Event()
    accepts = understood.is_etcd_member
    objects = Reflector(kube, clock, API_VERSION, KIND, on_change=changed.set, accepts=accepts)
    api_server = partial(api.hosted_pod, API_SERVER)
    return EtcdMembership(node, kube, objects, cri, clock, said, slots_on_disk.wanted_level, changed, api_server)


def _clock_watch(node: str, kube: KubeClient, said: Told, balancer: LoadBalancer, api: ApiView) -> ClockWatch:
    ca, endpoints = CA.read_bytes(), balancer.known_endpoints
    return ClockWatch(node, kube, SystemClock(), said.tell, ca, endpoints, lambda: api.own_node, partial(_client, said))


def _client(said: Told, servers: Sequence[str] = (LOCAL_SERVER,), *, check_dates: bool = True) -> KubeClient:
    cert, key = own_identity.of_kubelet(ROTATED, KUBECONFIG, said.tell) or (None, None)
    return KubeClient(
        servers, ca_pem=CA.read_bytes(), client_cert_pem=cert, client_key_pem=key, check_dates=check_dates
    )


def _controller_clients(said: Told) -> dict[str, KubeClient]:
    """As the components of level 3, by the credentials in their standbys. What users put there need not be of use
    here: then nobody frees that component's lease, and it runs out by itself."""
    clients = {}
    for name in LED_BY_LEASE:
        for path in sorted(Path(places.STANDBY, name, "current", "files").rglob("kubeconfig"))[:1]:
            try:
                clients[name] = KubeClient.from_kubeconfig(path)
            except (AutarkyError, *NOT_UNDERSTOOD) as error:
                said.tell(f"{name} credentials", f"the kubeconfig of its standby cannot be used here: {error}")
    return clients


def _credentials_stamp() -> tuple[float, ...]:
    return tuple(path.stat().st_mtime for path in (ROTATED, KUBECONFIG) if path.exists())


async def _changed(stamp: tuple[float, ...]) -> None:
    while _credentials_stamp() == stamp:  # noqa: ASYNC110 # files tell nobody
        await asyncio.sleep(IDLE_SECONDS)
