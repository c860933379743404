"""HTTP requests to one of several equal servers, with failover and errors of our own tree.

Contract: a request goes to the server that answered last, and to the next one when a connection cannot be
made. Once bytes may have been sent, only GET is sent again: a write that got no answer may have happened.
Every failure to get an answer is Unreachable; an answer, whatever its status, is returned.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2

from autarky.errors import Unreachable

CONNECT_TIMEOUT = 2.0
REQUEST_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer whose body is read as it comes."""

    status: int
    lines: AsyncIterator[str]


class Endpoints:
    """A client of several equal servers (base URLs)."""

    def __init__(self, servers: Sequence[str], tls: ssl.SSLContext, headers: Mapping[str, str] | None = None) -> None:
        self._servers = [server.rstrip("/") for server in servers]
        self._client = httpx2.AsyncClient(
            verify=tls,
            headers=dict(headers or {}),
            trust_env=False,
            timeout=httpx2.Timeout(REQUEST_TIMEOUT, connect=CONNECT_TIMEOUT),
            limits=httpx2.Limits(max_connections=64, max_keepalive_connections=32, keepalive_expiry=30),
        )

    async def request(
        self,
        method: str,
        path: str,
        *,
        parameters: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """One request, answered whole. `timeout` in seconds for all of it but connecting."""
        request = self._build(method, path, parameters, body, content_type, timeout)
        response = await self._send(request, stream=False)
        return Answer(response.status_code, response.content, response.headers)

    @asynccontextmanager
    async def stream(
        self, path: str, *, parameters: Mapping[str, str] | None = None, idle_timeout: float
    ) -> AsyncIterator[Stream]:
        """A GET whose body comes line by line; Unreachable when nothing comes for `idle_timeout` seconds."""
        request = self._build("GET", path, parameters, None, None, idle_timeout)
        response = await self._send(request, stream=True)
        try:
            yield Stream(response.status_code, _lines(response))
        finally:
            await response.aclose()

    async def close(self) -> None:
        await self._client.aclose()

    def _build(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str] | None,
        body: bytes | None,
        content_type: str | None,
        timeout: float | None,
    ) -> httpx2.Request:
        headers = {"Content-Type": content_type} if content_type is not None else {}
        limit = httpx2.Timeout(timeout if timeout is not None else REQUEST_TIMEOUT, connect=CONNECT_TIMEOUT)
        return self._client.build_request(
            method,
            self._servers[0] + path,
            params=dict(parameters) if parameters else None,
            content=body,
            headers=headers,
            timeout=limit,
        )

    async def _send(self, request: httpx2.Request, *, stream: bool) -> httpx2.Response:
        last: Exception | None = None
        for attempt, server in enumerate([*self._servers, self._servers[0]]):
            request.url = httpx2.URL(server).join(request.url.raw_path.decode())
            request.headers["Host"] = request.url.netloc.decode()
            try:
                response = await self._client.send(request, stream=stream)
            except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
                last = error
                if attempt >= len(self._servers) - 1:
                    break
            except (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError) as error:
                # Often a kept-alive connection that the server closed while we were sending.
                last = error
                if request.method != "GET":
                    break
            except (httpx2.TransportError, ssl.SSLError) as error:
                last = error
                break
            else:
                self._prefer(server)
                return response
        raise Unreachable(f"{request.method} {request.url}: {type(last).__name__} {last}".rstrip()) from last

    def _prefer(self, server: str) -> None:
        if server != self._servers[0]:
            self._servers.remove(server)
            self._servers.insert(0, server)


async def _lines(response: httpx2.Response) -> AsyncIterator[str]:
    try:
        async for line in response.aiter_lines():
            yield line
    except httpx2.TransportError as error:
        raise Unreachable(f"{response.url}: the stream was cut: {type(error).__name__} {error}") from error
