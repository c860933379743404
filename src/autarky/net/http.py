"""HTTP/1.1 requests to one of several equivalent servers, with failover and our own errors.

Contract:
- A request goes to the server that answered last. Where no connection can be made, the next one is tried,
  whatever the request: nothing was sent.
- Once bytes may have been sent, a request is sent again only if it was declared harmless to `resend`: a
  write that got no answer may have been carried out, and the error says so.
- A server that answers «later» (429 or 503 with Retry-After) has not carried the request out; it is asked
  again when it said, for as long as there is time. A Kubernetes API server that shuts down does that.
- A host that does not answer an attempt to connect is given up soon, and the next one tried; a TLS handshake gets
  more time, since a server that is slow, or held by a load balancer, is alive.
- With `patience`, a request that no server took is tried again for so long: a load balancer that considers no
  server healthy accepts connections and drops them.
- Every failure to get an answer is Unreachable; an answer, whatever its status, is returned.

Danger: kept-alive connections are checked before use, but a server may close one in the very moment of
sending; this race is what `resend` is for.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import httpcore2
import httpx2

from autarky.errors import Unreachable
from autarky.model.patience import CONNECT, REQUEST, SECURE

PARALLEL_REQUESTS = 16
"""More would only cost TLS handshakes. Streams do not count."""
RETRY_PAUSE = 0.2
"""Seconds between rounds over the servers of one patient request."""
KEEP_ALIVE = 30.0
"""Seconds for which an idle connection is kept; Kubernetes and etcd keep theirs for longer."""

_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
# anyio lets errors of an established TLS connection through as they are; a server that refuses our
# certificate in TLS 1.3 shows up as one.
_MAYBE_SENT = (httpx2.TransportError, ssl.SSLError, OSError)
_KEEPALIVE_OPTIONS = (
    # A peer that vanished without a word (power cut) is noticed within 30 s, also by a silent watch.
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
)


@dataclass(frozen=True, slots=True)
class Request:
    """What to ask of any of the servers. `resend`: whether doing it twice is as good as once. `most`: bytes of the
    answer that are read, for answers that may be endless; the rest is ignored. `waits`: whether it is sent again when
    the server says after how long; else that is the answer."""

    method: str
    path: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = field(default=None, repr=False)
    resend: bool = False
    most: int | None = None
    waits: bool = True

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer whose body is read as it comes. Lines come without their b"\\n"."""

    status: int
    lines: AsyncIterator[bytes]


class Endpoints:
    """A client of several equivalent servers.

    servers: base URLs ("https://10.0.0.1:6443"), tried in this order at first. Not empty.
    server_name: the name that the servers' certificate must have, where it is not the URL's host.
    patience: seconds for which a request that may be sent again is tried while no server takes it.
    """

    def __init__(
        self, servers: Sequence[str], tls: ssl.SSLContext, *, server_name: str | None = None, patience: float = 0.0
    ) -> None:
        if not servers:
            raise ValueError("a client needs a server")
        self._servers = [server.rstrip("/") for server in servers]
        self._server_name = server_name
        self._patience = patience
        self._slots = asyncio.Semaphore(PARALLEL_REQUESTS)
        self._transport = httpx2.AsyncHTTPTransport(
            verify=tls,
            trust_env=False,
            limits=httpx2.Limits(
                max_connections=None, max_keepalive_connections=PARALLEL_REQUESTS, keepalive_expiry=KEEP_ALIVE
            ),
            socket_options=_KEEPALIVE_OPTIONS,
        )
        self._transport._pool._network_backend = _Network()

    async def request(self, request: Request, *, timeout: float = REQUEST, patience: float | None = None) -> Answer:
        """The complete answer. `timeout` in seconds bounds everything, waiting and failover included;
        `patience` in seconds takes the place of the client's own."""
        give_up = asyncio.get_running_loop().time() + (self._patience if patience is None else patience)
        try:
            async with asyncio.timeout(timeout) as limit, self._slots:
                while True:
                    answer = await self._patiently(request, timeout, give_up)
                    pause = _asked_to_wait(answer) if request.waits else None
                    if pause is None or pause >= _left(limit):
                        return answer
                    await asyncio.sleep(pause)
        except TimeoutError as error:
            asked = " or ".join(self._servers)
            self._servers.append(self._servers.pop(0))  # one that hangs lets everybody connect: begin elsewhere
            raise Unreachable(f"{asked}: {request} was not answered within {timeout:g} s") from error

    @asynccontextmanager
    async def stream(self, request: Request, *, idle_timeout: float) -> AsyncIterator[Stream]:
        """The answer as it comes; reading it raises Unreachable when it breaks off, or when nothing comes
        for `idle_timeout` seconds."""
        server, response, _ = await self._send(request, idle_timeout)
        try:
            yield Stream(response.status_code, _lines(server, request, response))
        finally:
            await response.aclose()

    async def close(self) -> None:
        await self._transport.aclose()

    # --- attempts ---

    async def _patiently(self, request: Request, timeout: float, give_up: float) -> Answer:
        while True:
            try:
                return await self._complete(request, timeout)
            except _NotTaken as error:
                if error.lasting or asyncio.get_running_loop().time() + RETRY_PAUSE > give_up:
                    raise
            await asyncio.sleep(RETRY_PAUSE)

    async def _complete(self, request: Request, timeout: float) -> Answer:
        _, response, body = await self._send(request, timeout, read=True)
        return Answer(response.status_code, dict(response.headers), body)

    async def _send(
        self, request: Request, read_timeout: float, *, read: bool = False
    ) -> tuple[str, httpx2.Response, bytes]:
        """One attempt after the other until a server answers; with `read`, answers to the end, and its body."""
        attempts, failures, lasting = deque(self._servers), dict[str, str](), True
        second_chance = request.resend
        while attempts:
            server = attempts.popleft()
            try:
                response = await self._transport.handle_async_request(self._build(server, request, read_timeout))
                body = await _body(response, request.most) if read else b""
            except _NOT_SENT as error:
                failures[server] = _why(error)
                lasting &= _is_untrusted(error)
            except _MAYBE_SENT as error:
                if not request.resend:
                    raise Unreachable(
                        f"{server}: no answer to {request}, which may have been carried out: {_why(error)}"
                    ) from error
                failures[server] = _why(error)
                lasting = False
                if second_chance:
                    second_chance = False
                    attempts.appendleft(server)
            else:
                self._prefer(server)
                return server, response, body
        raise _NotTaken("; ".join(f"{server}: {why}" for server, why in failures.items()), lasting=lasting)

    def _build(self, server: str, request: Request, read_timeout: float) -> httpx2.Request:
        query = f"?{urlencode(request.parameters)}" if request.parameters else ""
        # Both handshakes end before the request's own time is up, so that the error says which server hung.
        limits = {"connect": secures(read_timeout), "read": read_timeout, "write": read_timeout, "pool": read_timeout}
        extensions: dict[str, object] = {"timeout": limits}
        if self._server_name is not None:
            extensions["sni_hostname"] = self._server_name
        return httpx2.Request(
            request.method,
            f"{server}{request.path}{query}",
            headers=dict(request.headers),
            content=request.body,
            extensions=extensions,
        )

    def _prefer(self, server: str) -> None:
        """The next request begins with the server that has just answered."""
        if server != self._servers[0]:
            self._servers.remove(server)
            self._servers.insert(0, server)


def connects(timeout: float) -> float:
    """Seconds for the TCP handshake of a request that has so many."""
    return min(CONNECT, 0.45 * timeout)


def secures(timeout: float) -> float:
    """For its TLS handshake."""
    return min(SECURE, 0.9 * timeout - connects(timeout))


class _Network(httpcore2.AnyIOBackend):
    """What a TLS handshake may take is too long for TCP, and the library has one number for both. And a handshake that
    is cancelled leaves nothing behind."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        soon = CONNECT if timeout is None else min(CONNECT, timeout)
        return _Dialled(await super().connect_tcp(host, port, soon, local_address, socket_options))


@dataclass(frozen=True, slots=True)
class _Dialled(httpcore2.AsyncNetworkStream):
    """A connection before TLS. Cancelled within the handshake, the library would leave it open until it is garbage, and
    the server at its other end would wait for us."""

    stream: httpcore2.AsyncNetworkStream

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        try:
            return await self.stream.start_tls(ssl_context, server_hostname, timeout)
        except BaseException:
            await self.aclose()
            raise

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self.stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self.stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self.stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self.stream.get_extra_info(info)


class _NotTaken(Unreachable):
    """No server has taken a request, or it may be sent twice. `lasting`: trying again will not help."""

    def __init__(self, message: str, *, lasting: bool) -> None:
        super().__init__(message)
        self.lasting = lasting


async def _body(response: httpx2.Response, most: int | None) -> bytes:
    if most is None:
        return await response.aread()
    body = b""
    try:
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) >= most:
                break
    finally:
        await response.aclose()
    return body[:most]


async def _lines(server: str, request: Request, response: httpx2.Response) -> AsyncIterator[bytes]:
    """Split at line feeds only: what else counts as the end of a line in text occurs inside of JSON strings."""
    begun: list[bytes] = []
    try:
        async for chunk in response.aiter_bytes():
            first, *others = chunk.split(b"\n")
            begun.append(first)
            for part in others:
                yield b"".join(begun)
                begun = [part]
    except _MAYBE_SENT as error:
        raise Unreachable(f"{server}: the answer to {request} broke off: {_why(error)}") from error
    rest = b"".join(begun)
    if rest:
        yield rest


def _asked_to_wait(answer: Answer) -> float | None:
    """Seconds after which the server wants to be asked again; None when this is its answer."""
    after = answer.headers.get("retry-after", "")
    return max(float(after), 0.1) if answer.status in (429, 503) and after.isdecimal() else None


def _left(limit: asyncio.Timeout) -> float:
    when = limit.when()
    return when - asyncio.get_running_loop().time() if when is not None else 0.0


def _is_untrusted(error: BaseException) -> bool:
    """Whether the server's certificate is not accepted, which no waiting fixes."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    return cause is not None


def _why(error: BaseException) -> str:
    """The cause in plain words: the libraries in between say little more than «failed»."""
    if isinstance(error, httpx2.ConnectTimeout):
        return "no connection was made in time"
    if isinstance(error, httpx2.TimeoutException):
        return "nothing was heard for too long"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not accepted: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError):
            return f"TLS failed: {cause.reason or cause}"
        if isinstance(cause, OSError) and cause.errno:
            return os.strerror(cause.errno)  # asyncio puts a text of its own into `strerror`
        cause = cause.__cause__ or cause.__context__
    return str(error) or "the connection broke"
