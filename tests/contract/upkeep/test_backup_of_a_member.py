"""Backups of real members: one that has lost the others gives none, unless somebody wants what it has."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from autarky import places
from autarky.etcd import Place
from autarky.etcd.snapshots import intact, tried
from autarky.hosts import LocalHost
from autarky.pki import PkiStore
from autarky.upkeep import backup
from autarky.upkeep.backup import Unfit, snapshot_taken
from contract.servers import Member, Server, a_member, etcd_pki, linked_programs, running_member

pytestmark = [pytest.mark.contract, pytest.mark.timeout(180)]


@dataclass
class Three:
    members: list[Member]
    pki: PkiStore
    programs: Path
    stacks: list[ExitStack]

    def place(self, number: int) -> Place:
        return Place(self.members[number].client, str(self.pki.directory / "etcd"), str(self.programs))

    async def write(self) -> None:
        etcd = Server(self.members[0].client, self.pki).etcd()
        await etcd.put(b"/registry/configmaps/demo/one", b"x")
        await etcd.close()


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Three]:
    monkeypatch.setattr(places, "HOST_ROOT", str(tmp_path / "root"))
    monkeypatch.setattr(backup, "_QUORUM_SECONDS", 5.0)
    pki, members = etcd_pki(tmp_path / "pki"), [a_member(name) for name in ("n1", "n2", "n3")]
    programs = linked_programs(tmp_path / "b", "etcd", "etcdctl", "etcdutl")
    stacks = [ExitStack() for _ in members]
    # A member ends with the thread that has started it.
    with ThreadPoolExecutor(len(members)) as threads:
        begun = [
            threads.submit(stack.enter_context, running_member(member, members, pki, tmp_path / member.name))
            for stack, member in zip(stacks, members, strict=True)
        ]
        for one in begun:
            one.result()
        yield Three(members, pki, programs, stacks)
        for stack in stacks:
            stack.close()


async def test_each_member_of_a_quorum_gives_all_that_there_is(three: Three, tmp_path: Path) -> None:
    """Also right after a write to another one."""
    for number in range(3):
        await three.write()
        async with snapshot_taken(
            LocalHost(f"n{number + 1}"), "test", 1.1, lambda _: None, place=three.place(number)
        ) as taken:
            assert taken.least is not None
            intact(Path(taken.path))
            found = await tried(Path(taken.path), tmp_path / f"tried-{number}", three.programs, timeout=60)
            assert found.revision >= taken.least == number + 2


async def test_a_member_whose_majority_has_stopped_gives_none_unless_that_is_wanted(
    three: Three, tmp_path: Path
) -> None:
    await three.write()
    for stack in three.stacks[1:]:
        await asyncio.to_thread(stack.close)
    host, place = LocalHost("n1"), three.place(0)
    with pytest.raises(Unfit, match="n1: its member of etcd does not reach a quorum"):
        async with snapshot_taken(host, "test", 1.1, lambda _: None, place=place):
            pass
    assert list(Path(places.HOST_ROOT, "scratch").iterdir()) == []
    with pytest.raises(Unfit, match="n2: its member of etcd does not answer"):
        await backup.newest_revision(LocalHost("n2"), three.place(1))
    async with snapshot_taken(host, "test", 1.1, lambda _: None, without_quorum=True, place=place) as taken:
        assert taken.least is None
        assert taken.members == ("n1", "n2", "n3")
        intact(Path(taken.path))
        found = await tried(Path(taken.path), tmp_path / "tried", three.programs, timeout=60)
        assert (found.revision, found.keys) == (2, 1)
