"""The probe's own HTTP client: what it understands, and what each breakage is called."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autarky.errors import Unreachable, UserError
from autarky.net.tls import client_context
from autarky.probe.endpoint import resolve
from autarky.probe.http import MAX_BODY, Answer, Client, Request, connect
from autarky.probe.outcome import Fault, Kind
from fakes.web import CUT, Web, answer, certificates, chunked

READ = Request("GET", "/x")


def soon(seconds: float = 1.0) -> float:
    return asyncio.get_running_loop().time() + seconds


async def exchange(client: Client, url: str, request: Request = READ) -> Answer:
    connection = await connect(await resolve(url), client, until=soon())
    try:
        return await connection.exchange(request, until=soon())
    finally:
        connection.close()


@contextmanager
def listening(*, backlog: int = 5) -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=backlog) as server:
        yield server


def url_of(server: socket.socket) -> str:
    return f"https://127.0.0.1:{server.getsockname()[1]}"


# --- answers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [answer(200, "text"), chunked(b"te", b"x", b"t")], ids=["length", "chunks"])
async def test_a_complete_answer_is_returned(client, sent):
    async with Web([sent]) as web:
        found = await exchange(client, web.url)
    assert (found.status, found.body, found.ok) == (200, b"text", True)


async def test_a_request_arrives_as_it_was_made(client):
    async with Web([answer(200)]) as web:
        await exchange(client, web.url, Request("PATCH", "/a?b=c", b"{}", "application/merge-patch+json"))
    (heard,) = web.heard
    assert heard.line == "PATCH /a?b=c HTTP/1.1"[: len(heard.line)]
    assert heard.body == b"{}"
    assert heard.headers["content-type"] == "application/merge-patch+json"
    assert heard.headers["user-agent"] == "tests"
    assert heard.headers["host"] == web.url.removeprefix("https://")


async def test_a_connection_carries_one_request_after_the_other(client):
    async with Web([answer(200, "1"), answer(200, "2")]) as web:
        connection = await connect(await resolve(web.url), client, until=soon())
        bodies = [(await connection.exchange(READ, until=soon())).body for _ in range(2)]
        assert connection.usable
        connection.close()
    assert bodies == [b"1", b"2"]
    assert (connection.answers, web.connections) == (2, 1)


async def test_the_round_trip_of_a_connection_is_its_shortest_exchange(client):
    async with Web([answer(200)] * 20) as web:
        connection = await connect(await resolve(web.url), client, until=soon())
        seen = [connection.round_trip]
        for _ in range(20):
            began = asyncio.get_running_loop().time()
            await connection.exchange(READ, until=soon())
            took = asyncio.get_running_loop().time() - began
            seen.append(connection.round_trip)
            assert connection.round_trip <= min(took, seen[-2])
        connection.close()
    assert 0 < seen[-1] < seen[0] == math.inf


async def test_a_close_tells_how_long_after_the_request_it_came(client):
    async with Web([answer(200), CUT]) as web:
        connection = await connect(await resolve(web.url), client, until=soon())
        await connection.exchange(READ, until=soon())
        began = asyncio.get_running_loop().time()
        with pytest.raises(Fault) as raised:
            await connection.exchange(READ, until=soon())
    assert 0 < raised.value.after <= asyncio.get_running_loop().time() - began


async def test_a_server_that_says_close_is_not_asked_again(client):
    async with Web([answer(200, Connection="close")]) as web:
        connection = await connect(await resolve(web.url), client, until=soon())
        await connection.exchange(READ, until=soon())
        assert not connection.usable
        connection.close()


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ('{"reason": "Expired", "message": "too  old"}', "410 Expired: too old (audit id 7)"),
        ("<html>\nsorry</html>", "410: <html> sorry</html> (audit id 7)"),
        ("", "410 (audit id 7)"),
        ("[]", "410: [] (audit id 7)"),
    ],
)
def test_a_refusal_is_told_in_the_servers_words(body, sentence):
    assert Answer(410, {"audit-id": "7"}, body.encode()).sentence() == sentence


# --- what is no answer -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "kind", "begun"),
    [
        (CUT, Kind.CLOSED, False),
        (answer(200, "text")[:-2] + CUT, Kind.CLOSED, True),
        (b"HTTP/1.1 200" + CUT, Kind.CLOSED, True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab" + CUT, Kind.CLOSED, True),
        (b"HTTP/1.1 200 OK\r\n\r\n", Kind.MALFORMED, True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", Kind.MALFORMED, True),
        (f"HTTP/1.1 200 OK\r\nContent-Length: {MAX_BODY + 1}\r\n\r\n".encode(), Kind.MALFORMED, True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", Kind.MALFORMED, True),
        (b"HTTP/1.1 abc\r\n\r\n", Kind.MALFORMED, True),
        (b"\x15\x03\x01\x00\x02\x02\x16\r\n\r\n", Kind.MALFORMED, True),
        (b"x" * 70_000, Kind.MALFORMED, True),
    ],
)
async def test_an_answer_that_is_not_complete_has_a_name(client, sent, kind, begun):
    async with Web([sent]) as web:
        with pytest.raises(Fault) as raised:
            await exchange(client, web.url)
    assert (raised.value.kind, raised.value.begun) == (kind, begun)


async def test_nobody_there_is_a_refused_connection(client):
    with listening() as server:
        url = url_of(server)
    with pytest.raises(Fault) as raised:
        await exchange(client, url)
    assert raised.value.kind is Kind.REFUSED


async def test_a_dial_that_is_never_taken_up_is_a_connect_timeout(client):
    with (
        listening(backlog=0) as server,
        socket.create_connection(server.getsockname()),  # fills the queue: the kernel drops what comes after it
        pytest.raises(Fault) as raised,
    ):
        await connect(await resolve(url_of(server)), client, until=soon(0.2))
    assert (raised.value.kind, raised.value.detail) == (Kind.CONNECT_TIMEOUT, "no TCP connection in time")


async def test_an_address_that_cannot_be_reached_is_no_connection(client):
    with pytest.raises(Fault) as raised:
        await connect(await resolve("https://255.255.255.255:6443"), client, until=soon())
    assert raised.value.kind is Kind.NO_CONNECTION


async def test_silence_in_the_handshake_is_a_timeout(client):
    with listening() as server, pytest.raises(Fault) as raised:
        await connect(await resolve(url_of(server)), client, until=soon(0.1))
    assert (raised.value.kind, raised.value.detail) == (Kind.TIMEOUT, "silence in the TLS handshake")


async def test_a_server_that_speaks_no_tls_is_a_tls_failure(client):
    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2p1\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Fault) as raised:
            await connect(await resolve(f"https://127.0.0.1:{port}"), client, until=soon())
    assert raised.value.kind is Kind.TLS


async def test_a_certificate_of_another_ca_is_a_tls_failure():
    stranger = Client(client_context(None), "tests")
    async with Web([answer(200)]) as web:
        with pytest.raises(Fault) as raised:
            await connect(await resolve(web.url), stranger, until=soon())
    assert raised.value.kind is Kind.TLS
    assert "CERTIFICATE_VERIFY_FAILED: unable to get local issuer certificate" in raised.value.detail


async def test_a_certificate_for_another_name_is_a_tls_failure_unless_that_name_is_asked_for(client):
    misnamed = dataclasses.replace(client, server_name="10.0.0.1")
    async with Web([answer(200), answer(200)]) as web:
        with pytest.raises(Fault) as raised:
            await connect(await resolve(web.url), misnamed, until=soon())
        local = web.url.replace("127.0.0.1", "localhost")
        assert (await exchange(dataclasses.replace(client, server_name="127.0.0.1"), local)).ok
    assert "IP address mismatch" in raised.value.detail


async def test_a_server_that_refuses_our_certificate_is_a_tls_failure(server_tls):
    anonymous = Client(client_context(certificates().ca), "tests")
    with listening() as server:
        thread = threading.Thread(target=_refuse_one, args=(server, server_tls))
        thread.start()
        try:
            with pytest.raises(Fault) as raised:
                await exchange(anonymous, url_of(server))
        finally:
            thread.join()
    assert raised.value.kind is Kind.TLS
    assert "CERTIFICATE_REQUIRED" in raised.value.detail


def _refuse_one(server: socket.socket, tls: ssl.SSLContext) -> None:
    """A blocking server: asyncio's says nothing to those whose certificate it does not accept."""
    accepted, _ = server.accept()
    session = tls.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
    with pytest.raises(ssl.SSLError):
        session.do_handshake()
    with socket.socket(fileno=session.detach()) as raw:
        while raw.recv(4096):  # what is closed with something unread is reset
            pass


def test_a_fault_is_unreachable_to_everybody_else():
    assert isinstance(Fault(Kind.RESET, "127.0.0.1:6443", "reset"), Unreachable)
    assert str(Fault(Kind.RESET, "127.0.0.1:6443", "gone")) == "127.0.0.1:6443: connection-reset: gone"


# --- endless answers -------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=15)
@given(st.lists(st.text(st.characters(exclude_characters="\n", codec="utf-8"), min_size=1), max_size=5), st.data())
def test_lines_are_put_together_from_any_chunks(lines, data):
    text = "".join(f"{line}\n" for line in lines).encode()
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(text) - 1)), max_size=4)))
    chunks = [text[i:j] for i, j in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    found = asyncio.run(_lines_of(chunked(*[chunk for chunk in chunks if chunk])))
    assert found == [line.encode() for line in lines]


async def _lines_of(sent: bytes) -> list[bytes]:
    found = certificates()
    client = Client(client_context(found.ca, found.client.certificate, found.client.key), "tests")
    async with Web([sent]) as web:
        connection = await connect(await resolve(web.url), client, until=soon())
        assert await connection.begin(READ, until=soon()) is None
        lines = [line async for line in connection.lines()]
        connection.close()
    return lines


async def test_a_stream_that_is_cut_keeps_its_complete_lines_and_drops_the_rest(client):
    async with Web([chunked(b"complete\nhal", end=False) + CUT]) as web:
        connection = await connect(await resolve(web.url), client, until=soon())
        await connection.begin(READ, until=soon())
        lines = connection.lines()
        assert await anext(lines) == b"complete"
        with pytest.raises(Fault) as raised:
            await anext(lines)
    assert (raised.value.kind, raised.value.begun) == (Kind.CLOSED, True)


async def test_a_watch_that_is_refused_has_an_ordinary_answer(client):
    async with Web([answer(410, '{"reason": "Expired"}')]) as web:
        connection = await connect(await resolve(web.url), client, until=soon())
        refused = await connection.begin(READ, until=soon())
        connection.close()
    assert refused.sentence().startswith("410 Expired")


# --- addresses and secrets -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["http://a:6443", "a:6443", "https://", "https://a/path", "https://a:x", "https://[::1"]
)
async def test_what_is_no_address_of_an_api_server_is_refused(url):
    with pytest.raises(UserError, match="is not"):
        await resolve(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [("https://127.0.0.1", "127.0.0.1:443"), ("https://[::1]:6443/", "[::1]:6443"), ("https://127.1:1", "127.0.0.1:1")],
)
async def test_an_address_is_shown_as_it_is_dialled(url, shown):
    assert str(await resolve(url)) == shown


@pytest.mark.parametrize(
    ("addresses", "dialled"),
    [(["::1", "127.0.0.1"], "127.0.0.1:6443"), (["10.0.0.2", "10.0.0.1"], "10.0.0.2:6443"), (["::1"], "[::1]:6443")],
)
async def test_a_name_is_dialled_at_its_first_ipv4_address_because_clusters_listen_there(
    monkeypatch, addresses, dialled
):
    families = [socket.AF_INET6 if ":" in address else socket.AF_INET for address in addresses]
    found = [
        (family, socket.SOCK_STREAM, 0, "", (address, 6443))
        for family, address in zip(families, addresses, strict=True)
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_arguments: found)
    assert str(await resolve("https://api.example.org:6443")) == dialled


async def test_a_name_without_an_address_is_unreachable():
    with pytest.raises(Unreachable, match=r"nowhere\.invalid has no address"):
        await resolve("https://nowhere.invalid:6443")


def test_no_secret_is_in_a_repr(client):
    assert "hunter2" not in repr(dataclasses.replace(client, token="hunter2"))
