"""Keeps the load balancer of every node up to date with the cluster: observe, decide (`decide.servers`), act.

It watches the EndpointSlice of default/kubernetes, and reads from disk whether the node has a standby (so it is a
control node), which members etcd has, and the configuration. HAProxy itself is asked what it runs, so that a
configuration that somebody else has written is loaded as well.

Contract: level-triggered; the configuration is its own cache, so without an API and after a boot it stays as it was.
A file appears in one rename. The order is that of rule 1: credentials exist before a configuration needs them, and
are deleted when one that does not need them runs. `up` writes only the first configuration.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from autarky import places
from autarky.control.base import node_metrics as metrics
from autarky.control.base.controller import Controller
from autarky.control.load_balancer.decide import servers as balancer
from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.control.load_balancer.manifests.endpoints import KIND, NAME, NAMESPACE, slice_endpoints
from autarky.control.load_balancer.node import haproxy
from autarky.kube import KubeClient, Reflector
from autarky.model import ports
from autarky.model.balancer import Balancer, EtcdNode
from autarky.model.components import API_SERVER
from autarky.model.endpoint import Endpoint
from autarky.ports import Clock, Object
from autarky.store import NOT_UNDERSTOOD, write_private

POLL_SECONDS = 1.0
"""Between two reconciles until HAProxy runs what it should."""
REST_SECONDS = 5.0
"""Then: nothing reports changes of files, and to read them and ask HAProxy takes more than a millisecond."""
RELOAD_PAUSE = 10.0
"""Between two reloads: each may leave a worker behind, and changes of a cluster come several in a row. Also the time
within which a requested reload must be seen."""
MEMBERS = places.MEMBERS_FILE
_ETCD_PORTS = (ports.ETCD_CLIENT, ports.ETCD_SECOND_CLIENT)
"""Of the clients of members on control nodes. At these of a member that is elsewhere there may be another etcd."""
"""[{"name", "address", "learner"}], without those that are being removed; with "port" for the second one of a node."""
_CREDENTIALS = (nllb.ETCD_CLIENT_PATH, nllb.ETCD_CA_PATH)


def has_standby() -> bool | None:
    """Whether an API server may run here, because it has a standby. None when that cannot be read."""
    try:
        return (Path(places.STANDBY) / API_SERVER / "current").is_symlink()
    except OSError:
        return None


@dataclass(slots=True)
class LoadBalancer(Controller):
    """`tell(subject, sentence)` logs a change once. `control_node`: whether the node's load balancer is to be that of a
    control node; None when that is not known."""

    name: ClassVar[str] = "load balancer"

    node: str
    kube: KubeClient
    clock: Clock
    tell: Callable[[str, str], None]
    control_node: Callable[[], bool | None] = has_standby
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    _slice: Reflector = field(init=False)
    _reloaded: float | None = None
    """When a reload was last requested (monotonic seconds)."""

    def __post_init__(self) -> None:
        only = f"metadata.name={NAME}"
        changed = self.changed.set
        self._slice = Reflector(self.kube, self.clock, *KIND, namespace=NAMESPACE, fields=only, on_change=changed)

    @property
    def endpoints(self) -> Sequence[Endpoint] | None:
        """The endpoints of default/kubernetes; None before it was ever seen."""
        live = self._slice.items.get((NAMESPACE, NAME))
        return None if live is None else slice_endpoints(live)

    def known_endpoints(self) -> Sequence[Endpoint]:
        """The same; before that, the servers in the load balancer's configuration."""
        if (endpoints := self.endpoints) is not None:
            return endpoints
        with suppress(OSError):
            configured = nllb.parse(_read(nllb.CONFIG_PATH) or "")
            return [] if configured is None else [Endpoint(n.name, n.address, ready=True) for n in configured.servers]
        return []

    def sources(self) -> Sequence[Reflector]:
        return [self._slice]

    async def reconcile(self) -> float:
        return REST_SECONDS if await self.look() else POLL_SECONDS

    async def look(self) -> bool:
        """Observe everything and act. Returns whether HAProxy already runs what it should."""
        try:
            return await self._follow()
        except OSError as error:
            self.tell("load balancer files", f"the load balancer's files cannot be used: {error}")
            return False

    async def _follow(self) -> bool:
        text = _read(nllb.CONFIG_PATH)
        current = None if text is None else nllb.parse(text)
        decision = balancer.decide(self._seen(current))
        self.tell("load balancer", decision.sentence)
        if decision.balancer is not None:
            text = self._write(decision.balancer, text)
        if text is None or not await self._runs(text):
            return False
        if not self.control_node():  # a worker that becomes one gets them first
            _remove_needless_credentials(nllb.parse(text))
        return True

    def _seen(self, current: Balancer | None) -> balancer.Seen:
        return balancer.Seen(
            node=self.node,
            current=current,
            endpoints=self.endpoints,
            control_node=self.control_node(),
            etcd=voting_members(_read(MEMBERS)),
            etcd_certificate=all(Path(path).exists() for path in _CREDENTIALS),
            certificate=nllb.certificate_name(_read(nllb.ETCD_CLIENT_PATH)),
        )

    def _write(self, wanted: Balancer, text: str | None) -> str:
        """Returns the new configuration. Another release's one for the same servers differs, and is replaced."""
        for file in nllb.configuration_files(wanted):
            if _read(file.path) != file.content.decode():
                write_private(Path(file.path), file.content, mode=file.mode)
        return nllb.config(wanted)

    async def _runs(self, text: str) -> bool:
        """Whether HAProxy runs that configuration. If it runs another one, it is asked to reload."""
        wanted, running = nllb.config_hash(text), await haproxy.running_configuration()
        if running is None or running == wanted:
            if running is not None:
                self.tell("load balancer reload", f"the load balancer runs the configuration {wanted}")
            return running == wanted
        now = self.clock.monotonic()
        if self._reloaded is None or now - self._reloaded >= RELOAD_PAUSE:
            self._reloaded = now
            await _note_what_is_in_use(text)
            trouble = await haproxy.reload()
            metrics.RELOADS.inc()
            said = f"the load balancer was asked to load the configuration {wanted}"
            self.tell(
                "load balancer reload", said if trouble is None else f"the load balancer cannot reload: {trouble}"
            )
        return False


async def _note_what_is_in_use(text: str) -> None:
    """For the new worker, which has no checks yet: a server that is not listed starts as down until its first check."""
    wanted = nllb.parse(text)
    paths = nllb.health_paths(wanted) if wanted is not None else []
    in_use = [path for path in paths if await haproxy.holds(path)]
    write_private(Path(nllb.IN_USE_PATH), "".join(f"{path}\n" for path in in_use).encode())


def voting_members(text: str | None) -> tuple[EtcdNode, ...] | None:
    """From the list that the agent keeps, those that HAProxy can lead to; None when there is none, or it is malformed.
    A member outside of the cluster may be known by a name only, or have its clients at another port."""
    try:
        found = json.loads(text or "")
        voters = [_etcd_node(m) for m in found if not m.get("learner", False)]
        nodes = tuple(node for node in voters if node.port in _ETCD_PORTS and _is_address(node.address)) or None
        return nodes if nodes and all(isinstance(node.name, str) for node in nodes) else None
    except NOT_UNDERSTOOD:
        return None


def _etcd_node(entry: Object) -> EtcdNode:
    return EtcdNode(entry["name"], entry["address"], entry.get("port", ports.ETCD_CLIENT))


def _is_address(text: object) -> bool:
    """The address goes into HAProxy's configuration, so it is validated."""
    try:
        return isinstance(text, str) and bool(ipaddress.ip_address(text))
    except ValueError:
        return False


def _read(path: str) -> str | None:
    """None when the file is absent; OSError when that is unknown."""
    try:
        return Path(path).read_text(errors="replace")
    except FileNotFoundError:
        return None


def _remove_needless_credentials(running: Balancer | None) -> None:
    """A worker never has a certificate for etcd: a former control node loses it here."""
    if running is not None and not running.control_node:
        for path in _CREDENTIALS:
            Path(path).unlink(missing_ok=True)
