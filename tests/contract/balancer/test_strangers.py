"""Whoever opens connections to a control node and says nothing takes nothing from anybody else. The real HAProxy."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.control.load_balancer.node import haproxy
from autarky.model import patience, ports
from autarky.model.balancer import ApiNode
from autarky.model.cluster import Cluster
from contract.balancer.haproxy import BALANCER, NEIGHBOUR, OUTSIDE, SELF, Running, balancing, check, the_root
from fakes.clusters import a_cluster, inputs_of
from fakes.web import Web, answer, certificates
from unit.render.rendered import EXTERNAL

pytestmark = pytest.mark.contract

API_SERVERS_PATIENCE = 32.0
"""For a connection that says nothing."""
SOURCES = [f"127.0.1.{number}" for number in range(1, 9)]


@pytest.fixture
def descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
async def api() -> AsyncIterator[Web]:
    async with Web([answer(200, "ok")]) as web:
        yield web


@pytest.fixture
async def balancer(haproxy_root: Path, tmp_path: Path, api: Web) -> AsyncIterator[Running]:
    async with balancing(haproxy_root, tmp_path, api.port, etcd=api.port) as running:
        yield running


def silent(balancer: Running, source: str, number: int) -> list[socket.socket]:
    """So many attempts; those that were not refused at once."""
    opened = []
    for _ in range(number):
        try:
            one = balancer.connect(OUTSIDE, source)
        except OSError:  # reset, as it was being opened
            continue
        one.setblocking(False)
        opened.append(one)
    return opened


def held(opened: Sequence[socket.socket]) -> int:
    """How many of them the other side has not closed."""
    return sum(map(_is_open, opened))


def _is_open(connection: socket.socket) -> bool:
    try:
        return connection.recv(4096) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


CLUSTERS = [
    a_cluster(workers=1),
    a_cluster(controls=3, workers=1),
    a_cluster(controls=2, external_etcd=EXTERNAL),
]


@pytest.mark.parametrize("cluster", CLUSTERS, ids=["one", "three", "external etcd"])
def test_haproxy_takes_every_configuration(haproxy_root: Path, tmp_path: Path, cluster: Cluster) -> None:
    root, inputs, found = the_root(haproxy_root, tmp_path), inputs_of(cluster), certificates()
    running = Running(root, {})
    for path, content in (
        (nllb.ETCD_CA_PATH, found.ca),
        (nllb.ETCD_CLIENT_PATH, found.client.certificate + found.client.key),
    ):
        (root / path.replace(nllb.DIRECTORY, "etc/haproxy")).write_bytes(content)
    for node in cluster.nodes:
        running.write(nllb.configuration_files(nllb.of_cluster(inputs.cluster, node)))
        assert check(root) == "", node.name


@pytest.mark.usefixtures("descriptors")
async def test_one_source_that_is_silent_has_its_share_and_no_more(balancer: Running) -> None:
    with ExitStack() as stack:
        opened = await asyncio.to_thread(silent, balancer, NEIGHBOUR, 2 * nllb.MOST_OF_ONE_SOURCE)
        began = time.monotonic()
        for one in opened:
            stack.enter_context(closing(one))
        while held(opened) > nllb.MOST_OF_ONE_SOURCE:  # some wait for their refusal still
            assert _is_open(opened[0]), "none is refused before the first one is cut"
            await asyncio.sleep(0.05)
        assert held(opened) > 0
        assert await balancer.asked(SELF) == 200
        assert await balancer.asked(OUTSIDE, SOURCES[0]) == 200
        while held(opened):
            assert time.monotonic() - began < API_SERVERS_PATIENCE, "these reach an API server"
            await asyncio.sleep(0.2)
        assert await balancer.asked(OUTSIDE, NEIGHBOUR) == 200


@pytest.mark.usefixtures("descriptors")
async def test_when_strangers_have_all_that_is_theirs_the_node_goes_on(balancer: Running) -> None:
    """Seen while none of them has been cut yet: on a busy machine not always the first time."""
    for _ in range(4):
        if await _served_beside_as_many_as_there_may_be(balancer):
            return
    pytest.fail("whoever asks is served when strangers are cut, and not before")


async def _served_beside_as_many_as_there_may_be(balancer: Running) -> bool:
    with ExitStack() as stack:
        opened = []
        for source in SOURCES:
            opened += await asyncio.to_thread(silent, balancer, source, nllb.MOST_OF_ONE_SOURCE)
        for one in opened:
            stack.enter_context(closing(one))
        await asyncio.sleep(0.5)
        descriptors = _descriptors(balancer)
        assert await balancer.asked(SELF) == 200
        assert await balancer.running()
        with await asyncio.to_thread(balancer.connect, SELF, SELF, ports.NLLB_ETCD) as plain:
            assert await asyncio.to_thread(_speaks_tls, balancer, plain)
        if held(opened) < len(opened):
            return False
    assert nllb.MOST_OUTSIDE < descriptors < nllb.MOST_OUTSIDE + nllb.MOST_HEALTH
    return True


def _descriptors(balancer: Running) -> int:
    """Of the process that takes the connections."""
    [worker] = Path(f"/proc/{balancer.master}/task/{balancer.master}/children").read_text().split()
    return len(list(Path(f"/proc/{worker}/fd").iterdir()))


def _speaks_tls(balancer: Running, plain: socket.socket) -> bool:
    with balancer.tls().wrap_socket(plain) as connection:
        return balancer.status(connection) == 200


async def test_what_is_no_tls_is_closed_at_once(balancer: Running) -> None:
    def say(words: bytes) -> bytes:
        with balancer.connect(OUTSIDE, NEIGHBOUR) as connection:
            connection.sendall(words)
            return connection.recv(100)

    began = time.monotonic()
    assert await asyncio.to_thread(say, b"GET /readyz HTTP/1.0\r\n\r\n") == b""
    assert time.monotonic() - began < patience.HOLD


async def test_who_asks_the_health_port_slowly_is_cut(balancer: Running) -> None:
    with await asyncio.to_thread(balancer.connect, SELF, SELF, ports.NLLB_HEALTH) as connection:
        began = time.monotonic()
        connection.sendall(b"GET / HTTP/1.1\r\n")
        connection.setblocking(False)
        while _is_open(connection):
            assert time.monotonic() - began < 10 * nllb.HEALTH_SECONDS
            await asyncio.sleep(0.5)
            with suppress(OSError):
                connection.send(b"x")


async def test_a_client_whose_first_words_come_in_pieces_is_served(balancer: Running) -> None:
    """A ClientHello with a post-quantum key is longer than a packet."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = balancer.tls().wrap_bio(incoming, outgoing)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    hello = outgoing.read()
    to = (OUTSIDE, balancer.ours[ports.NLLB_API])
    reader, writer = await asyncio.open_connection(*to, local_addr=(NEIGHBOUR, 0))
    for piece in (hello[:3], hello[3:40], hello[40:]):
        writer.write(piece)
        await asyncio.sleep(0.3)
    async with asyncio.timeout(20):
        assert (await reader.readexactly(1)) == b"\x16", "a TLS handshake record of the server"
    writer.transport.abort()


@pytest.mark.parametrize("to", [SELF, OUTSIDE])
async def test_at_boot_a_connection_waits_for_the_first_server_wherever_it_comes_from(
    haproxy_root: Path, tmp_path: Path, to: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with balancing(haproxy_root, tmp_path, port) as balancer:
        waiting = asyncio.create_task(balancer.asked(to, to))
        await asyncio.sleep(2)
        assert not waiting.done()
        async with Web([answer(200, "ok")], port=port):
            assert await waiting == 200


def _of_an_earlier_release(text: str) -> str:
    """One frontend, on all addresses."""
    before, _, rest = text.partition("frontend api-outside\n")
    _, _, after = rest.partition("backend ready\n")
    earlier = before.replace("bind 127.0.0.1:6443", "bind :6443").replace("maxconn 2000", "maxconn 4000")
    if not after:
        return text  # the other file
    return f"{earlier}backend ready\n{after.replace(nllb.config_hash(text), 'earlier')}"


async def _failed_until(balancer: Running, name: str) -> int:
    """Of new connections, one after another, from now until a while after that configuration runs."""
    failed, left = 0, 20
    while left > 0:
        for to in (SELF, OUTSIDE):
            try:
                failed += await balancer.asked(to, to) != 200
            except (OSError, IndexError):
                failed += 1
        left -= await balancer.running() == name
    return failed


async def test_the_configuration_of_an_earlier_release_is_replaced_and_no_connection_ends(
    haproxy_root: Path, tmp_path: Path, api: Web
) -> None:
    async with balancing(haproxy_root, tmp_path, api.port, change=_of_an_earlier_release) as balancer:
        with await asyncio.to_thread(balancer.connect, SELF, SELF) as plain:
            kept = await asyncio.to_thread(balancer.tls().wrap_socket, plain)
            assert await asyncio.to_thread(balancer.status, kept) == 200
            name = balancer.write(nllb.configuration_files(BALANCER))
            failed = asyncio.create_task(_failed_until(balancer, name))
            assert await haproxy.reload(balancer.socket) is None
            await balancer.runs(name)
            assert await failed == 0
            assert await asyncio.to_thread(balancer.status, kept) == 200
            kept.close()
        assert [await balancer.asked(to, to) for to in (SELF, OUTSIDE)] == [200, 200]


async def test_who_came_before_a_reload_and_speaks_after_it_is_led_to_a_server_that_is_up(
    haproxy_root: Path, tmp_path: Path, api: Web
) -> None:
    """The worker that is told to stop has accepted it, and knows nowhere to lead it yet. The hosted server accepts
    connections as well, and serves nobody: it is the choice only where nothing is known of any server."""
    renewed = replace(BALANCER, servers=(*BALANCER.servers, ApiNode("n2", NEIGHBOUR)))

    def with_a_standby(text: str) -> str:
        return text.replace(f"{SELF}:{ports.API_STANDBY} ", f"{SELF}:{api.port} ")

    async with (
        Web([answer(503, "no")]) as starting,
        balancing(haproxy_root, tmp_path, starting.port, change=with_a_standby) as balancer,
    ):
        assert await balancer.asked(OUTSIDE, OUTSIDE) == 200
        with ExitStack() as closed:
            early = [
                closed.enter_context(await asyncio.to_thread(balancer.connect, OUTSIDE, OUTSIDE)) for _ in range(6)
            ]
            assert await balancer.asked(OUTSIDE, OUTSIDE) == 200  # who came before is accepted, too
            name = balancer.write(nllb.configuration_files(renewed), with_a_standby)
            assert await haproxy.reload(balancer.socket) is None
            await balancer.runs(name)
            answers = [await asyncio.to_thread(_asked_by, balancer, one) for one in early]
        assert answers == [200] * 6


def _asked_by(balancer: Running, connection: socket.socket) -> int:
    with balancer.tls().wrap_socket(connection) as tls:
        return balancer.status(tls)
