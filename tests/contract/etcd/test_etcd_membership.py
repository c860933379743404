"""Membership against real members: what etcd refuses, and what the data of a member says of itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from autarky.control.etcd.node.quorum import EtcdQuorum, Way
from autarky.errors import ApiError, AutarkyError
from autarky.etcd import EtcdClient, MemberStatus, read_identity
from contract.etcd_cluster import Cluster, in_time, promoted, three_members
from contract.servers import Member, a_member

pytestmark = pytest.mark.contract


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    found = Cluster(tmp_path)
    yield found
    await found.close()


async def test_a_member_joins_as_a_learner_and_gets_its_vote_when_it_is_in_sync(cluster: Cluster) -> None:
    one, two = a_member("one"), a_member("two")
    first = await cluster.start(one, [one])
    added = await first.add_learner(two.peer)
    assert added.is_learner
    assert added.name == ""
    assert added.client_urls == ()
    with pytest.raises(ApiError) as refused:  # it has not run yet
        await first.promote(added.id)
    assert refused.value.reason == "FailedPrecondition"
    second = await cluster.start(two, [one, two], joins=True)
    await promoted(first, added.id)
    assert {member.name for member in await second.members()} == {"one", "two"}
    assert not (await second.status()).is_learner


async def test_a_second_learner_is_refused_and_so_is_an_address_twice(cluster: Cluster) -> None:
    one, two, three = a_member("one"), a_member("two"), a_member("three")
    client = await cluster.start(one, [one])
    await client.add_learner(two.peer)
    for peer in (three.peer, two.peer):
        with pytest.raises(ApiError) as refused:
            await client.add_learner(peer)
        assert refused.value.reason == "FailedPrecondition"


async def test_a_learner_says_how_it_is_and_nothing_else(cluster: Cluster) -> None:
    one, two = a_member("one"), a_member("two")
    first = await cluster.start(one, [one])
    added = await first.add_learner(two.peer)
    learner = await cluster.start(two, [one, two], joins=True)
    status = await learner.status()
    assert (status.member, status.is_learner) == (added.id, True)
    assert status.cluster == (await first.status()).cluster
    with pytest.raises(ApiError) as refused:
        await learner.members()
    assert refused.value.reason == "FailedPrecondition"


async def test_a_learner_that_never_starts_costs_nothing_and_is_removed(cluster: Cluster) -> None:
    one, two = a_member("one"), a_member("two")
    client = await cluster.start(one, [one])
    added = await client.add_learner(two.peer)
    await client.put(b"/test/key", b"written with a learner that is not there")
    await client.remove(added.id)
    assert [member.name for member in await client.members()] == ["one"]
    again = await in_time(lambda: client.add_learner(two.peer), "NotFound")
    assert again.id != added.id  # ids never come back


async def test_removing_what_is_not_there_is_told_as_such(cluster: Cluster) -> None:
    one = a_member("one")
    client = await cluster.start(one, [one])
    with pytest.raises(ApiError) as refused:
        await client.remove(1)
    assert refused.value.reason == "NotFound"


async def test_leadership_moves_before_the_leader_leaves(cluster: Cluster) -> None:
    _, clients = await three_members(cluster)
    before = await clients[0].status()
    assert before.leader == before.member
    target = (await clients[1].status()).member
    await clients[0].move_leader(target)
    assert (await _settled_leader(clients[1])).leader == target
    await in_time(lambda: clients[1].remove(before.member), "Unavailable")
    assert {member.id for member in await clients[1].members()} == {
        (await clients[1].status()).member,
        (await clients[2].status()).member,
    }
    await clients[1].put(b"/test/key", b"written by two")


async def _settled_leader(client: EtcdClient) -> MemberStatus:
    while not (status := await client.status()).leader:  # noqa: ASYNC110 # etcd tells nobody
        await asyncio.sleep(0.05)
    return status


async def test_only_the_leader_hands_leadership_over(cluster: Cluster) -> None:
    _, clients = await three_members(cluster)
    with pytest.raises(ApiError) as refused:
        await clients[1].move_leader((await clients[2].status()).member)
    assert refused.value.reason == "FailedPrecondition"


async def test_a_dead_member_is_removed_by_the_others(cluster: Cluster) -> None:
    members, clients = await three_members(cluster)
    dead = (await clients[2].status()).member
    cluster.running[members[2].name].close()
    await clients[0].remove(dead)
    assert len(await clients[0].members()) == 2


async def test_etcd_refuses_what_would_cost_the_quorum(cluster: Cluster) -> None:
    """`--strict-reconfig-check`: one of three is gone, and a second one may not be removed."""
    members, clients = await three_members(cluster)
    second = (await clients[1].status()).member
    cluster.running[members[2].name].close()
    with pytest.raises(ApiError) as refused:
        await clients[0].add_learner(a_member("four").peer)
    assert refused.value.reason == "Unavailable"
    with pytest.raises(AutarkyError):
        await clients[0].remove(second)


async def test_the_data_of_a_member_says_whose_it_is(cluster: Cluster) -> None:
    members, clients = await three_members(cluster)
    for member, client in zip(members, clients, strict=True):
        status = await client.status()
        found = read_identity(cluster.data(member))
        assert found is not None
        assert (found.member, found.cluster) == (status.member, status.cluster)


def test_a_directory_without_a_log_is_nobodys(tmp_path: Path) -> None:
    assert read_identity(tmp_path) is None
    (tmp_path / "member/wal").mkdir(parents=True)
    assert read_identity(tmp_path) is None


@pytest.mark.parametrize("content", [b"", b"\0" * 64, b"\x10" + b"\0" * 7 + b"x" * 16, b"\xff" * 64])
def test_a_log_that_cannot_be_read_is_not_nobodys(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "member/wal").mkdir(parents=True)
    (tmp_path / "member/wal/0000000000000000-0000000000000000.wal").write_bytes(content)
    with pytest.raises(ValueError, match=r"."):
        read_identity(tmp_path)


async def test_only_a_member_with_a_quorum_answers_the_node_agents_question(cluster: Cluster, tmp_path: Path) -> None:
    """Asked of each alone, and of both as of an external etcd: a member that runs is not a quorum."""
    one, two = a_member("one"), a_member("two")
    first = await cluster.start(one, [one])
    added = await in_time(lambda: first.add_learner(two.peer), "Unavailable")
    await cluster.start(two, [one, two], joins=True)
    await in_time(lambda: first.promote(added.id), "FailedPrecondition", "Unavailable")
    alone, both = _quorum(cluster, one), _quorum(cluster, two, one)
    try:
        assert await alone.is_up()
        assert await both.is_up()
        cluster.running["two"].close()
        assert not await alone.is_up()
        assert not await both.is_up()
        assert (await first.status()).member != added.id  # it runs, and answers
    finally:
        await alone.close()
        await both.close()


def _quorum(cluster: Cluster, *members: Member) -> EtcdQuorum:
    pki = cluster.pki.directory / "etcd"
    servers = tuple((urlsplit(member.client).hostname or "", urlsplit(member.client).port or 0) for member in members)
    way = Way(servers, pki / "ca.crt", pki / "client.crt", pki / "client.key", ())
    return EtcdQuorum(lambda *_: None, lambda: way)
