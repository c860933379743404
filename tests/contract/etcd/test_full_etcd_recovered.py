"""A new etcd of the snapshot of one that takes no writes: full, or with an alarm because its members differed. By the
script for hosts, with real programs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from autarky.control.etcd.decide.lineage import FORMER, former_of
from autarky.control.etcd.decide.recovery import BUMP
from autarky.errors import ApiError, CommandFailed
from autarky.etcd import EtcdClient, EtcdTools
from autarky.etcd.tools import Place
from autarky.hosts import LocalHost
from contract.etcd.test_log_of_a_member import run
from contract.servers import Member, a_member, etcd_pki, linked_programs, running_member

QUOTA = 16 * 1024 * 1024
MOST = 250
"""Writes of 100 KB."""
NOT_ALL_LIVE, ALL_LIVE = "there is room without the history", "live objects have all of it"
OLD, OLDER = 0xC1, 0xA7
pytestmark = [pytest.mark.contract, pytest.mark.timeout(180)]


@dataclass
class Full:
    """A host with a snapshot in the directory of a recovery."""

    directory: Path
    member: Member
    programs: Path
    revision: int

    @property
    def pki(self) -> Path:
        return self.directory / "pki/etcd"

    @property
    def data(self) -> Path:
        return self.directory / "recovered/data"

    @property
    def work(self) -> Path:
        return self.data / "recovery.abc"

    def step(self, *arguments: object) -> list[str]:
        return run(*arguments, programs=self.programs, ca=self.pki / "ca.crt")

    def made(self) -> tuple[int, set[int]]:
        """And placed: the revision that the new etcd begins with, and what it says it has replaced."""
        self.step("unpack", self.work, "snapshot.db")
        former, revision = self.step("replay", self.work, json.dumps([f"{OLD:x}"]))
        argv = (self.work, "n1", self.member.peer, "demo-abc", BUMP, "old/member/snap/db", "--skip-hash-check")
        self.step("make", *argv)
        self.step("place", self.data, self.work, "kept.1")
        return int(revision) + BUMP, set(former_of(former))


@asynccontextmanager
async def served(full: Full, directory: Path, quota: int) -> AsyncIterator[tuple[EtcdTools, EtcdClient]]:
    """By a member with that quota."""
    pki, member = etcd_pki(full.directory / "pki"), full.member
    started = running_member(member, [member], pki, directory, further={"quota-backend-bytes": quota})
    server = await asyncio.to_thread(started.__enter__)
    client = server.etcd()
    try:
        yield EtcdTools(LocalHost("n1"), place=Place(member.client, str(full.pki), str(full.programs))), client
    finally:
        await client.close()
        started.__exit__(None, None, None)


async def fill(client: EtcdClient, objects: int) -> None:
    """Write until that is refused, as a tenant does: so many objects, again and again."""

    async def written() -> None:
        for number in range(MOST):
            await client.put(f"/registry/configmaps/demo/of-{number % objects}".encode(), bytes([number]) * 100_000)

    with pytest.raises(ApiError) as refused:
        await written()
    assert refused.value.reason == "ResourceExhausted"


@pytest.fixture
async def full(tmp_path: Path, request: pytest.FixtureRequest) -> Full:
    """kind: its alarm, and of NOSPACE how much of it is history."""
    programs = linked_programs(tmp_path / "bin", "etcd", "etcdctl", "etcdutl")
    found = Full(tmp_path, a_member("n1"), programs, 0)
    async with served(found, tmp_path / "tenants", QUOTA) as (tools, client):
        await tools.put(FORMER, json.dumps([f"{OLDER:x}"]))
        if request.param == "CORRUPT":
            member = str((await client.status()).member)
            alarm = {"action": "ACTIVATE", "memberID": member, "alarm": "CORRUPT"}
            await client._write("/v3/maintenance/alarm", alarm)
        else:
            await fill(client, {NOT_ALL_LIVE: 10, ALL_LIVE: MOST}[request.param])
        assert len(await tools.alarms()) == 1
        with pytest.raises(CommandFailed):
            await tools.put(FORMER, "[]")
        found.work.mkdir(parents=True)
        found.revision = await tools.revision()
        await tools.save_snapshot(str(found.work / "snapshot.db"), timeout=30)
    return found


@pytest.mark.parametrize("full", [NOT_ALL_LIVE, ALL_LIVE, "CORRUPT"], indirect=True)
async def test_an_etcd_that_is_recovered_knows_which_it_replaces_before_it_serves_though_the_old_one_took_no_writes(
    full: Full,
) -> None:
    revision, former = full.made()
    assert former == {OLD, OLDER}
    assert revision > full.revision + BUMP
    async with served(full, full.directory / "recovered", QUOTA) as (tools, _):
        assert former_of(await tools.value(FORMER)) == {OLD, OLDER}
        assert await tools.revision() == revision
        assert await tools.alarms() == ()


@pytest.mark.parametrize("full", [NOT_ALL_LIVE, "CORRUPT"], indirect=True)
async def test_and_it_takes_writes(full: Full) -> None:
    """With the quota that the old one had: its history is gone, and the room for that is free in the file."""
    full.made()
    async with served(full, full.directory / "recovered", QUOTA) as (tools, client):
        await tools.put("a", "b")
        status = await client.status()
        assert (await tools.alarms(), status.quota) == ((), QUOTA)
        assert status.db_size < 0.9 * QUOTA


@pytest.mark.parametrize("full", [ALL_LIVE], indirect=True)
async def test_where_live_objects_have_all_of_it_the_alarm_is_back_with_the_first_write(full: Full) -> None:
    """As on any full etcd, which takes deletions; and with a larger quota all is well."""
    full.made()
    async with served(full, full.directory / "recovered", QUOTA) as (tools, client):
        assert (await client.status()).db_size > 0.9 * QUOTA
        await fill(client, MOST)
        assert [one.kind for one in await tools.alarms()] == ["NOSPACE"]
        await tools._ctl(["del", "/registry/configmaps/demo/of-0"])
        await tools.disarm()
    async with served(full, full.directory / "recovered", 4 * QUOTA) as (tools, _):
        await tools.put("a", "b")
        assert await tools.alarms() == ()
