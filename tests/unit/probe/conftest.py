from __future__ import annotations

import asyncio
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from autarky.net.tls import client_context
from autarky.probe import Probe, Rates, kept
from autarky.probe.http import Client
from fakes.web import certificates
from unit.probe.misbehaving import ApiServer


@pytest.fixture(scope="session")
def server_tls() -> ssl.SSLContext:
    """A server's context that wants a client certificate of the tests' CA."""
    found = certificates()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "server.pem"
        path.write_bytes(found.server.certificate + found.server.key)
        context.load_cert_chain(path)
    context.load_verify_locations(cadata=found.ca.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    return context


@pytest.fixture(scope="session")
def client() -> Client:
    found = certificates()
    return Client(client_context(found.ca, found.client.certificate, found.client.key), "tests")


@pytest.fixture
async def server(server_tls: ssl.SSLContext) -> AsyncIterator[ApiServer]:
    async with ApiServer(server_tls) as running:
        yield running


@pytest.fixture
def make_probe() -> Callable[..., Probe]:
    """Probes servers (or URLs), 100 requests a second in each stream, with the default time for a request."""

    def make(*servers: ApiServer | str, **options: Any) -> Probe:
        found = certificates()
        identity = {"client_cert_pem": found.client.certificate, "client_key_pem": found.client.key}
        defaults = {"ca_pem": found.ca, "rates": Rates(100, 100, 100, 100), **identity}
        urls = [server.url if isinstance(server, ApiServer) else server for server in servers]
        return Probe(urls, **{**defaults, **options})

    return make


@pytest.fixture
def slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a round trip takes here, while other tests run: what ends a connection at once is not late."""
    monkeypatch.setattr(kept, "SHORTEST_ROUND_TRIP", 10.0)


@pytest.fixture
def until() -> Callable[[Callable[[], object]], Any]:
    """Waits until the condition holds; what it waits for must come within a minute, on a busy machine too."""

    async def wait(condition: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not condition():  # noqa: ASYNC110 # a condition on several things
                await asyncio.sleep(0.005)

    return wait
