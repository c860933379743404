"""HTTP/1.1 over one TLS connection, as small as the probe needs it.

Why not the client in `net`: the probe's result *is* the life of single connections. It has to know which
connection carries a request (new or kept alive), which address it leads to, whether any byte of an answer
came before it broke, and whether the break was a refusal, a reset, an orderly close or silence. A pooling
client with failover hides exactly these.

Contract: every way of getting no complete answer is a Fault; an answer, whatever its status, is returned.
Deadlines (`until`) are times of the event loop's clock, in seconds. HTTP/2 is not offered, so a request
and its connection share one fate.

Dangers: bodies are bounded (MAX_BODY), redirects are not followed, proxies of the environment are ignored:
the probe talks to the address it was given and to nothing else.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from autarky.parsing import parsed
from autarky.probe.endpoint import Endpoint
from autarky.probe.outcome import Fault, Kind

MAX_BODY = 16 * 1024 * 1024
"""Bytes. The largest answer the probe asks for is the list of its own ConfigMaps."""
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Client:
    """The identity of the probe. A token that is a function is called for every connection.

    agent:       the User-Agent, by which an audit log finds the probe
    server_name: the name in the servers' certificate, where it is not the one that is dialled
    """

    tls: ssl.SSLContext = field(repr=False)
    agent: str
    token: str | Callable[[], str] | None = field(default=None, repr=False)
    server_name: str | None = None

    def headers(self) -> str:
        """The lines that every request of a connection has."""
        token = self.token() if callable(self.token) else self.token
        authorization = f"Authorization: Bearer {token}\r\n" if token else ""
        return f"User-Agent: {self.agent}\r\n{authorization}"


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    body: bytes = b""
    content_type: str = JSON
    accept: str = JSON


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(default=b"", repr=False)

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    def object(self) -> dict[str, Any]:
        """The body as a JSON object; empty when it is none."""
        try:
            found = parsed(self.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def sentence(self) -> str:
        """The status with the server's own reason: "503 ServiceUnavailable: apiserver is shutting down"."""
        status_object = self.object()
        reason = " ".join(str(status_object.get("reason") or "").split())
        message = " ".join(str(status_object.get("message") or self.body[:200].decode(errors="replace")).split())
        audit = f" (audit id {self.headers['audit-id']})" if "audit-id" in self.headers else ""
        return f"{self.status} {reason}".rstrip() + (f": {message[:300]}" if message else "") + audit


class Connection:
    """One TLS connection to an API server. Made by `connect`; ends with `close`, or when the server ends it."""

    def __init__(self, endpoint: Endpoint, client: Client, feed: _Feed, transport: asyncio.Transport) -> None:
        self.endpoint = endpoint
        self.local = _text(transport.get_extra_info("sockname"))
        self.server = ""
        """Which API server is at the other end, once it was asked (see identity.py)."""
        self.answers = 0
        """Complete answers so far: with at least one the connection counts as reused."""
        self.round_trip = math.inf
        """Seconds of the shortest exchange so far: an upper bound of the round trip time."""
        self._common = f"Host: {endpoint.url.removeprefix('https://')}\r\n{client.headers()}"
        self._feed = feed
        self._reader = feed.reader
        self._transport = transport
        self._kept_open = True

    @property
    def usable(self) -> bool:
        """Whether another request may be sent: nothing shows yet that the server has closed it."""
        return (
            self._kept_open
            and not self._transport.is_closing()
            and not self._reader.at_eof()
            and self._reader.exception() is None
        )

    async def exchange(self, request: Request, *, until: float) -> Answer:
        """Send a request and read its complete answer. Raises Fault."""
        now = asyncio.get_running_loop().time
        sent = now()
        with self._broken(sent=sent):
            async with asyncio.timeout_at(until):
                self._transport.write(self._head(request) + request.body)
                status, headers = await self._read_head()
                body = await self._read_body(request.method, status, headers)
        self.answers += 1
        self.round_trip = min(self.round_trip, now() - sent)
        self._kept_open = headers.get("connection", "").lower() != "close"
        return Answer(status, headers, body)

    async def begin(self, request: Request, *, until: float) -> Answer | None:
        """Send a request whose answer does not end (a watch). None if it has started well: then read `lines`.

        Any status but 200 is an ordinary answer and is returned. Raises Fault.
        """
        with self._broken():
            async with asyncio.timeout_at(until):
                self._transport.write(self._head(request))
                status, headers = await self._read_head()
                self._kept_open = False
                if status == 200:
                    return None
                return Answer(status, headers, await self._read_body(request.method, status, headers))

    async def lines(self) -> AsyncGenerator[bytes, None]:
        """The lines of the answer that `begin` began, until the server ends it in order. Raises Fault."""
        rest = b""
        with self._broken(since=0):
            async for chunk in self._chunks():
                *complete, rest = (rest + chunk).split(b"\n")
                for line in complete:
                    if line:
                        yield line

    def close(self) -> None:
        """Close it at once. Nothing is sent any more, not even a TLS close that the server might not answer."""
        self._transport.abort()

    # --- reading ---

    def _head(self, request: Request) -> bytes:
        head = f"{request.method} {request.path} HTTP/1.1\r\n{self._common}Accept: {request.accept}\r\n"
        if request.body:
            head += f"Content-Type: {request.content_type}\r\nContent-Length: {len(request.body)}\r\n"
        return (head + "\r\n").encode()

    async def _read_head(self) -> tuple[int, dict[str, str]]:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *rest = head.rstrip().split("\r\n")
        version, _, status = first.partition(" ")
        if not version.startswith("HTTP/1."):
            raise ValueError(f"it begins with {first[:40]!r}")
        headers = {}
        for line in rest:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        return int(status[:3]), headers

    async def _read_body(self, method: str, status: int, headers: Mapping[str, str]) -> bytes:
        if method == "HEAD" or status in (204, 304):
            return b""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return await self._gather()
        if "content-length" not in headers:
            raise ValueError("it has no length")
        length = int(headers["content-length"])
        if not 0 <= length <= MAX_BODY:
            raise ValueError(f"a body of {length} bytes")
        return await self._reader.readexactly(length)

    async def _gather(self) -> bytes:
        body = bytearray()
        async for chunk in self._chunks():
            body += chunk
            if len(body) > MAX_BODY:
                raise ValueError(f"a body of more than {MAX_BODY} bytes")
        return bytes(body)

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            size = int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16)
            if not 0 <= size <= MAX_BODY:
                raise ValueError(f"a chunk of {size} bytes")
            chunk = await self._reader.readexactly(size + 2)
            if size == 0:
                return
            yield chunk[:-2]

    @contextmanager
    def _broken(self, *, since: int | None = None, sent: float | None = None) -> Iterator[None]:
        """Every way of getting no complete answer, as a Fault; the connection is unusable after it.

        The answer begins after so many bytes received; None: with what comes next. `sent`: when the request was.
        """
        before = self._feed.received if since is None else since
        try:
            with _named_faults(self.endpoint, lambda: _Stage.MIDST if self._feed.received > before else _Stage.BEFORE):
                yield
        except Fault as fault:
            if sent is not None and self._feed.ended_at is not None:
                fault.after = max(0.0, self._feed.ended_at - sent)
            self.close()
            raise
        except BaseException:
            self.close()
            raise


class _Stage(Enum):
    """How far an exchange got."""

    HANDSHAKE = "in the TLS handshake"
    BEFORE = "before any answer"
    MIDST = "in the midst of the answer"


async def connect(endpoint: Endpoint, client: Client, *, until: float) -> Connection:
    """A new TCP connection and TLS session. Raises Fault."""
    dialled = await _dial(endpoint, until)
    with _named_faults(endpoint, lambda: _Stage.HANDSHAKE):
        async with asyncio.timeout_at(until):
            feed, transport = await _shake_hands(dialled, client.tls, client.server_name or endpoint.host)
    return Connection(endpoint, client, feed, transport)


class _Feed(asyncio.Protocol):
    """What comes in goes to a reader. (asyncio's own streams cannot be cut in the midst of a handshake: they
    leave the connection behind, or a writer without a transport.)"""

    def __init__(self) -> None:
        self.reader = asyncio.StreamReader()
        self.received = 0
        self.ended_at: float | None = None
        """When the server's end of it was heard of (the loop's clock). Not when somebody has read that: a task may
        have to wait for its turn."""

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        self.reader.feed_data(data)

    def eof_received(self) -> None:
        self._note_the_end()
        self.reader.feed_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        self._note_the_end()
        if exc is None:
            self.reader.feed_eof()
        else:
            self.reader.set_exception(exc)

    def _note_the_end(self) -> None:
        if self.ended_at is None:
            self.ended_at = asyncio.get_running_loop().time()


async def _shake_hands(dialled: socket.socket, tls: ssl.SSLContext, name: str) -> tuple[_Feed, asyncio.Transport]:
    loop = asyncio.get_running_loop()
    raw, feed = await loop.create_connection(_Feed, sock=dialled)
    try:
        transport = await loop.start_tls(raw, feed, tls, server_hostname=name)
    except BaseException:
        raw.abort()
        raise
    if transport is None:  # it was lost between the end of the handshake and now
        raise ConnectionResetError
    return feed, transport


async def _dial(endpoint: Endpoint, until: float) -> socket.socket:
    dialled = socket.socket(endpoint.family, socket.SOCK_STREAM)
    try:
        dialled.setblocking(False)
        dialled.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with asyncio.timeout_at(until):
            await asyncio.get_running_loop().sock_connect(dialled, (endpoint.address, endpoint.port))
    except BaseException as error:
        dialled.close()
        if isinstance(error, OSError):
            raise _dial_fault(endpoint, error) from error
        raise
    return dialled


def _dial_fault(endpoint: Endpoint, error: OSError) -> Fault:
    if isinstance(error, TimeoutError):
        return Fault(Kind.CONNECT_TIMEOUT, str(endpoint), "no TCP connection in time")
    if isinstance(error, ConnectionRefusedError):
        return Fault(Kind.REFUSED, str(endpoint), "nothing listens there")
    kind = Kind.RESET if isinstance(error, ConnectionResetError) else Kind.NO_CONNECTION
    return Fault(kind, str(endpoint), f"while dialling: {os.strerror(error.errno) if error.errno else error}")


@contextmanager
def _named_faults(endpoint: Endpoint, stage: Callable[[], _Stage]) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
        reached = stage()
        kind, detail = _classified(error, reached)
        raise Fault(kind, str(endpoint), detail, begun=reached is _Stage.MIDST) from error


def _classified(error: Exception, stage: _Stage) -> tuple[Kind, str]:
    """The order matters: TimeoutError, SSLError and ConnectionError are all OSErrors, and SSLError a ValueError
    where a certificate is refused."""
    if isinstance(error, TimeoutError):
        return Kind.TIMEOUT, f"silence {stage.value}"
    if isinstance(error, ssl.SSLError):
        return Kind.TLS, f"{error.reason or error}: {getattr(error, 'verify_message', '')}".rstrip(": ")
    if isinstance(error, EOFError):
        return Kind.CLOSED, f"closed {stage.value}"
    if isinstance(error, OSError):
        # asyncio reports an orderly end in the midst of a handshake as a reset that no system call returned.
        if stage is _Stage.HANDSHAKE and error.errno is None:
            return Kind.CLOSED, f"closed {stage.value}"
        return Kind.RESET, f"reset {stage.value}"
    return Kind.MALFORMED, f"the answer is not HTTP/1.1: {error}"


def _text(address: tuple[Any, ...] | None) -> str:
    return f"{address[0]}:{address[1]}" if address else ""
