"""etcd's own tools, as they are run on a member's host: against three real members."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from autarky.control.etcd.decide.lineage import FORMER
from autarky.errors import CommandFailed
from autarky.etcd import EtcdTools
from autarky.etcd.tools import Place
from autarky.hosts import LocalHost
from contract.servers import Server, a_member, etcd_pki, linked_programs, running_member

WRITES = 20
pytestmark = [pytest.mark.contract, pytest.mark.timeout(180)]


@dataclass
class Three:
    """tools: on the host of the first."""

    tools: EtcdTools
    endpoints: list[str]
    stopped: list[ExitStack]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    directory = tmp_path_factory.mktemp("etcd-tools")
    pki, members = etcd_pki(directory / "pki"), [a_member(name) for name in ("n1", "n2", "n3")]
    programs = linked_programs(directory / "bin", "etcdctl", "etcdutl")
    stacks = [ExitStack() for _ in members]

    # A member ends with the thread that has started it.
    with ThreadPoolExecutor(len(members)) as threads:
        begun = [
            threads.submit(stack.enter_context, running_member(member, members, pki, directory / member.name))
            for stack, member in zip(stacks, members, strict=True)
        ]
        for one in begun:
            one.result()
        asyncio.run(_written(Server(members[0].client, pki)))
        place = Place(members[0].client, str(pki.directory / "etcd"), str(programs))
        yield Three(EtcdTools(LocalHost("n1"), place=place), [one.client for one in members], stacks)
        for stack in stacks:
            stack.close()


async def _written(server: Server) -> None:
    etcd = server.etcd()
    for _ in range(WRITES):
        await etcd.put(b"key", b"x" * 100_000)
    await etcd.close()


async def test_the_list_is_the_quorums_and_each_member_speaks_for_itself(three):
    listed = await three.tools.membership()
    assert sorted(one.name for one in listed.members) == ["n1", "n2", "n3"]
    assert listed == await three.tools.membership(by_quorum=False)
    statuses = await three.tools.statuses(three.endpoints)
    assert {one.cluster for one in statuses.values()} == {listed.cluster}
    assert {one.member for one in statuses.values()} == {one.id for one in listed.members}
    assert len({one.leader for one in statuses.values()}) == 1
    assert {one.quota for one in statuses.values()} == {2 << 30}
    assert await three.tools.health(three.endpoints) == dict.fromkeys(three.endpoints)
    assert await three.tools.alarms() == ()


async def test_one_that_is_not_there_is_told_and_hides_no_other(three):
    absent = "https://127.0.0.1:1"
    asked = [*three.endpoints, absent]
    assert (await three.tools.statuses(asked)).keys() == set(three.endpoints)
    health = await three.tools.health(asked)
    assert health.pop(absent)
    assert set(health.values()) == {None}


async def test_history_is_forgotten_once_and_the_disk_is_freed(three):
    newest = await three.tools.revision()
    assert newest > WRITES
    before = await three.tools.statuses(three.endpoints)
    await three.tools.compact(newest - 1, timeout=30)
    with pytest.raises(CommandFailed, match="has been compacted"):
        await three.tools.compact(newest - 1, timeout=30)
    for endpoint in three.endpoints:
        await three.tools.defragment(endpoint, timeout=30)
    after = await three.tools.statuses(three.endpoints)
    assert sum(one.db_size for one in after.values()) < sum(one.db_size for one in before.values()) / 2


async def test_a_value_is_printed_with_the_number_of_the_cluster_that_says_it(three):
    """As the standby's script reads it (`tests/unit/control/slots/test_standby_etcd.py`)."""
    await three.tools.put(FORMER, '["abc"]\n')
    lines = (await three.tools._ctl(["get", FORMER], form="fields")).splitlines()
    assert f'"ClusterID" : {(await three.tools.membership()).cluster}' in lines
    assert '"Value" : "[\\"abc\\"]\\n"' in lines


async def test_the_leadership_moves_where_it_is_wanted(three):
    statuses = await three.tools.statuses(three.endpoints)
    leader = next(endpoint for endpoint, one in statuses.items() if one.leader == one.member)
    target = next(one.member for endpoint, one in statuses.items() if endpoint != leader)
    await three.tools.move_leader(leader, target)
    assert {one.leader for one in (await three.tools.statuses(three.endpoints)).values()} == {target}
    with pytest.raises(CommandFailed):
        await three.tools.move_leader(leader, target)  # it leads no more


async def test_a_snapshot_is_verified_by_its_hash(three, tmp_path):
    path = tmp_path / "snapshot.db"
    await three.tools.save_snapshot(str(path), timeout=30)
    assert path.stat().st_mode & 0o777 == 0o600
    status = await three.tools.snapshot_status(str(path), timeout=30)
    assert status.revision == await three.tools.revision()
    content = path.read_bytes()
    for place in (0, len(content) // 2, len(content) - 33, len(content) - 1):
        damaged = bytearray(content)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(CommandFailed, match="its hash is wrong"):
            await three.tools.snapshot_status(str(path), timeout=30)
    path.write_bytes(b"")
    with pytest.raises(CommandFailed, match="is no snapshot"):
        await three.tools.snapshot_status(str(path), timeout=30)


async def test_all_members_have_the_same_keys(three):
    revision = await three.tools.revision()
    hashes = await three.tools.hashes(three.endpoints, revision)
    assert hashes.keys() == set(three.endpoints)
    assert len(set(hashes.values())) == 1
