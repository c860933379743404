"""What no real API server does on demand. Everything else is in the contract tests."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import pytest

from autarky.errors import ApiError, Conflict, Unreachable
from autarky.kube import KubeClient
from autarky.kube import client as kube_client
from autarky.kube.client import LOG_LIMIT
from autarky.kube.paging import LONGEST
from autarky.ports import Object
from fakes.web import CUT, HANG, Web, answer, certificates, chunked

Connect = Callable[..., KubeClient]


def status(code: int, reason: str, message: str = "a message", **details: str) -> bytes:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    return answer(code, json.dumps({**body, "reason": reason, "message": message, "details": details}))


def page(*names: str, more: str = "") -> bytes:
    items = [{"metadata": {"name": name}} for name in names]
    return answer(200, json.dumps({"metadata": {"resourceVersion": "7", "continue": more}, "items": items}))


def event(kind: str, obj: Object) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def added(name: str) -> bytes:
    return event("ADDED", {"metadata": {"name": name, "resourceVersion": "8"}})


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    made: list[KubeClient] = []

    def make(web: Web, token: str | Callable[[], str] | None = None) -> KubeClient:
        made.append(KubeClient([web.url], ca_pem=certificates().ca, token=token))
        return made[-1]

    yield make
    for client in made:
        await client.close()


async def watched(client: KubeClient) -> list[str]:
    async with aclosing(client.watch("v1", "Node")) as stream:
        return [found.object["metadata"]["name"] async for found in stream]


# --- logs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [HANG, b""], ids=["and hangs", "complete"])
async def test_a_kubelet_that_gives_more_of_a_log_than_it_was_asked_for_is_not_heard_out(
    connect: Connect, end: bytes
) -> None:
    line = b"x" * 1023 + b"\n"
    async with Web([chunked(*[line] * (4 * LOG_LIMIT // len(line)), end=not end) + end]) as web, asyncio.timeout(20):
        found = await connect(web).logs("kube-system", "x", tail=5)
    assert len(found) == LOG_LIMIT
    assert web.lines == [f"GET /api/v1/namespaces/kube-system/pods/x/log?limitBytes={LOG_LIMIT}&tailLines=5"]


async def test_a_log_that_is_short_is_complete(connect: Connect) -> None:
    async with Web([chunked(b"one\n", b"two\n"), status(404, "NotFound", "no such pod")]) as web:
        client = connect(web)
        assert await client.logs("kube-system", "x") == "one\ntwo\n"
        with pytest.raises(ApiError, match="no such pod"):
            await client.logs("kube-system", "x")


# --- texts -----------------------------------------------------------------------------------------------


async def test_only_lines_that_begin_so_are_kept_of_a_text_and_wherever_it_is_split(connect: Connect) -> None:
    text = chunked(b"# HELP a b\na{x=", b'"1"} 1\nb 2\n', b"ab 3\na{} 4\xff")
    async with Web([text, chunked()]) as web:
        client = connect(web)
        assert await client.lines("/metrics", ["a{", "b "]) == ['a{x="1"} 1', "b 2", "a{} 4�"]
        assert await client.lines("/metrics", ["a"]) == []
    assert web.lines == ["GET /metrics"] * 2
    assert [heard.headers["accept"] for heard in web.heard] == ["text/plain"] * 2


async def test_a_text_that_is_refused_is_an_error(connect: Connect) -> None:
    async with Web([status(403, "Forbidden", "not for you")]) as web:
        with pytest.raises(ApiError, match="not for you"):
            await connect(web).lines("/metrics", ["a"])


@pytest.mark.parametrize("limit", ["TEXT_LIMIT", "LINES_LIMIT"])
async def test_a_text_without_end_is_given_up(connect: Connect, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(kube_client, limit, 1000)
    begins = "a" if limit == "LINES_LIMIT" else "b"
    async with Web([chunked(*[b"a" * 99 + b"\n"] * 11, end=False) + HANG]) as web, asyncio.timeout(20):
        with pytest.raises(Unreachable, match="too long to be read"):
            await connect(web).lines("/metrics", [begins])


async def test_a_text_that_stops_coming_is_given_up(connect: Connect) -> None:
    async with Web([chunked(b"a 1\n", end=False) + HANG]) as web, asyncio.timeout(20):
        client = KubeClient([web.url], ca_pem=certificates().ca, timeout=1)
        with pytest.raises(Unreachable):
            await client.lines("/metrics", ["a"])
        await client.close()


# --- answers ---------------------------------------------------------------------------------------------


async def test_409_is_a_conflict_and_other_statuses_are_api_errors(connect: Connect) -> None:
    async with Web([status(409, "Conflict"), status(422, "Invalid")]) as web:
        client = connect(web)
        with pytest.raises(Conflict, match="Conflict: a message"):
            await client.get("v1", "Node", "a")
        with pytest.raises(ApiError, match="422 Invalid: a message"):
            await client.get("v1", "Node", "a")


@pytest.mark.parametrize("code", [404, 500, 502])
async def test_an_error_that_is_no_status_object_shows_what_was_said(connect: Connect, code: int) -> None:
    async with Web([answer(code, "<html>no server is available</html>")]) as web:
        with pytest.raises(ApiError, match="no server is available") as caught:
            await connect(web).get("v1", "Node", "a")
    assert caught.value.status == code


async def test_only_a_404_about_the_object_means_that_it_is_absent(connect: Connect) -> None:
    async with Web([status(404, "NotFound", name="a"), status(404, "NotFound", name="other")]) as web:
        client = connect(web)
        assert await client.get("v1", "Node", "a") is None
        with pytest.raises(ApiError):
            await client.get("v1", "Node", "a")


async def test_a_good_answer_that_is_no_json_is_unreachable(connect: Connect) -> None:
    async with Web([answer(200, "<html>please log in</html>")]) as web:
        with pytest.raises(Unreachable, match="please log in"):
            await connect(web).get("v1", "Node", "a")


async def test_a_redirect_is_not_followed(connect: Connect) -> None:
    async with Web([answer(302, Location="https://example.org/")]) as web:
        with pytest.raises(ApiError) as caught:
            await connect(web).get("v1", "Node", "a")
    assert caught.value.status == 302


@pytest.mark.parametrize(
    ("code", "body", "said"),
    [
        (500, "[+]ping ok\n[-]etcd failed: reason withheld\n[-]shutdown failed: x\n", "not ok: etcd, shutdown"),
        (503, "no server", "/readyz says 503: no server"),
        (401, "", "/readyz says 401"),
    ],
)
async def test_health_says_what_is_not_ok(connect: Connect, code: int, body: str, said: str) -> None:
    async with Web([answer(code, body)]) as web:
        assert said in str(await connect(web).healthy())


# --- what is nested without end ---------------------------------------------------------------------------


def deep(name: str, levels: int = 1500) -> bytes:
    """A Node as its kubelet may write it: with fields of fields without end, which nobody reads."""
    fields = '{"f:a":' * levels + "{}" + "}" * levels
    entry = f'{{"manager": "x", "fieldsV1": {fields}}}'
    meta = f'{{"name": "{name}", "resourceVersion": "8", "managedFields": [{entry}], "labels": {{"after": "it"}}}}'
    return f'{{"metadata": {meta}, "status": {{"phase": "[[{{"}}}}'.encode()


def complete(node: Object) -> bool:
    """But for what lies too deep."""
    meta, fields = node["metadata"], node["metadata"]["managedFields"][0]["fieldsV1"]
    for _ in range(50):
        fields = fields["f:a"]
    return meta["labels"] == {"after": "it"} and node["status"] == {"phase": "[[{"}


async def test_an_object_that_is_nested_without_end_hides_no_other_of_its_list(connect: Connect) -> None:
    body = b'{"metadata": {"resourceVersion": "7"}, "items": [%s, {"metadata": {"name": "b"}}]}' % deep("a")
    async with Web([answer(200, body.decode())]) as web:
        first, second = await connect(web).list("v1", "Node")
    assert (first["metadata"]["name"], second["metadata"]["name"]) == ("a", "b")
    assert complete(first)


async def test_an_object_that_is_nested_without_end_is_read_alone(connect: Connect) -> None:
    async with Web([answer(200, deep("a").decode())]) as web:
        found = await connect(web).get("v1", "Node", "a")
    assert found is not None
    assert complete(found)


async def test_an_object_that_is_nested_without_end_ends_no_watch(connect: Connect) -> None:
    line = b'{"type": "MODIFIED", "object": %s}\n' % deep("a")
    async with Web([chunked(line, added("b"))]) as web, aclosing(connect(web).watch("v1", "Node")) as stream:
        first, second = [found.object async for found in stream]
    assert (first["metadata"]["name"], second["metadata"]["name"]) == ("a", "b")
    assert complete(first)


@pytest.mark.parametrize("body", ["[" * 100_000, '{"a":' * 100_000])
async def test_nesting_without_end_that_is_no_json_is_an_answer_of_nobody(connect: Connect, body: str) -> None:
    async with Web([answer(200, body), answer(500, body), chunked(body.encode() + b"\n")]) as web:
        client = connect(web)
        with pytest.raises(Unreachable, match="not JSON"):
            await client.get("v1", "Node", "a")
        with pytest.raises(ApiError, match="500"):
            await client.get("v1", "Node", "a")
        with pytest.raises(Unreachable, match="within an event"):
            await watched(client)


@pytest.mark.parametrize("line", [b"[]\n", b"7\n", b'"type"\n'])
async def test_what_is_no_event_breaks_the_watch_off(connect: Connect, line: bytes) -> None:
    async with Web([chunked(line)]) as web:
        with pytest.raises(Unreachable, match="within an event"):
            await watched(connect(web))


# --- requests --------------------------------------------------------------------------------------------


async def test_a_token_is_read_again_for_each_request(connect: Connect) -> None:
    tokens = iter(["first", "second"])
    async with Web([page()]) as web:
        client = connect(web, token=lambda: next(tokens))
        for _ in range(2):
            await client.list("v1", "Node")
    assert [heard.headers["authorization"] for heard in web.heard] == ["Bearer first", "Bearer second"]


async def test_apply_is_sent_again_after_a_lost_connection_and_create_is_not(connect: Connect) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}
    async with Web([CUT, answer(200, json.dumps(node)), CUT]) as web:
        client = connect(web)
        assert await client.apply(node, manager="me") == node
        with pytest.raises(Unreachable, match="may have been carried out"):
            await client.create(node)
    assert web.lines == ["PATCH /api/v1/nodes/a?fieldManager=me&force=true"] * 2 + ["POST /api/v1/nodes"]


async def test_a_list_that_was_forgotten_between_its_pages_is_begun_again_in_pages(connect: Connect) -> None:
    script = [page("a", more="t"), status(410, "Expired"), page("a", more="u"), page("b")]
    async with Web(script) as web:
        found = await connect(web).list("v1", "Node")
    assert [obj["metadata"]["name"] for obj in found] == ["a", "b"]
    assert web.lines == [
        "GET /api/v1/nodes?limit=100",
        "GET /api/v1/nodes?limit=200&continue=t",
        "GET /api/v1/nodes?limit=100",
        "GET /api/v1/nodes?limit=200&continue=u",
    ]


async def test_a_list_that_is_forgotten_again_and_again_is_an_error(connect: Connect) -> None:
    async with Web([page("a", more="t"), status(410, "Expired")] * 2) as web:
        with pytest.raises(ApiError, match="410 Expired"):
            await connect(web).list("v1", "Node")
    assert len(web.lines) == 4


# --- lists of what is long ---------------------------------------------------------------------------------


def long_page(name: str, letters: int, more: str = "") -> bytes:
    item = {"metadata": {"name": name}, "spec": "x" * letters}
    return answer(200, json.dumps({"metadata": {"resourceVersion": "7", "continue": more}, "items": [item]}))


def limits(web: Web) -> list[str]:
    return [line.partition("limit=")[2] for line in web.lines]


async def test_a_page_that_is_too_long_is_left_and_asked_for_in_smaller_ones(connect: Connect) -> None:
    """The rest of it is not even read: it would take minutes, and more memory than there is."""
    too_long = chunked(b"x" * (LONGEST + 1), end=False) + HANG
    async with Web([too_long, too_long, page("a", more="t"), page("b")]) as web, asyncio.timeout(20):
        found = await connect(web).list("v1", "Node")
    assert [obj["metadata"]["name"] for obj in found] == ["a", "b"]
    assert limits(web) == ["100", "12", "1", "2&continue=t"]


async def test_an_object_that_is_longer_than_a_page_may_be_is_read_alone(connect: Connect) -> None:
    long = long_page("a", LONGEST)
    async with Web([long, long, long]) as web:
        [found] = await connect(web).list("v1", "Node")
    assert len(found["spec"]) == LONGEST
    assert limits(web) == ["100", "12", "1"]


async def test_of_each_page_only_what_is_to_be_kept_is_there_when_the_next_one_is_read(connect: Connect) -> None:
    """A small thing in an object takes some 200 bytes, and 12 as text."""
    item = json.dumps({"metadata": {"name": "a"}, "x": [{"key": "a"}] * 8_000})
    body = ",".join([item] * 5)
    head = '{"metadata": {"resourceVersion": "7", "continue": "%s"}, "items": [%s]}'
    pages = [answer(200, head % ("t" if number < 9 else "", body)) for number in range(10)]
    one = 5 * 8_000 * 200
    async with Web(pages * 3) as web:
        client = connect(web)
        peak = await peak_of(client.list_at("v1", "Node", slim=lambda node: {"metadata": node["metadata"]}))
        assert peak < 1.6 * one
        peak = await peak_of(_names(client))
        assert peak < 1.6 * one
        assert await peak_of(client.list("v1", "Node")) > 8 * one, "this is how much it would be"


async def peak_of(work: Awaitable[object]) -> int:
    tracemalloc.start()
    try:
        await work
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


async def _names(client: KubeClient) -> list[str]:
    return [node["metadata"]["name"] async for node in client.each("v1", "Node")]


async def test_what_is_deleted_is_not_read(connect: Connect) -> None:
    """It may be as long as it likes."""
    async with Web([answer(200, "{"), status(409, "Conflict")]) as web:
        client = connect(web)
        assert await client.delete("v1", "Node", "a")
        with pytest.raises(Conflict):
            await client.delete("v1", "Node", "a")


async def test_objects_come_one_after_the_other_with_their_kind(connect: Connect) -> None:
    async with Web([page("a", "b", more="t"), page("c")]) as web:
        found = [node async for node in connect(web).each("v1", "Node", labels="x", fields="y")]
    assert found == [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in "abc"]
    assert web.lines == [
        "GET /api/v1/nodes?limit=100&labelSelector=x&fieldSelector=y",
        "GET /api/v1/nodes?limit=200&labelSelector=x&fieldSelector=y&continue=t",
    ]


async def test_kinds_are_discovered_once_and_again_when_they_may_have_changed(connect: Connect) -> None:
    resources = [
        {"name": "gadgets/status", "kind": "Gadget", "namespaced": False},
        {"name": "gadgets", "kind": "Gadget", "namespaced": True},
    ]
    discovery = answer(200, json.dumps({"resources": resources}))
    async with Web([discovery, page(), page(), answer(404, "404 page not found"), discovery, page()]) as web:
        client = connect(web)
        for _ in range(2):
            await client.list("example.org/v1", "Gadget", namespace="default")
        with pytest.raises(ApiError):
            await client.list("example.org/v1", "Gadget", namespace="default")
        await client.list("example.org/v1", "Gadget", namespace="default")
    asked = [line.removeprefix("GET /apis/example.org/v1").partition("?")[0] for line in web.lines]
    assert asked == ["", *["/namespaces/default/gadgets"] * 3, "", "/namespaces/default/gadgets"]


# --- watches ---------------------------------------------------------------------------------------------


async def test_an_error_event_is_raised_after_what_came_before(connect: Connect) -> None:
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    async with Web([chunked(added("a"), event("ERROR", gone))]) as web:
        stream = connect(web).watch("v1", "Node")
        assert (await anext(stream)).object["metadata"]["name"] == "a"
        with pytest.raises(ApiError, match="410 Expired: too old"):
            await anext(stream)


async def test_a_watch_that_is_refused_raises_as_other_calls_do(connect: Connect) -> None:
    async with Web([status(403, "Forbidden")]) as web:
        with pytest.raises(ApiError, match="403 Forbidden"):
            await watched(connect(web))


async def test_half_an_event_is_no_event(connect: Connect) -> None:
    async with Web([chunked(added("a"), added("b")[:-9])]) as web:
        stream = connect(web).watch("v1", "Node")
        await anext(stream)
        with pytest.raises(Unreachable, match="within an event"):
            await anext(stream)


async def test_a_big_event_in_many_pieces_is_one_event(connect: Connect) -> None:
    big = event("ADDED", {"metadata": {"name": "a", "resourceVersion": "8"}, "data": {"x": "y" * 300_000}})
    async with Web([chunked(*(big[start : start + 1000] for start in range(0, len(big), 1000)))]) as web:
        assert await watched(connect(web)) == ["a"]
