"""The composition root of the node agent: its identity, its clients, its tasks."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from autarky import places
from autarky.agents.log import logger
from autarky.agents.node import agent as node_agent
from autarky.agents.node import lock, own_identity
from autarky.agents.node.lock import Hold
from autarky.clock import SystemClock
from autarky.control.agents.manifests.node_agent import SLOT
from autarky.control.agents.node import StandbyAgent
from autarky.control.base import bounds, health
from autarky.control.base import node_metrics as metrics
from autarky.control.base.controller import Controller
from autarky.control.base.decision_log import DecisionLog, Say
from autarky.control.base.node_view import ApiView
from autarky.control.base.pending_events import PendingEvents
from autarky.control.base.reconciler import Reconciler
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
from autarky.control.etcd.manifests.members import KIND, should_be_member
from autarky.control.etcd.node import on_disk as etcd_on_disk
from autarky.control.etcd.node import telling as etcd_telling
from autarky.control.etcd.node.changes import EtcdChange
from autarky.control.etcd.node.figures import EtcdFigures, own_alarms
from autarky.control.etcd.node.membership import EtcdMembership
from autarky.control.etcd.node.quorum import EtcdQuorum
from autarky.control.etcd.node.upkeep import EtcdUpkeep
from autarky.control.kubelet.decide.observed import Other
from autarky.control.kubelet.manifests.credentials import CURRENT_PATH, KUBELET_KUBECONFIG
from autarky.control.kubelet.node import telling as kubelet_telling
from autarky.control.kubelet.node.change import KubeletChange
from autarky.control.kubelet.node.hosted import HostedKubelet
from autarky.control.leadership.node.stale_leases import StaleLeases
from autarky.control.load_balancer.node import haproxy
from autarky.control.load_balancer.node.balancer import LoadBalancer
from autarky.control.slots.node import on_disk as slots_on_disk
from autarky.control.slots.node.activation_watch import ActivationWatch
from autarky.control.slots.node.announce import checkpoint_time
from autarky.control.slots.node.hand_over import HandOver
from autarky.control.slots.node.ports import OwnPorts
from autarky.control.slots.node.running_here import RunningHere
from autarky.control.slots.node.standby_coming import StandbyComing
from autarky.control.slots.node.stop_paths import StopPaths
from autarky.cri.client import CriClient
from autarky.cri.image_files import ImageFileReader
from autarky.cri.images import ImageKeeper
from autarky.errors import AutarkyError
from autarky.kube import KubeClient, Reflector
from autarky.model import ports
from autarky.model.components import API_SERVER, LED_BY_LEASE, NODE_AGENT, WITH_STANDBY
from autarky.net.tls import client_context
from autarky.ports import Object
from autarky.render.crds import API_VERSION
from autarky.render.kubeconfig import LOCAL_SERVER
from autarky.render.values import SYSTEM
from autarky.store import NOT_UNDERSTOOD

ROTATED = Path(CURRENT_PATH)
KUBECONFIG = Path(KUBELET_KUBECONFIG)
CA = Path(f"{places.PKI}/ca.crt")
IDLE_SECONDS = 10.0


class Background(Protocol):
    """A background task that is not a controller."""

    async def run(self) -> None: ...


def run(node: str, hold: Hold) -> bool:
    """Act until told to exit (False) or until this process should be re-executed (True): a hosted agent waits for the
    lock, or the kubelet's certificate was renewed."""
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
    restart = asyncio.create_task(_changed(credentials))
    beating = asyncio.create_task(_beat(hold, say))
    done, pending = await asyncio.wait({acting, waiting, restart}, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    beating.cancel()  # only now: a task that cannot be cancelled must stop the heartbeat
    if acting in done and acting.exception() is not None:
        await acting
    say("this agent exits" if waiting in done else "this agent re-executes itself")
    return waiting not in done


async def _beat(hold: Hold, say: Say) -> None:
    """Write heartbeats as long as this loop runs and no reconcile hangs."""
    log = _log(say)
    hold.began()
    while True:
        if hung := bounds.hangs():
            log.tell("watchdog", f"{hung}: this agent stops its heartbeat")
        else:
            hold.alive()
        await asyncio.sleep(lock.BEAT_SECONDS)


def _problem(hold: Hold) -> str | None:
    """For the kubelet's probes, answered in a thread that may still run when everything else hangs."""
    silent = hold.silent()
    return None if silent < lock.hang_seconds() else f"this agent has had no heartbeat for {silent:.0f} s"


def _log(say: Say) -> DecisionLog:
    return DecisionLog(say, counted=lambda subject: metrics.DECISIONS.labels(subject).inc())


async def _beside(
    controllers: Sequence[Controller], background: Sequence[Background], log: DecisionLog, until: Awaitable[None]
) -> None:
    """Run all of them concurrently until `until` is done: the failure of one does not stop the others."""
    clock = SystemClock()
    async with asyncio.TaskGroup() as group:
        keep = [Shield(type(one).__name__, clock, log.tell).keep(one.run) for one in background]
        keep += [Reconciler(one, clock, log.tell).run() for one in controllers]
        beside = [group.create_task(one) for one in keep]
        await until
        for task in beside:
            task.cancel()


async def _act(node: str, slot: str, hold: Hold, say: Say, hand_over: HandOver, stop_paths: StopPaths) -> None:
    if role_on_disk.acts_as_control_node():
        await _act_on_control_node(node, slot, hold, say, hand_over, stop_paths)
    else:
        await _act_on_worker(node, hold, say)


async def _act_on_worker(node: str, hold: Hold, say: Say) -> None:
    """Until this node is a control node. A worker has no slots, but a load balancer."""
    log = _log(say)
    clock, kube, cri, images = SystemClock(), _client(log), CriClient(), ImageFileReader()
    changed, for_kubelet, for_hosted = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def heard() -> None:
        changed.set()
        for_kubelet.set()
        for_hosted.set()

    api = ApiView(kube, clock, node, heard, log.tell, control_node=False)
    balancer = _load_balancer(node, kube, log)
    role = _control_node_role(node, kube, cri, api, balancer, log, changed)
    certificates = LeafKeeping(node, kube, clock, log.tell, lambda: None, lambda: api.own_node, lambda: False)
    kubelets = _kubelets(node, kube, cri, images, api, log, (for_kubelet, for_hosted), {})
    try:
        answering = health.Answering(ports.NODE_AGENT, clock, partial(_problem, hold), tell=log.tell)
        controllers = [balancer, role, certificates, *kubelets, Unhiding(cri, clock, log.tell)]
        await _beside(controllers, [answering, api], log, _until_control_node(role.role_changed))
    finally:
        for close in (images.close, cri.close, kube.close):
            await close()


async def _until_control_node(role_changed: asyncio.Event) -> None:
    while not role_on_disk.acts_as_control_node():
        await changed_within(role_changed, IDLE_SECONDS)


def _load_balancer(node: str, kube: KubeClient, log: DecisionLog) -> LoadBalancer:
    return LoadBalancer(node, kube, SystemClock(), log.tell, role_on_disk.balances_as_control_node)


async def _others_serve(node: str, balancer: LoadBalancer) -> bool:
    return await haproxy.another_node_serves(node, [one.node for one in balancer.known_endpoints()])


def _control_node_role(
    node: str,
    kube: KubeClient,
    cri: CriClient,
    api: ApiView,
    balancer: LoadBalancer,
    log: DecisionLog,
    changed: asyncio.Event,
) -> ControlNode:
    parts = ControlParts(node, kube, cri)
    return ControlNode(node, kube, parts, lambda: api.own_node, balancer.look, SystemClock(), log.tell, changed=changed)


def _kubelets(
    node: str,
    kube: KubeClient,
    cri: CriClient,
    images: ImageFileReader,
    api: ApiView,
    log: DecisionLog,
    changed: tuple[asyncio.Event, asyncio.Event],
    works: Mapping[Other, Callable[[], bool]],
) -> tuple[KubeletChange, HostedKubelet]:
    """That of the host's kubelet, and that of the hosted one. changed: of each."""
    known, clock = {Other.ROLE: _role_changes, **works}, SystemClock()
    for_host, for_hosted = changed
    plane = Reflector(kube, clock, API_VERSION, "ControlPlane", on_change=for_hosted.set)
    pending = PendingEvents(log.tell, kubelet_telling.FILE)  # one, since there is one file

    def own_node() -> Object | None:
        return api.own_node

    return (
        KubeletChange(node, kube, cri, images, own_node, known, clock, log.tell, for_host, pending=pending),
        HostedKubelet(node, kube, cri, plane, own_node, known, clock, log.tell, pending, for_hosted),
    )


def _role_changes() -> bool:
    return role_on_disk.state() not in (None, role_on_disk.State.READY)


def _etcd_is_changed() -> bool:
    """Of this node's member; also where the note of that cannot be read (ValueError)."""
    change = etcd_on_disk.change()
    return change is not None and not change.over


async def _act_on_control_node(
    node: str, slot: str, hold: Hold, say: Say, hand_over: HandOver, stop_paths: StopPaths
) -> None:
    """Until another agent should act, or this node is no longer a control node."""
    clock, log = SystemClock(), _log(say)
    kube = _client(log)
    changed, node_changed = asyncio.Event(), asyncio.Event()
    for_kubelet, for_hosted = asyncio.Event(), asyncio.Event()

    def heard() -> None:
        agent.heard()
        stop_paths.remember(api.hosted_pods(API_SERVER))
        changed.set()
        node_changed.set()
        for_kubelet.set()
        for_hosted.set()

    api = ApiView(kube, clock, node, heard, log.tell)
    own_ports = OwnPorts(client_context(CA.read_bytes(), None, None))
    keeping, plan = _leaf_keeping(node, kube, log, api)
    # Before anything here uses a certificate; a failure does not keep this agent from acting.
    await Shield(type(keeping).__name__, clock, log.tell).attempt(keeping.reconcile)
    kept, cri, image_files = ImageKeeper(), CriClient(), ImageFileReader()
    images = ImageKeeping(kept, clock, log.tell)
    hosted, quorum = slot == "hosted", EtcdQuorum(log.tell)
    running = RunningHere(cri, clock)
    balancer = _load_balancer(node, kube, log)
    others_serve = partial(_others_serve, node, balancer)
    agent = node_agent.NodeAgent(
        node, kube, api, own_ports, clock, log, quorum, images, hosted, hand_over, running, others_serve
    )
    level_3 = _controller_clients(log)
    agent.announcer.changed = changed
    metrics.observe(WITH_STANDBY, lambda: api.reachable, slots_on_disk.active_standbys, checkpoint_time)
    stale_leases = StaleLeases(level_3, clock, say, agent.announcer.happened, api.lease)
    watch = ActivationWatch(cri, clock, log.tell, agent.etcd_up, agent.hosted_serves)
    hosted_api_servers = partial(api.hosted_pods, API_SERVER)
    coming = StandbyComing(node, cri, clock, log.tell, hand_over, balancer.known_endpoints, hosted_api_servers)
    clocks = _clock_watch(node, kube, log, balancer, api)
    members, change = _of_etcd(node, kube, cri, log, api)
    members.disconnect = quorum.reopen
    control_node = _control_node_role(node, kube, cri, api, balancer, log, node_changed)
    works = {
        Other.ETCD: lambda: members.busy or _etcd_is_changed(),
        Other.RECOVERY: etcd_on_disk.is_fenced,
        Other.HAND_OVER: lambda: hand_over.pending,
    }
    kubelets = _kubelets(node, kube, cri, image_files, api, log, (for_kubelet, for_hosted), works)
    hooks, telling = stop_paths.hook_of(hand_over.before_stop), (log.tell, agent.announcer.happened)
    answering = health.Answering(ports.NODE_AGENT, clock, partial(_problem, hold), hooks, *telling)
    controllers: list[Controller] = [
        *(stale_leases, images, watch, coming, agent.announcer),
        *(balancer, clocks, members, change, control_node, keeping, *kubelets),
        Unhiding(cri, clock, log.tell),
        *_upkeep_of_etcd(node, kube, log, api, members),
    ]
    if agent.hosted:
        Path(places.STANDBY, NODE_AGENT).mkdir(mode=0o700, exist_ok=True)
        controllers.append(StandbyAgent(cri, clock, log.tell))
    acts = Reconciler(agent, clock, log.tell).run(lambda: hold.must_yield() or not role_on_disk.acts_as_control_node())
    try:
        await _beside(controllers, [answering, api, plan], log, acts)
    finally:
        for close in (
            agent.lease_again.close,
            own_ports.close,
            quorum.close,
            kept.close,
            image_files.close,
            cri.close,
            kube.close,
            *(c.close for c in level_3.values()),
        ):
            await close()


def _leaf_keeping(node: str, kube: KubeClient, log: DecisionLog, api: ApiView) -> tuple[LeafKeeping, Reflector]:
    clock, changed, only = SystemClock(), asyncio.Event(), f"metadata.name={leaves.CONFIG_MAP}"
    plan = Reflector(kube, clock, "v1", "ConfigMap", namespace=SYSTEM, fields=only, on_change=changed.set)

    def live_plan() -> Object | None:
        return plan.items.get((SYSTEM, leaves.CONFIG_MAP))

    keeps = role_on_disk.acts_as_control_node
    keeping = LeafKeeping(node, kube, clock, log.tell, live_plan, lambda: api.own_node, keeps, changed=changed)
    return keeping, plan


def _of_etcd(
    node: str, kube: KubeClient, cri: CriClient, log: DecisionLog, api: ApiView
) -> tuple[EtcdMembership, EtcdChange]:
    clock, changed, to_change = SystemClock(), asyncio.Event(), asyncio.Event()
    accepts = understood.is_etcd_member

    def heard() -> None:
        changed.set()
        to_change.set()

    objects = Reflector(kube, clock, API_VERSION, KIND, on_change=heard, accepts=accepts)
    api_server = partial(api.hosted_pod, API_SERVER)
    level = slots_on_disk.wanted_level
    membership = EtcdMembership(
        *(node, kube, objects, cri, clock, log, level, changed, api_server), wanted=lambda: api.etcd_wanted
    )
    return membership, EtcdChange(node, kube, objects, cri, clock, log, to_change)


def _upkeep_of_etcd(
    node: str, kube: KubeClient, log: DecisionLog, api: ApiView, members: EtcdMembership
) -> tuple[Controller, ...]:
    clock = SystemClock()

    def own() -> Object | None:
        return members.objects.items.get((None, node))

    def wanted() -> dict[str, str]:
        objects = [obj for obj in members.objects.items.values() if should_be_member(obj)]
        return {obj["spec"]["address"]: obj["metadata"]["name"] for obj in objects}

    pending = PendingEvents(log.tell, etcd_telling.FILE)
    events = etcd_telling.EtcdEvents(kube, clock, log.tell, lambda: own() or api.own_node, pending)
    members.happened = events.happened
    upkeep = EtcdUpkeep(clock, log, events.happened, lambda: members.busy, wanted)
    alarms = partial(own_alarms, upkeep.etcd)
    figures = EtcdFigures(node, kube, log, events.happened, own, lambda: upkeep.trouble, alarms)
    return upkeep, figures, events


def _clock_watch(node: str, kube: KubeClient, log: DecisionLog, balancer: LoadBalancer, api: ApiView) -> ClockWatch:
    ca, endpoints = CA.read_bytes(), balancer.known_endpoints
    return ClockWatch(node, kube, SystemClock(), log.tell, ca, endpoints, lambda: api.own_node, partial(_client, log))


def _client(log: DecisionLog, servers: Sequence[str] = (LOCAL_SERVER,), *, check_dates: bool = True) -> KubeClient:
    cert, key = own_identity.of_kubelet(ROTATED, KUBECONFIG, log.tell) or (None, None)
    return KubeClient(
        servers, ca_pem=CA.read_bytes(), client_cert_pem=cert, client_key_pem=key, check_dates=check_dates
    )


def _controller_clients(log: DecisionLog) -> dict[str, KubeClient]:
    """Clients with the identities of level 3, from the credentials in their standbys. What users set there may be
    unusable here: then nobody releases that component's lease, and it expires by itself."""
    clients = {}
    for name in LED_BY_LEASE:
        for path in sorted(Path(places.STANDBY, name, "current", "files").rglob("kubeconfig"))[:1]:
            try:
                clients[name] = KubeClient.from_kubeconfig(path)
            except (AutarkyError, *NOT_UNDERSTOOD) as error:
                log.tell(f"{name} credentials", f"the kubeconfig of its standby cannot be used here: {error}")
    return clients


def _credentials_stamp() -> tuple[float, ...]:
    return tuple(path.stat().st_mtime for path in (ROTATED, KUBECONFIG) if path.exists())


async def _changed(stamp: tuple[float, ...]) -> None:
    while _credentials_stamp() == stamp:  # noqa: ASYNC110 # nothing reports changes of files
        await asyncio.sleep(IDLE_SECONDS)
