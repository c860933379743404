"""A small API server on loopback that misbehaves on command: real TCP, real TLS, real HTTP/1.1.

It keeps namespaces and ConfigMaps with resourceVersions, lists and watches them, and says who it is. Each
misbehaviour is asked for with `misbehave(what, times, when)`; without one it is healthy.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any
from urllib.parse import parse_qs, urlsplit

ALWAYS = 10**9
LATE = 2.0
"""Seconds: no round trip on loopback, on a busy machine either."""
SLOW = LATE + 1


@dataclass(frozen=True)
class Incoming:
    """What the server is about to answer. `number` counts from 1 on each connection."""

    number: int
    method: str = ""
    path: str = ""
    query: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    head: str = field(default="", repr=False)

    @property
    def is_read(self) -> bool:
        return self.method == "GET" and self.path.count("/") == 4 and "/namespaces/" in self.path

    @property
    def is_watch(self) -> bool:
        return "watch" in self.query


def anything(_incoming: Incoming) -> bool:
    return True


def new_reads(incoming: Incoming) -> bool:
    return incoming.is_read and incoming.number == 1


def kept_reads(incoming: Incoming) -> bool:
    return incoming.is_read and incoming.number > 1


def patches(incoming: Incoming) -> bool:
    return incoming.method == "PATCH"


def kept_patches(incoming: Incoming) -> bool:
    return patches(incoming) and incoming.number > 1


def deletions(incoming: Incoming) -> bool:
    return incoming.method == "DELETE" and "labelSelector" not in incoming.query


def watches(incoming: Incoming) -> bool:
    return incoming.is_watch


def patch_events(incoming: Incoming) -> bool:
    """An event on its way to the watches, not a request."""
    return incoming.method == "EVENT" and incoming.path == "MODIFIED"


@dataclass
class Misbehaviour:
    what: str
    times: int
    when: Callable[[Incoming], bool]


class Hangup(Exception):
    """The connection is over."""


class _Feed(asyncio.Protocol):
    """One connection; what comes in goes to a reader."""

    def __init__(self, accept: Callable[[asyncio.Transport, _Feed], None]) -> None:
        self.reader = asyncio.StreamReader()
        self._accept = accept

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._accept(transport, self)

    def data_received(self, data: bytes) -> None:
        self.reader.feed_data(data)

    def eof_received(self) -> None:
        self.reader.feed_eof()

    def connection_lost(self, _error: Exception | None) -> None:
        self.reader.feed_eof()


@dataclass(eq=False)
class Peer:
    """A client's connection, with TLS."""

    reader: asyncio.StreamReader
    transport: asyncio.Transport

    async def gone(self) -> None:
        """Wait until the client has ended it."""
        while await self.reader.read(4096):
            pass
        raise Hangup


class ApiServer:
    def __init__(self, tls: ssl.SSLContext, *, started: str = "2026-11-21T00:00:00Z", statusz: bool = True) -> None:
        self.tls = tls
        self.started = started
        self.statusz = statusz
        self.namespaces = {"default"}
        self.objects: dict[str, dict[str, Any]] = {}
        self.version = 100
        self.requests: list[Incoming] = []
        self.history: list[tuple[int, str, dict[str, Any]]] = []
        self.oldest = 0
        self.port = 0
        self.handshakes = ""
        """What is done to connections instead of a TLS handshake: "reset", "close" or "stall"."""
        self._misbehaviours: list[Misbehaviour] = []
        self._watchers: set[Peer] = set()
        self._connections: set[asyncio.Transport] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    # --- life ---

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    async def __aenter__(self) -> ApiServer:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop_listening()
        self.end_connections()
        for task in set(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Feed(self._accept), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()

    def end_connections(self) -> None:
        for transport in set(self._connections):
            transport.abort()

    def end_watches(self) -> None:
        for watcher in set(self._watchers):
            watcher.transport.abort()

    # --- misbehaving ---

    def misbehave(self, what: str, *, times: int = 1, when: Callable[[Incoming], bool] = anything) -> Misbehaviour:
        self._misbehaviours.append(Misbehaviour(what, times, when))
        return self._misbehaviours[-1]

    def _order(self, incoming: Incoming) -> str:
        for misbehaviour in self._misbehaviours:
            if misbehaviour.times > 0 and misbehaviour.when(incoming):
                misbehaviour.times -= 1
                return misbehaviour.what
        return ""

    # --- connections ---

    def _accept(self, raw: asyncio.Transport, feed: _Feed) -> None:
        self._connections.add(raw)  # here: a task that is cancelled before its first step cleans up nothing
        task = asyncio.create_task(self._serve(raw, feed))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, raw: asyncio.Transport, feed: _Feed) -> None:
        peer = None
        with suppress(Hangup, OSError, EOFError):
            try:
                peer = await self._shake_hands(raw, feed)
                number = 0
                while True:
                    number += 1
                    await self._answer(await _read_request(peer.reader, number), peer)
            finally:
                self._watchers.discard(peer)
                self._connections.discard(raw)
                raw.abort()

    async def _shake_hands(self, raw: asyncio.Transport, feed: _Feed) -> Peer:
        if self.handshakes:
            await feed.reader.read(4096)  # what is closed with something unread is reset
            await self._break(self.handshakes, Peer(feed.reader, raw))
        transport = await asyncio.get_running_loop().start_tls(raw, feed, self.tls, server_side=True)
        if transport is None:
            raise Hangup
        return Peer(feed.reader, transport)

    async def _answer(self, incoming: Incoming, peer: Peer) -> None:
        self.requests.append(incoming)
        order = self._order(incoming)
        await self._break(order, peer)
        if order == "slow":
            await asyncio.sleep(SLOW)
        if order.startswith("status "):
            _send(peer, int(order.split()[1]), _status(int(order.split()[1])))
        elif order == "turn away":
            _send(peer, 429, _status(429), "Retry-After: 1\r\nConnection: close\r\n")
            raise Hangup
        elif order == "shut down":
            _send(peer, 503, _status(503, "apiserver is shutting down"), "Retry-After: 1\r\n")
        elif order == "close after":
            self._dispatch(incoming, peer, order)
            raise Hangup
        elif incoming.is_watch:
            await self._watch(incoming, peer)
        else:
            self._dispatch(incoming, peer, order)

    async def _break(self, order: str, peer: Peer) -> None:
        if order == "cut and reset":
            peer.transport.write(b"HTTP/1.1 200 OK\r\nContent-Le")
            await asyncio.sleep(0.02)  # so that it is read before the reset is
        if order in ("close late", "reset late"):
            await asyncio.sleep(LATE)
        if order.startswith("close in "):
            await asyncio.sleep(float(order.rsplit(maxsplit=1)[-1]))
            raise Hangup
        if order in ("reset", "reset late", "cut and reset"):
            raw = peer.transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raise Hangup
        if order in ("close", "close late"):
            raise Hangup
        if order == "stall":
            await peer.gone()
        if order == "cut":
            peer.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf of it")
            raise Hangup
        if order == "garbage":
            peer.transport.write(b"SSH-2.0-OpenSSH_9.2p1\r\n\r\n")
            raise Hangup

    # --- the API ---

    def _dispatch(self, incoming: Incoming, peer: Peer, order: str) -> None:
        name = incoming.path.rpartition("/")[2]
        if incoming.path == "/statusz" and self.statusz:
            _send(peer, 200, {"binaryVersion": "1.36.4", "startTime": self.started})
        elif incoming.path == "/version":
            _send(peer, 200, {"gitVersion": "v1.36.4"})
        elif incoming.path == "/api/v1/namespaces" and incoming.method == "POST":
            self._make_namespace(json.loads(incoming.body)["metadata"]["name"], peer)
        elif incoming.is_read and name in self.namespaces:
            _send(peer, 200, {"kind": "Namespace", "metadata": {"name": name}})
        elif name == "configmaps":
            self._collection(incoming, peer)
        elif "/configmaps/" in incoming.path:
            self._object(incoming, name, peer, order)
        else:
            _send(peer, 404, _status(404))

    def _make_namespace(self, name: str, peer: Peer) -> None:
        status = 409 if name in self.namespaces else 201
        self.namespaces.add(name)
        _send(peer, status, _status(status))

    def _collection(self, incoming: Incoming, peer: Peer) -> None:
        if incoming.method == "POST":
            obj = json.loads(incoming.body)
            obj["metadata"].setdefault("creationTimestamp", "2999-01-01T00:00:00Z")
            _send(peer, 201, self._store("ADDED", obj))
            return
        key, _, value = incoming.query["labelSelector"].partition("=")
        chosen = {
            name: obj
            for name, obj in self.objects.items()
            if obj["metadata"]["labels"].get(key) in ({value} if value else {*self._labels(key)})
        }
        if incoming.method == "DELETE":
            for obj in chosen.values():
                self._delete(obj)
        _send(peer, 200, {"metadata": {"resourceVersion": str(self.version)}, "items": list(chosen.values())})

    def _labels(self, key: str) -> set[str]:
        return {obj["metadata"]["labels"].get(key) for obj in self.objects.values()}

    def _object(self, incoming: Incoming, name: str, peer: Peer, order: str) -> None:
        obj = self.objects.get(name)
        if obj is None:
            _send(peer, 404, _status(404))
        elif incoming.method == "PATCH":
            wanted = json.loads(incoming.body)
            data = {**obj["data"], **wanted["data"]}
            of = wanted.get("metadata", {}).get("resourceVersion")
            if of not in (None, obj["metadata"]["resourceVersion"]):
                _send(peer, 409, _status(409, "the object has been modified"))
                return
            if data == obj["data"]:  # nothing changes, and so nothing has a new version
                _send(peer, 200, obj)
                return
            if order == "forget":  # acknowledged, not stored; the watch shows it
                forgotten = {**obj, "data": data}
                kept = dict(self.objects)
                _send(peer, 200, self._store("MODIFIED", forgotten))
                self.objects = kept
                return
            stored = self._store("MODIFIED", {**obj, "data": data})
            if order == "do and close":
                raise Hangup
            _send(peer, 200, stored)
        elif incoming.method == "DELETE":
            if order != "forget":
                self._delete(obj)
            _send(peer, 200, _status(200))
        else:
            _send(peer, 200, obj)

    def _delete(self, obj: dict[str, Any]) -> None:
        self._store("DELETED", obj)
        del self.objects[obj["metadata"]["name"]]

    def _store(self, kind: str, obj: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        self.objects[obj["metadata"]["name"]] = obj
        order = self._order(Incoming(1, "EVENT", kind))
        if order == "lose":
            return obj
        self.history.append((self.version, kind, obj))
        for peer in set(self._watchers):
            _chunk(peer, {"type": kind, "object": obj})
            if order == "repeat":
                _chunk(peer, {"type": kind, "object": obj})
        return obj

    # --- watching ---

    async def _watch(self, incoming: Incoming, peer: Peer) -> None:
        since = int(incoming.query["resourceVersion"])
        if since < self.oldest:
            _send(peer, 410, _status(410))
            return
        peer.transport.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for version, kind, obj in self.history:
            if version > since:
                _chunk(peer, {"type": kind, "object": obj})
        self._watchers.add(peer)
        await peer.gone()

    def bookmark(self) -> None:
        """Tell all watchers that they have seen everything."""
        for peer in set(self._watchers):
            _chunk(peer, {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self.version)}}})

    def error(self, code: int) -> None:
        """End all watches as the API does, with an event."""
        for peer in set(self._watchers):
            _chunk(peer, {"type": "ERROR", "object": _status(code)})

    def silence(self) -> None:
        """The watchers hear nothing more, not even a farewell, as after a power cut."""
        self._watchers.clear()


async def _read_request(reader: asyncio.StreamReader, number: int) -> Incoming:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    method, target, _ = head.split(" ", 2)
    length = next((int(line[16:]) for line in head.split("\r\n") if line.startswith("Content-Length: ")), 0)
    body = await reader.readexactly(length)
    url = urlsplit(target)
    query = {key: value[0] for key, value in parse_qs(url.query).items()}
    return Incoming(number, method, url.path, query, body, head)


def _status(code: int, message: str = "") -> dict[str, Any]:
    reasons = {404: "NotFound", 410: "Expired", 429: "TooManyRequests", 503: "ServiceUnavailable"}
    message = message or f"made {code}"
    return {"kind": "Status", "metadata": {}, "code": code, "reason": reasons.get(code, ""), "message": message}


def _send(peer: Peer, status: int, obj: object, headers: str = "") -> None:
    body = json.dumps(obj).encode()
    head = f"HTTP/1.1 {status} X\r\nDate: {formatdate(usegmt=True)}\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    peer.transport.write(head.encode() + body)


def _chunk(peer: Peer, obj: object) -> None:
    line = json.dumps(obj).encode() + b"\n"
    peer.transport.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
