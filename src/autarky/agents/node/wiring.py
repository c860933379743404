"""The composition root of the node agent: its identity, its clients, its tasks."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from autarky import places
from autarky.agents import health
from autarky.agents.log import logger
from autarky.agents.node import agent as node_agent
from autarky.agents.node.api_seen import ApiView
from autarky.agents.node.lock import Hold
from autarky.agents.node.ports_seen import OwnPorts
from autarky.clock import SystemClock
from autarky.kube import KubeClient
from autarky.kube.kubeconfig import read_kubeconfig
from autarky.model import ports
from autarky.net.tls import client_context
from autarky.render.agent import KUBELET_PKI
from autarky.render.controllers import CONTROLLERS
from autarky.render.node import KUBELET_KUBECONFIG

ROTATED = Path(f"{KUBELET_PKI}/kubelet-client-current.pem")
KUBECONFIG = Path(KUBELET_KUBECONFIG)
IDLE_SECONDS = 10.0


def run(node: str, hold: Hold) -> bool:
    """Act until told to end (False) or until this process should be executed anew (True): a hosted agent
    waits for the lock, or the kubelet's certificate was renewed."""
    return asyncio.run(_run(node, hold))


async def _run(node: str, hold: Hold) -> bool:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    log = logger(node=node, slot=os.environ.get("AUTARKY_SLOT", "hosted"))

    def say(sentence: str, **values: object) -> None:
        log.info(sentence, **values)

    say("this agent acts on the node now")
    health.serve(ports.NODE_AGENT)
    credentials = _credentials_stamp()
    acting = asyncio.create_task(_act(node, hold, say))
    waiting = asyncio.create_task(ended.wait())
    anew = asyncio.create_task(_changed(credentials))
    done, pending = await asyncio.wait({acting, waiting, anew}, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    if acting in done and acting.exception() is not None:
        await acting
    say("this agent ends" if waiting in done else "this agent starts anew")
    return waiting not in done


async def _act(node: str, hold: Hold, say: node_agent.Say) -> None:
    control_node = Path(places.STANDBY).is_dir()
    if not control_node:
        while True:  # a worker has no slots of its own
            hold.alive()
            await asyncio.sleep(IDLE_SECONDS)
    clock = SystemClock()
    kube = _client()
    changed = asyncio.Event()
    api = ApiView(kube, clock, node, changed.set)
    ca_pem = read_kubeconfig(KUBECONFIG).ca_pem
    own_ports = OwnPorts(client_context(ca_pem, None, None))
    internal_etcd = _has_etcd_member()
    agent = node_agent.NodeAgent(node, kube, api, own_ports, clock, say, internal_etcd)
    controllers = _controller_clients()
    undertaker = node_agent.Undertaker(controllers, clock, say)
    watching = [asyncio.create_task(api.run()), asyncio.create_task(undertaker.run())]
    try:
        await node_agent.run(agent, hold.alive, hold.must_yield)
    finally:
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        await own_ports.close()
        for client in (kube, *controllers.values()):
            await client.close()


def _has_etcd_member() -> bool:
    return any(path.name.startswith("etcd-") for path in Path(places.MANIFESTS).iterdir())


def _client() -> KubeClient:
    """As the kubelet: its rotated certificate where there is one, else that of its kubeconfig."""
    found = read_kubeconfig(KUBECONFIG)
    pair = ROTATED.read_bytes() if ROTATED.exists() else None
    cert, key = (pair, pair) if pair is not None else (found.client_cert_pem, found.client_key_pem)
    return KubeClient([found.server], ca_pem=found.ca_pem, client_cert_pem=cert, client_key_pem=key)


def _controller_clients() -> dict[str, KubeClient]:
    """As the components of level 3, by the credentials in their standbys."""
    clients = {}
    for name in CONTROLLERS:
        for path in sorted(Path(places.STANDBY, name, "current", "files").rglob("kubeconfig")):
            clients[name] = KubeClient.from_kubeconfig(path)
            break
    return clients


def _credentials_stamp() -> tuple[float, ...]:
    return tuple(path.stat().st_mtime for path in (ROTATED, KUBECONFIG) if path.exists())


async def _changed(stamp: tuple[float, ...]) -> None:
    while _credentials_stamp() == stamp:  # noqa: ASYNC110 # files tell nobody
        await asyncio.sleep(IDLE_SECONDS)
