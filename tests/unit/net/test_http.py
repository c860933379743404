from __future__ import annotations

import asyncio
import gc
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest

from autarky.errors import Unreachable
from autarky.model.patience import CONNECT, HEALTH, REQUEST, SECURE
from autarky.net.http import Endpoints, Request, connects, secures
from autarky.net.tls import client_context
from fakes.slow import SlowServer, nobody_answers
from fakes.web import CUT, HANG, Web, answer, certificates, chunked, trusting_context

READ = Request("GET", "/x", resend=True)
WRITE = Request("POST", "/x", body=b"content")

Connect = Callable[..., Endpoints]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Makes clients of Webs or URLs, and closes them in the end."""
    made: list[Endpoints] = []

    def make(*servers: Web | str, patience: float = 0.0) -> Endpoints:
        urls = [server.url if isinstance(server, Web) else server for server in servers]
        made.append(Endpoints(urls, trusting_context(), patience=patience))
        return made[-1]

    yield make
    for client in made:
        await client.close()


@pytest.fixture
def dead() -> str:
    """The URL of a server that does not listen."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"https://127.0.0.1:{free.getsockname()[1]}"


# --- patience --------------------------------------------------------------------------------------------


async def test_a_patient_client_bears_with_a_server_that_is_away_for_a_moment(connect: Connect) -> None:
    async with Web([CUT, CUT, CUT, CUT, answer(200)]) as web:
        assert (await connect(web, patience=5).request(READ)).status == 200


async def test_patience_ends(connect: Connect, dead: str) -> None:
    began = time.monotonic()
    with pytest.raises(Unreachable, match="Connection refused"):
        await connect(dead, patience=0.5).request(WRITE)
    assert 0.2 < time.monotonic() - began < 30


async def test_patience_never_sends_twice_what_may_have_been_carried_out(connect: Connect) -> None:
    async with Web([CUT, answer(200)]) as web:
        with pytest.raises(Unreachable, match="may have been carried out"):
            await connect(web, patience=5).request(WRITE)


async def test_a_request_may_have_less_patience_than_its_client(connect: Connect, dead: str) -> None:
    client = connect(dead, patience=60)
    async with asyncio.timeout(5):
        with pytest.raises(Unreachable):
            await client.request(READ, patience=0.0)


# --- answers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 404, 409, 500, 503])
async def test_an_answer_of_any_status_is_returned(connect: Connect, status: int) -> None:
    async with Web([answer(status, "text", X_Some="thing")]) as web:
        found = await connect(web).request(READ)
    assert (found.status, found.body, found.headers["x-some"]) == (status, b"text", "thing")


async def test_a_request_arrives_as_it_was_made(connect: Connect) -> None:
    request = Request("PATCH", "/a/b:c", {"labels": "a in (b,c)", "x": "1&2"}, {"content-type": "text/x"}, b"\x00body")
    async with Web([answer(200)]) as web:
        await connect(f"{web.url}/prefix/").request(request)
    (heard,) = web.heard
    assert heard.line == "PATCH /prefix/a/b:c?labels=a+in+%28b%2Cc%29&x=1%262"
    assert (heard.headers["content-type"], heard.body) == ("text/x", b"\x00body")


async def test_connections_are_kept(connect: Connect) -> None:
    async with Web([answer(200)]) as web:
        client = connect(web)
        for _ in range(3):
            await client.request(READ)
    assert (web.connections, len(web.heard)) == (1, 3)


def test_a_client_without_servers_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="needs a server"):
        Endpoints([], trusting_context())


def test_headers_and_bodies_are_not_in_the_repr() -> None:
    request = Request("GET", "/x", headers={"authorization": "Bearer hunter2"}, body=b"hunter2")
    assert "hunter2" not in repr(request) + str(request)


# --- which server ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_", [READ, WRITE])
async def test_where_no_connection_can_be_made_the_next_is_asked(
    connect: Connect, dead: str, request_: Request
) -> None:
    async with Web([answer(200)]) as web:
        assert (await connect(dead, web).request(request_)).status == 200


async def test_a_server_that_is_slow_at_tls_is_waited_for_and_a_host_that_does_not_answer_is_not(
    connect: Connect,
) -> None:
    """The kernel answers attempts to connect, however slow the programs are; a load balancer's hold is in TLS."""
    server = SlowServer(handshake=CONNECT + 0.5)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with server.running():
        with nobody_answers("127.0.0.1", port):
            began = time.monotonic()
            client = connect(f"https://127.0.0.1:{port}", f"https://127.0.0.1:{server.port}")
            assert (await client.request(WRITE)).status == 200
            took = time.monotonic() - began
    assert 2 * CONNECT < took < 2 * CONNECT + 3


@pytest.mark.parametrize("timeout", [0.1, 2.0, HEALTH, REQUEST, 90.0])
def test_both_handshakes_end_before_the_time_of_a_request_is_up(timeout: float) -> None:
    assert connects(timeout) + secures(timeout) < timeout
    assert (secures(timeout) == SECURE) == (timeout >= HEALTH)


async def test_the_server_that_answered_last_is_asked_first(connect: Connect, dead: str) -> None:
    async with Web([answer(200)]) as first, Web([answer(200)]) as second:
        client = connect(dead, first, second)
        for _ in range(3):
            await client.request(READ)
    assert (len(first.heard), len(second.heard)) == (3, 0)


async def test_when_none_can_be_connected_each_is_named_with_its_reason(connect: Connect, dead: str) -> None:
    async with Web([answer(200)]) as web:
        other = Endpoints([dead, web.url], client_context(certificates().client.certificate))
        with pytest.raises(Unreachable) as caught:
            await other.request(READ)
        await other.close()
    assert f"{dead}: Connection refused" in str(caught.value)
    assert f"{web.url}: its certificate is not accepted" in str(caught.value)


async def test_after_a_silent_server_the_others_come_first(connect: Connect) -> None:
    async with Web([HANG]) as silent, Web([answer(200)]) as other:
        client = connect(silent, other)
        with pytest.raises(Unreachable, match=r"not answered within 0\.1 s"):
            await client.request(READ, timeout=0.1)
        assert (await client.request(READ)).status == 200


async def test_a_server_that_wants_a_certificate_gets_it(connect: Connect) -> None:
    async with Web([answer(200)], demand_client_certificate=True) as web:
        assert (await connect(web).request(READ)).status == 200


# --- sending again ---------------------------------------------------------------------------------------


async def test_a_harmless_request_is_sent_again_when_the_connection_is_lost(connect: Connect) -> None:
    async with Web([CUT, answer(200)]) as web:
        assert (await connect(web).request(READ)).status == 200


async def test_half_an_answer_is_no_answer(connect: Connect) -> None:
    async with Web([answer(200, "0123456789")[:-3] + CUT, answer(200, "complete")]) as web:
        assert (await connect(web).request(READ)).body == b"complete"


async def test_a_harmless_request_is_sent_again_once_per_server(connect: Connect) -> None:
    async with Web([CUT]) as first, Web([CUT]) as second:
        with pytest.raises(Unreachable):
            await connect(first, second).request(READ)
    assert (len(first.heard), len(second.heard)) == (2, 1)


async def test_a_write_is_never_sent_again_once_it_may_have_arrived(connect: Connect) -> None:
    async with Web([CUT, answer(200)]) as first, Web([answer(200)]) as second:
        with pytest.raises(Unreachable, match="POST /x, which may have been carried out"):
            await connect(first, second).request(WRITE)
    assert (len(first.heard), len(second.heard)) == (1, 0)


async def test_whoever_does_not_wait_has_that_answer_at_once(connect: Connect) -> None:
    async with Web([answer(429, Retry_After="1"), answer(200)]) as web:
        assert (await connect(web).request(replace(READ, waits=False), timeout=25)).status == 429


@pytest.mark.parametrize("request_", [READ, WRITE])
@pytest.mark.parametrize("status", [429, 503])
async def test_a_server_that_says_later_is_asked_later(connect: Connect, status: int, request_: Request) -> None:
    async with Web([answer(status, Retry_After="0"), answer(200)]) as web:
        assert (await connect(web).request(request_)).status == 200
    assert len(web.heard) == 2


async def test_later_than_there_is_time_is_an_answer(connect: Connect) -> None:
    begin = time.monotonic()
    async with Web([answer(429, Retry_After="30")]) as web:
        assert (await connect(web).request(READ, timeout=25)).status == 429
    assert time.monotonic() - begin < 20


async def test_busy_without_a_time_is_an_answer(connect: Connect) -> None:
    async with Web([answer(503), answer(200)]) as web:
        assert (await connect(web).request(READ)).status == 503


async def test_a_cancelled_request_leaves_a_client_that_works(connect: Connect) -> None:
    async with Web([HANG, answer(200)]) as web:
        client = connect(web)
        request = asyncio.create_task(client.request(READ))
        await web.first_request.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        assert (await client.request(READ)).status == 200


async def ask(client: Endpoints) -> None:
    await client.request(READ)


async def watch(client: Endpoints) -> None:
    async with client.stream(READ, idle_timeout=60):
        pass


@pytest.mark.parametrize("by_a_timeout", [True, False])
@pytest.mark.parametrize("use", [ask, watch])
async def test_a_tls_handshake_that_is_cancelled_leaves_no_connection_behind(
    connect: Connect, use: Callable[[Endpoints], Awaitable[None]], *, by_a_timeout: bool
) -> None:
    """It would stay until it is garbage, on both sides."""
    greeted, ended = asyncio.Event(), asyncio.Event()
    limit = asyncio.timeout(None)

    async def in_time(client: Endpoints) -> None:
        async with limit:
            await use(client)

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if await reader.read(1):
                greeted.set()
            await reader.read()
        except ConnectionResetError:
            pass
        finally:
            ended.set()
            writer.close()

    server = await asyncio.start_server(never_answer, "127.0.0.1", 0)
    async with server:
        client = connect(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        using = asyncio.create_task(in_time(client))
        async with asyncio.timeout(30):
            await greeted.wait()
        limit.reschedule(0.0) if by_a_timeout else using.cancel()
        [cause] = await asyncio.gather(using, return_exceptions=True)  # whose traceback keeps what was left behind
        async with asyncio.timeout(1):
            await ended.wait()
    assert isinstance(cause, TimeoutError if by_a_timeout else asyncio.CancelledError)
    del cause, using
    gc.collect()  # what was not closed warns, which fails the test


# --- streams ---------------------------------------------------------------------------------------------


async def read(client: Endpoints, idle_timeout: float = 5) -> tuple[list[bytes], Exception | None]:
    """The lines of a stream, and what it ended with."""
    lines: list[bytes] = []
    try:
        async with client.stream(READ, idle_timeout=idle_timeout) as stream:
            async for line in stream.lines:
                lines.append(line)  # noqa: PERF401 # what came before the error is kept
    except Unreachable as error:
        return lines, error
    return lines, None


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a", b"b", b"\n", b"c\n"], [b"ab", b"c"]),
        ([b"a\n\nb"], [b"a", b"", b"b"]),
        ([b"\xc2\x85\x1c\r\x0b\n", b"\xe2\x80", b"\xa8\n"], [b"\xc2\x85\x1c\r\x0b", b"\xe2\x80\xa8"]),
        ([], []),
    ],
)
async def test_lines_end_at_line_feeds_wherever_chunks_end(
    connect: Connect, chunks: list[bytes], lines: list[bytes]
) -> None:
    async with Web([chunked(*chunks)]) as web:
        assert await read(connect(web)) == (lines, None)


async def test_a_stream_that_breaks_off_keeps_what_came_before(connect: Connect) -> None:
    async with Web([chunked(b"a\nb", end=False) + CUT]) as web:
        lines, error = await read(connect(web))
    assert lines == [b"a"]
    assert "broke off" in str(error)


async def test_a_stream_that_falls_silent_breaks_off(connect: Connect) -> None:
    async with Web([chunked(b"a\n", end=False) + HANG]) as web:
        lines, error = await read(connect(web), idle_timeout=0.5)
    assert lines == [b"a"]
    assert "nothing was heard" in str(error)


async def test_a_stream_that_is_left_early_is_closed(connect: Connect) -> None:
    async with Web([chunked(b"a\n", end=False) + HANG, answer(200)]) as web:
        client = connect(web)
        async with client.stream(READ, idle_timeout=5) as stream:
            assert await anext(stream.lines) == b"a"
        assert (await client.request(READ)).status == 200
