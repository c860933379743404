"""A backup is of what etcd's quorum has: what a single member has is none, unless somebody says that it is enough."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autarky.archive.contents import Contents, read
from autarky.errors import Refused
from autarky.etcd.snapshots import Intact, Tried
from autarky.upkeep import backup
from autarky.upkeep.backup import Marker, Snapshot, Taken, Unfit, archive_of, snapshot_taken
from fakes.backed_up_host import BackedUpHost


async def taken(host: BackedUpHost, *, without_quorum: bool = False) -> Taken:
    async with snapshot_taken(host, "test", 1.1, lambda _: None, without_quorum=without_quorum) as found:
        assert host.left == [found.path]
        return found


def contents_of(one: Taken, *, revision: int) -> Contents:
    marker = Marker("demo", "ca", "n1", "v1.37.1")
    snapshot = Snapshot(Path(one.path), one, Intact(100, "00"), Tried(revision, 4))
    _, [manifest, *_] = archive_of(marker, snapshot, [], made="now", autarky="0.1", cluster={})
    assert isinstance(manifest.content, bytes)
    return read(manifest.content)


async def test_a_member_that_reaches_the_quorum_is_backed_up_with_all_that_the_quorum_had() -> None:
    found = await taken(BackedUpHost("n1", quorum=700, own=700))
    assert found.least == 700
    assert contents_of(found, revision=700).etcd.quorum
    assert contents_of(found, revision=705).etcd.revision == 705, "written since"


@pytest.mark.parametrize(
    ("host", "seen"),
    [
        (BackedUpHost("n1", quorum=None), "n1: its member of etcd does not reach a quorum: .*deadline exceeded"),
        (BackedUpHost("n1", answers=False), "n1: its member of etcd does not answer"),
    ],
)
async def test_a_member_that_is_cut_off_gives_no_backup(host: BackedUpHost, seen: str) -> None:
    """It has what there was days ago, and nothing is wrong with its snapshot."""
    with pytest.raises(Unfit, match=seen) as refused:
        await taken(host)
    assert backup.HAS_ALL in str(refused.value)
    assert (host.saved, host.left) == (0, [])


async def test_while_members_differ_none_is_made_of_any() -> None:
    host = BackedUpHost("n1", alarms=[2])
    with pytest.raises(Refused, match="alarm CORRUPT") as refused:
        await taken(host)
    assert not isinstance(refused.value, Unfit), "another node has the same alarm"
    assert host.saved == 0


async def test_another_alarm_is_no_obstacle() -> None:
    """A database that is full is a reason to have a backup."""
    assert (await taken(BackedUpHost("n1", alarms=[1]))).least == 500


async def test_a_snapshot_that_is_older_than_what_the_quorum_had_before_counts_not() -> None:
    found = await taken(BackedUpHost("n1", quorum=700, own=699))
    with pytest.raises(Unfit, match="of revision 699, and the quorum had 700 before"):
        contents_of(found, revision=699)


async def test_without_a_quorum_it_is_made_where_somebody_wants_that_and_says_so() -> None:
    host = BackedUpHost("n1", quorum=None, own=42)
    found = await taken(host, without_quorum=True)
    assert found.least is None
    manifest = contents_of(found, revision=42)
    assert not manifest.etcd.quorum
    assert json.loads(manifest.written())["etcd"]["quorum"] is False


def test_an_archive_that_says_nothing_of_a_quorum_is_read() -> None:
    known = contents_of(Taken("x", 1, "3.6.16", 0xC1, ("n1",), 1), revision=1)
    said = json.loads(replace(known).written())
    del said["etcd"]["quorum"]
    assert read(json.dumps(said).encode()) == known
