"""Upkeep through the gateway of real members: space is given back, and a damaged member is found and replaced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from autarky.control.etcd.decide.corruption import Content, Voter, judge
from autarky.control.etcd.decide.figures import read
from autarky.control.etcd.node.figures import scraped
from autarky.errors import ApiError
from autarky.etcd import Alarm, EtcdClient
from autarky.model import ports
from autarky.model.patience import REQUEST
from contract.etcd_cluster import Cluster, in_time, three_members
from contract.servers import a_member, free_ports

pytestmark = pytest.mark.contract
QUOTA = 16 * 1024 * 1024
MARK = b"these bytes are found in the database's file"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    found = Cluster(tmp_path)
    yield found
    await found.close()


@pytest.fixture
async def full(cluster: Cluster) -> EtcdClient:
    """A member that has refused a write."""
    one = a_member("one")
    client = await cluster.start(one, [one], arguments={"quota-backend-bytes": QUOTA})
    await refused(client, 40)
    return client


async def refused(client: EtcdClient, most: int) -> None:
    """Write until that is refused for want of space."""
    for _ in range(most):
        try:
            await client.put(b"/registry/same", bytes(1_000_000))
        except ApiError as error:
            if error.reason == "ResourceExhausted":
                return
            raise
    raise AssertionError(f"{most} writes were taken")


async def test_nospace_ends_with_a_compaction_a_defragmentation_and_the_alarm_cleared(full: EtcdClient) -> None:
    before = await full.status()
    assert before.quota == QUOTA
    assert before.db_size > 0.9 * QUOTA
    [alarm] = await full.alarms()
    assert alarm == Alarm(before.member, "NOSPACE")
    await full.compact(before.revision, timeout=REQUEST)
    # Its figures are of the commit before the last, and one that refuses writes may have nothing to commit: neither is
    # what is in use asked here, nor is its size the same as before.
    assert (await full.status()).db_size >= before.db_size, "its pages are free, and its file is as big"
    await full.defragment(timeout=REQUEST)
    tidied = await full.status()
    assert tidied.db_size_in_use <= tidied.db_size < 0.3 * QUOTA
    assert await full.alarms() == (alarm,)
    await full.disarm(alarm)
    assert await full.alarms() == ()
    await full.put(b"/registry/same", b"again")


async def test_an_alarm_that_is_cleared_without_space_comes_back_with_the_next_write(full: EtcdClient) -> None:
    [alarm] = await full.alarms()
    await full.disarm(alarm)
    await refused(full, 4)
    assert await full.alarms() == (alarm,)


async def test_what_is_compacted_already_or_not_there_yet_is_refused_as_out_of_range(full: EtcdClient) -> None:
    revision = (await full.status()).revision
    await full.compact(revision, timeout=REQUEST)
    for wrong in (revision, revision + 10):
        with pytest.raises(ApiError) as caught:
            await full.compact(wrong, timeout=REQUEST)
        assert caught.value.reason == "OutOfRange"


async def test_a_hash_is_of_one_revision_and_says_what_it_was_compacted_to(cluster: Cluster) -> None:
    one = a_member("one")
    client = await cluster.start(one, [one])
    revisions = []
    for number in range(3):
        await client.put(b"/registry/a", str(number).encode())
        revisions.append((await client.status()).revision)
    assert all(earlier < later for earlier, later in pairwise(revisions))
    first = await client.keys_hash(revisions[0], timeout=REQUEST)
    assert (first.revision, first.compacted) == (revisions[0], -1)
    assert await client.keys_hash(revisions[0], timeout=REQUEST) == first
    assert (await client.keys_hash(revisions[1], timeout=REQUEST)).hash != first.hash
    await client.compact(revisions[1], timeout=REQUEST)
    assert (await client.keys_hash(revisions[2], timeout=REQUEST)).compacted == revisions[1]
    for wrong in (revisions[0], revisions[2] + 10):
        with pytest.raises(ApiError) as caught:
            await client.keys_hash(wrong, timeout=REQUEST)
        assert caught.value.reason == "OutOfRange"


async def test_the_metrics_of_a_member_are_understood(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    one, (port,) = a_member("one"), free_ports(1)
    monkeypatch.setattr(ports, "ETCD_HEALTH", port)
    client = await cluster.start(one, [one], arguments={"listen-metrics-urls": f"http://127.0.0.1:{port}"})
    await client.put(b"/registry/a", b"b")
    found = read(await scraped())
    status = await client.status()
    assert (found.has_leader, found.leads, found.learner) == (True, True, False)
    assert (found.size, found.quota, found.alarms) == (status.db_size, status.quota, frozenset())
    assert max(found.fsync.values()) > 0
    assert max(found.commit.values()) > 0


async def contents(clients: dict[int, EtcdClient]) -> list[Voter]:
    revision = min([(await client.status()).revision for client in clients.values()])
    found = [(one, await client.keys_hash(revision, timeout=REQUEST)) for one, client in clients.items()]
    return [Voter(one, f"{one:x}", content=Content(seen.hash, seen.compacted)) for one, seen in found]


async def test_a_member_with_a_damaged_database_is_found_removed_and_its_alarm_cleared(cluster: Cluster) -> None:
    members, clients = await three_members(cluster)
    by_id = {(await client.status()).member: client for client in clients}
    await clients[0].put(b"/registry/marked", MARK)
    damaged = (await clients[2].status()).member
    assert judge([damaged], await contents(by_id)).guilty is None
    await asyncio.sleep(1)  # a database is written every 100 ms
    cluster.running[members[2].name].close()
    file = cluster.data(members[2]) / "member/snap/db"
    content = file.read_bytes()
    assert MARK in content
    file.write_bytes(content.replace(MARK, MARK.swapcase()))
    by_id[damaged] = await cluster.start(members[2], members, joins=True)
    verdict = judge([damaged], await contents(by_id))
    assert verdict.guilty is not None
    assert verdict.guilty.id == damaged

    alarm = Alarm(damaged, "CORRUPT")
    raises = {"action": "ACTIVATE", "memberID": str(damaged), "alarm": "CORRUPT"}
    await clients[0]._write("/v3/maintenance/alarm", raises)
    with pytest.raises(ApiError, match="corrupt"):
        await clients[0].put(b"/registry/a", b"b")
    assert judge([damaged], await contents(by_id)).guilty is not None, "it is compared in spite of the alarm"
    await in_time(partial(clients[0].remove, damaged), "Unavailable")
    del by_id[damaged]
    verdict = judge([damaged], await contents(by_id))
    assert verdict.cleared == (damaged,)
    await clients[0].disarm(alarm)
    await clients[0].put(b"/registry/a", b"b")
    assert await clients[0].alarms() == ()
