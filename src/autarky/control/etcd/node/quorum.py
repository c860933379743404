"""Whether etcd serves: its quorum, as the API servers of this node reach it. Not whether a member runs here.

Contract: it asks `/health`, for which a member does a linearizable read: only a member with a quorum answers 200 (one
without answers 503, or not in time). It asks where the API servers write: through the node's load balancer
(127.0.0.1:2378), which leads to any healthy member, or at the endpoints of an external etcd, as the standby of the API
server names them. So a node whose member is down still knows whether etcd serves, and a node without a member sees that
the quorum is lost. A full disk (the alarm NOSPACE) is not a lost quorum. No answer in time counts as down: then nothing
is judged (rule 9).

One connection is kept open, so that a look costs the members one read.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from autarky import places
from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.control.slots.node.ports import KeptConnection
from autarky.errors import AutarkyError
from autarky.model import ports
from autarky.model.components import API_SERVER
from autarky.net.tls import client_context
from autarky.ports import Object
from autarky.store import NOT_UNDERSTOOD

PATH = "/health?exclude=NOSPACE"
HTTPS = 443


@dataclass(frozen=True, slots=True)
class Way:
    """Where etcd is reached, as (host, port), and the files of the CA, the client certificate and its key.
    made_of: changes when the files do."""

    servers: tuple[tuple[str, int], ...]
    ca: Path
    certificate: Path
    key: Path
    made_of: tuple[float, ...]


@dataclass(slots=True)
class EtcdQuorum:
    """`tell(subject, sentence)` logs a sentence once. Used by several tasks: they ask one after the other."""

    tell: Callable[[str, str], None]
    find: Callable[[], Way | None] = field(default_factory=lambda: way_on_disk)
    _way: Way | None = None
    _servers: list[KeptConnection] = field(default_factory=list)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def is_up(self) -> bool:
        """Where this node has no way to ask, etcd is assumed to be up: it is external."""
        async with self._lock:
            try:
                await self._follow(self.find())
            except (AutarkyError, OSError) as error:
                self.tell("etcd's quorum", f"the credentials for etcd cannot be used: {error}")
                return False
            if self._way is None:
                self.tell("etcd's quorum", "this node has no credentials for etcd: etcd is assumed to be up")
                return True
            return await self._asked()

    async def reopen(self) -> None:
        """The next look has another connection: the load balancer keeps the present one where it is."""
        async with self._lock:
            await self.close()

    async def close(self) -> None:
        servers, self._servers, self._way = self._servers, [], None
        for server in servers:
            await server.close()

    async def _follow(self, way: Way | None) -> None:
        """Certificates are renewed, and standbys replaced."""
        if way == self._way:
            return
        await self.close()
        if way is not None:
            tls = _context(way)
            self._servers = [KeptConnection(tls, port, PATH, host) for host, port in way.servers]
        self._way = way

    async def _asked(self) -> bool:
        """The one that answered last is asked first."""
        for server in tuple(self._servers):
            if await server.status() == 200:
                self._servers.remove(server)
                self._servers.insert(0, server)
                return True
        return False


def _context(way: Way) -> ssl.SSLContext:
    return client_context(way.ca.read_bytes(), way.certificate.read_bytes(), way.key.read_bytes())


def way_on_disk() -> Way | None:
    """Through the load balancer if it leads to etcd, else as the API server's standby does; None where there is
    neither. OSError."""
    client = Path(nllb.ETCD_CLIENT_PATH)
    if client.exists():
        return _way((("127.0.0.1", ports.NLLB_ETCD),), Path(nllb.ETCD_CA_PATH), client, client)
    return _way_of_standby(Path(places.STANDBY, API_SERVER, "current"))


def _way(servers: tuple[tuple[str, int], ...], ca: Path, certificate: Path, key: Path) -> Way:
    stamps = tuple(path.stat().st_mtime for path in (ca, certificate, key))
    return Way(servers, ca, certificate, key, stamps)


def _way_of_standby(standby: Path) -> Way | None:
    """None where there is no standby, or it cannot be parsed: what users put into it need not be usable here."""
    try:
        spec = json.loads((standby / "pod.json").read_text())["spec"]
        container = next(one for one in spec["containers"] if one["name"] == API_SERVER)
        words = [*(container.get("command") or ()), *(container.get("args") or ())]
        flags = dict(str(word).removeprefix("--").split("=", 1) for word in words if "=" in str(word))
        servers = tuple(_server(url) for url in flags["etcd-servers"].split(","))
        files = (_on_host(flags[f"etcd-{name}file"], container, spec) for name in ("ca", "cert", "key"))
        return _way(servers, *files)
    except (*NOT_UNDERSTOOD, StopIteration):
        return None


def _server(url: str) -> tuple[str, int]:
    """ValueError for one without TLS, which takes no client certificate either."""
    found = urlsplit(url.strip())
    if found.scheme != "https" or not found.hostname:
        raise ValueError(url)
    return found.hostname, found.port or HTTPS


def _on_host(path: str, container: Object, spec: Object) -> Path:
    """The path on the host of a file in the container. KeyError where no hostPath leads to it."""
    for mount in container["volumeMounts"]:
        prefix = str(mount["mountPath"]).rstrip("/") + "/"
        if path.startswith(prefix):
            [source] = [one["hostPath"]["path"] for one in spec["volumes"] if one["name"] == mount["name"]]
            return Path(source, path.removeprefix(prefix))
    raise KeyError(path)
