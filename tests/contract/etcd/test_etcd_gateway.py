from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from autarky.errors import ApiError, Unreachable
from autarky.etcd import EtcdClient
from contract.servers import Server, free_ports

pytestmark = pytest.mark.contract


@pytest.fixture
async def etcd(etcd_server: Server) -> AsyncIterator[EtcdClient]:
    client = etcd_server.etcd()
    yield client
    await client.close()


async def test_a_single_member_leads_itself(etcd: EtcdClient) -> None:
    status = await etcd.status()
    (member,) = await etcd.members()
    assert status.member == status.leader == member.id
    assert member.name == "one"
    assert not member.is_learner
    assert not status.is_learner
    assert status.errors == ()
    assert 0 < status.db_size_in_use <= status.db_size
    assert 0 < status.raft_applied_index <= status.raft_index


async def test_members_say_where_they_are_reached(etcd: EtcdClient, etcd_server: Server) -> None:
    (member,) = await etcd.members()
    assert member.client_urls == (etcd_server.url,)
    assert len(member.peer_urls) == 1


async def test_a_member_that_serves_is_healthy(etcd: EtcdClient) -> None:
    assert await etcd.healthy() is None


async def test_what_was_put_is_read_back_whatever_its_bytes(etcd: EtcdClient) -> None:
    value = bytes(range(256))
    await etcd.put(b"/test/\x00\xff", value)
    found = await etcd.get(b"/test/\x00\xff")
    assert found is not None
    assert (found.key, found.value) == (b"/test/\x00\xff", value)
    assert found.cluster == (await etcd.membership()).cluster


async def test_each_write_has_a_later_revision(etcd: EtcdClient) -> None:
    revisions = []
    for _ in range(2):
        await etcd.put(b"/test/revision", b"same")
        found = await etcd.get(b"/test/revision")
        assert found is not None
        revisions.append(found.mod_revision)
    assert revisions[0] < revisions[1]


async def test_an_absent_key_is_none(etcd: EtcdClient) -> None:
    assert await etcd.get(b"/test/absent") is None


async def test_what_etcd_refuses_is_an_api_error_with_its_reason(etcd: EtcdClient) -> None:
    with pytest.raises(ApiError, match="key is not provided") as caught:
        await etcd.put(b"", b"x")
    assert caught.value.reason == "InvalidArgument"


async def test_values_are_not_in_the_repr(etcd: EtcdClient) -> None:
    await etcd.put(b"/test/secret", b"hunter2")
    assert "hunter2" not in repr(await etcd.get(b"/test/secret"))


async def test_the_next_member_answers_when_the_first_does_not(etcd_server: Server) -> None:
    (dead,) = free_ports(1)
    client = etcd_server.etcd(f"https://127.0.0.1:{dead}", etcd_server.url)
    try:
        await client.put(b"/test/failover", b"1")
        assert await client.healthy() is None
    finally:
        await client.close()


async def test_no_member_at_all_is_unreachable_and_unhealthy(etcd_server: Server) -> None:
    (dead,) = free_ports(1)
    client = etcd_server.etcd(f"https://127.0.0.1:{dead}")
    try:
        with pytest.raises(Unreachable, match="refused"):
            await client.members()
        assert "refused" in str(await client.healthy())
    finally:
        await client.close()


async def test_a_certificate_of_another_ca_is_refused(etcd_server: Server) -> None:
    pair = etcd_server.pki.read("super-admin")
    client = EtcdClient(
        [etcd_server.url],
        ca_pem=etcd_server.pki.files()["etcd/ca.crt"],
        client_cert_pem=pair.certificate,
        client_key_pem=pair.key,
    )
    with pytest.raises(Unreachable):
        await client.members()
    await client.close()
