"""What no real etcd does on demand. Everything else is in the contract tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable

import pytest

from autarky.errors import ApiError, Unreachable
from autarky.etcd import EtcdClient
from fakes.web import CUT, HANG, Web, answer, certificates

Connect = Callable[[Web], EtcdClient]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    made: list[EtcdClient] = []

    def make(web: Web) -> EtcdClient:
        found = certificates()
        made.append(
            EtcdClient(
                [web.url],
                ca_pem=found.ca,
                client_cert_pem=found.client.certificate,
                client_key_pem=found.client.key,
            )
        )
        return made[-1]

    yield make
    for client in made:
        await client.close()


async def test_an_error_of_grpc_keeps_its_word_and_its_text(connect: Connect) -> None:
    body = json.dumps({"error": "etcdserver: no leader", "code": 14, "message": "etcdserver: no leader"})
    async with Web([answer(503, body)]) as web:
        with pytest.raises(ApiError, match="503 Unavailable: etcdserver: no leader"):
            await connect(web).status()


async def test_a_change_that_waits_for_the_disks_has_more_time_than_a_look() -> None:
    found = certificates()
    async with Web([HANG]) as web:
        client = EtcdClient(
            [web.url],
            ca_pem=found.ca,
            client_cert_pem=found.client.certificate,
            client_key_pem=found.client.key,
            timeout=0.2,
            change_timeout=30,
        )
        with pytest.raises(Unreachable, match="not answered"):
            await client.status()
        change = asyncio.create_task(client.add_learner("https://10.0.0.9:2380"))
        await asyncio.sleep(0.6)
        assert not change.done()
        change.cancel()
        await client.close()


async def test_a_code_that_nobody_knows_is_an_error_all_the_same(connect: Connect) -> None:
    async with Web([answer(500, json.dumps({"error": "x", "code": 99}))]) as web:
        with pytest.raises(ApiError, match="500 Unknown: x"):
            await connect(web).members()


async def test_whoever_does_not_speak_json_is_not_etcd(connect: Connect) -> None:
    async with Web([answer(404, "404 page not found")]) as web:
        with pytest.raises(Unreachable, match="not etcd"):
            await connect(web).status()


async def test_an_unhealthy_member_says_why(connect: Connect) -> None:
    body = json.dumps({"health": "false", "reason": "ALARM NOSPACE"})
    async with Web([answer(503, body)]) as web:
        assert await connect(web).healthy() == "/health says 503: ALARM NOSPACE"


async def test_numbers_that_do_not_fit_a_float_are_exact(connect: Connect) -> None:
    member = 2**64 - 1
    body = json.dumps({"header": {"member_id": str(member)}, "leader": str(member - 1), "version": "3.6.16"})
    async with Web([answer(200, body)]) as web:
        status = await connect(web).status()
    assert (status.member, status.leader) == (member, member - 1)


async def test_what_is_left_out_is_zero_or_empty(connect: Connect) -> None:
    async with Web([answer(200, json.dumps({"header": {}, "members": [{"ID": "7"}]}))]) as web:
        (member,) = await connect(web).members()
    assert (member.id, member.name, member.client_urls, member.is_learner) == (7, "", (), False)


async def test_reading_is_sent_again_after_a_lost_connection_and_writing_is_not(connect: Connect) -> None:
    async with Web([CUT, answer(200, json.dumps({"header": {}})), CUT]) as web:
        client = connect(web)
        assert await client.get(b"a") is None
        with pytest.raises(Unreachable, match="may have been carried out"):
            await client.put(b"a", b"b")
    assert [line.rpartition("/")[2] for line in web.lines] == ["range", "range", "put"]
