"""What the agent reads and changes of etcd on its node's disk."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from autarky import places
from autarky.control.etcd.decide.change import Change
from autarky.control.etcd.decide.local import Data, Manifest
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.etcd.manifests.pods import Founding
from autarky.control.etcd.node import on_disk as etcd_on_disk

SPEC = {"containers": [{"name": "etcd", "command": ["etcd", f"--name={etcd.NAME}"]}]}
FOUNDING = Founding("n1=https://192.0.2.11:2380", "existing")


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, path in (("DATA", "etcd"), ("MEMBER", "etcd/member"), ("MANIFESTS", "manifests"), ("CA", "ca.crt")):
        monkeypatch.setattr(etcd_on_disk, name, tmp_path / path)
    monkeypatch.setattr(etcd_on_disk, "MEMBERS", tmp_path / "etcd-members.json")
    for name in ("MANIFESTS", "ETCD_FENCE", "ETCD_FENCED", "ETCD_CLUSTER", "ETCD_CHANGE"):
        monkeypatch.setattr(places, name, str(tmp_path / name.lower()))
    (tmp_path / "etcd").mkdir()
    (tmp_path / "ca.crt").write_text("CA")
    (tmp_path / "manifests").mkdir()
    return tmp_path


def test_a_started_member_is_seen_with_the_id_that_it_was_written_for(disk: Path) -> None:
    assert etcd_on_disk.manifests() == ()
    etcd_on_disk.start(etcd.filled(SPEC, "n1", "192.0.2.11", FOUNDING, written_for=0xABC))
    assert etcd_on_disk.manifests() == (Manifest(0xABC),)
    assert etcd_on_disk.has_member()
    assert etcd_on_disk.data() == Data(anything=True)
    assert (disk / "etcd/member" / Path(etcd.PEER_CA).name).read_text() == "CA"
    (path,) = (disk / "manifests").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_damaged_manifest_was_written_for_nobody(disk: Path) -> None:
    (disk / "manifests/etcd-12345678.json").write_text('{"metadata": {')
    assert etcd_on_disk.manifests() == (Manifest(None),)


def test_stopping_takes_etcds_static_pods_and_no_others(disk: Path) -> None:
    for name in ("etcd-1.json", "etcd-2.json", "node-load-balancer-1.json"):
        (disk / "manifests" / name).write_text("{}")
    etcd_on_disk.stop()
    assert [path.name for path in (disk / "manifests").iterdir()] == ["node-load-balancer-1.json"]


def test_rule_3_data_is_moved_aside_under_a_time_stamp_and_never_deleted(disk: Path) -> None:
    for now in (1_800_000_000.0, 1_800_000_060.0):
        (disk / "etcd/member").mkdir()
        (disk / "etcd/member/db").write_text(f"{now}")
        kept = etcd_on_disk.move_aside(now)
        assert (kept / "member/db").read_text() == f"{now}"
        assert etcd_on_disk.data() == Data()
    assert len(list((disk / "etcd").glob("kept.*"))) == 2


def test_a_directory_that_cannot_be_read_is_not_an_empty_one(disk: Path) -> None:
    log = disk / "etcd/member/wal/0000000000000000-0000000000000000.wal"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"\0" * 64)
    assert etcd_on_disk.data() is None


def test_the_members_are_remembered_and_told_of_only_when_they_are_news(disk: Path) -> None:
    assert etcd_on_disk.remembered_addresses() == []
    entries = [{"name": "n1", "address": "192.0.2.11", "learner": False}]
    assert etcd_on_disk.remember_members(entries)
    assert not etcd_on_disk.remember_members(entries)
    assert etcd_on_disk.remembered_addresses() == ["192.0.2.11"]
    assert json.loads((disk / "etcd-members.json").read_text()) == entries


def test_a_member_that_is_not_where_members_of_control_nodes_are_is_not_asked_there(disk: Path) -> None:
    """It may be another etcd that listens at that port."""
    members = [
        {"name": "db", "address": "192.0.2.50", "learner": False, "port": 4001},
        {"name": "n1", "address": "192.0.2.11", "learner": False},
        {"name": "n1:second", "address": "192.0.2.11", "learner": True, "port": 2479},
    ]
    etcd_on_disk.remember_members(members)
    assert etcd_on_disk.remembered_addresses() == ["192.0.2.11", "192.0.2.11:2480"]
    assert (disk / "etcd-members.json").exists()


def test_a_node_is_fenced_as_long_as_the_fence_is_there_whatever_it_says(disk: Path) -> None:
    """An incomplete one is a fence as well: it is written before anything else is done."""
    assert not etcd_on_disk.is_fenced()
    (disk / "etcd_fence").write_text("")
    assert etcd_on_disk.is_fenced()
    (disk / "etcd_fence").unlink()
    assert not etcd_on_disk.is_fenced()


def test_the_cluster_of_the_data_is_noted_for_the_next_boot_and_written_only_when_it_is_another(disk: Path) -> None:
    """In hex, as a recovery writes the ids of the clusters that it has replaced: the script compares the words."""
    noted = disk / "etcd_cluster"
    etcd_on_disk.remember_cluster(0xABC)
    assert (noted.read_text(), noted.stat().st_mode & 0o777) == ("abc\n", 0o600)
    inode = noted.stat().st_ino
    etcd_on_disk.remember_cluster(0xABC)
    assert noted.stat().st_ino == inode
    etcd_on_disk.remember_cluster(0xABD)
    assert noted.read_text() == "abd\n"


def test_what_a_change_has_left_gives_way_to_what_the_next_one_leaves(disk: Path) -> None:
    for content in ("first", "second"):
        (disk / "etcd/member").mkdir()
        (disk / "etcd/member/db").write_text(content)
        kept = etcd_on_disk.move_aside_for_change()
    assert kept == disk / "etcd/kept.change"
    assert (kept / "member/db").read_text() == "second"
    assert [path.name for path in (disk / "etcd").iterdir()] == ["kept.change"]


def test_the_note_of_a_cluster_goes_with_the_data_of_its_member(disk: Path) -> None:
    """At the next boot it would be taken for that of the data which comes then."""
    etcd_on_disk.remember_cluster(0xABC)
    (disk / "etcd/member").mkdir()
    etcd_on_disk.move_aside(1_800_000_000.0)
    assert not Path(places.ETCD_CLUSTER).exists()


def test_a_second_member_has_files_of_its_own_and_its_data_is_removed(disk: Path) -> None:
    pod = etcd.filled_second(SPEC, "n1", "192.0.2.11", FOUNDING, 0xABC)
    etcd_on_disk.start(pod, etcd_on_disk.SECOND)
    assert etcd_on_disk.manifests(etcd_on_disk.SECOND) == (Manifest(0xABC),)
    assert etcd_on_disk.manifests() == ()
    assert (disk / "etcd/second/member" / Path(etcd.PEER_CA).name).read_text() == "CA"
    assert etcd_on_disk.data(etcd_on_disk.SECOND) == Data(anything=True)
    assert etcd_on_disk.data() == Data()
    etcd_on_disk.stop(etcd_on_disk.SECOND)
    assert etcd_on_disk.has_second()
    etcd_on_disk.remove_second()
    assert not etcd_on_disk.has_second()


def test_a_change_is_kept_across_restarts_and_a_damaged_note_counts_as_under_way(disk: Path) -> None:
    change = Change("abc", {"metadata": {"name": "a"}}, {"metadata": {"name": "b"}})
    assert etcd_on_disk.change() is None
    assert not etcd_on_disk.is_changing()
    etcd_on_disk.note_change(change)
    assert etcd_on_disk.change() == change
    assert etcd_on_disk.is_changing()
    etcd_on_disk.note_change(replace(change.going_back("why"), over=True))
    assert not etcd_on_disk.is_changing()
    for damage in ("{", "[]", '{"revision": "a"}', '{"more": 1}'):
        Path(places.ETCD_CHANGE).write_text(damage)
        assert etcd_on_disk.is_changing()
        with pytest.raises(ValueError, match=r"\w"):
            etcd_on_disk.change()
    etcd_on_disk.forget_change()
    assert etcd_on_disk.change() is None


@dataclass
class OfTheReleaseBefore:
    """`Change` as that has it. It drops a note with any other key as damaged: between removal and put there would be no
    static pod any more."""

    revision: str
    former: dict[str, Any]
    wanted: dict[str, Any]
    back: bool = False
    why: str = ""
    over: bool = False


UNDER_WAY = Change(
    "abc", {"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}, member=0xA1, cluster=0xF00D, tried=2
)


@pytest.mark.parametrize(
    "change",
    [
        UNDER_WAY,
        UNDER_WAY.going_back("it exits [member 1 of cluster 2, 3 earlier starts] why"),
        replace(UNDER_WAY, member=None, cluster=None, tried=0).going_back("it exits"),
    ],
)
def test_a_note_is_read_by_the_release_before_and_says_whose_it_is_all_the_same(disk: Path, change: Change) -> None:
    """The agents are a DaemonSet, and go back by themselves, also in the middle of a change."""
    etcd_on_disk.note_change(change)
    read = OfTheReleaseBefore(**json.loads(Path(places.ETCD_CHANGE).read_text()))
    assert (read.former, read.wanted, read.back, read.over) == (change.former, change.wanted, change.back, False)
    assert change.why in read.why
    assert etcd_on_disk.change() == change


def test_of_a_change_that_was_given_up_it_says_why_and_nothing_else(disk: Path) -> None:
    """That is what the EtcdMember says then."""
    etcd_on_disk.note_change(replace(UNDER_WAY.going_back("it exits"), over=True))
    assert json.loads(Path(places.ETCD_CHANGE).read_text())["why"] == "it exits"


def test_what_a_later_release_adds_to_a_note_does_not_make_it_a_damaged_one(disk: Path) -> None:
    etcd_on_disk.note_change(UNDER_WAY)
    said = json.loads(Path(places.ETCD_CHANGE).read_text())
    Path(places.ETCD_CHANGE).write_text(json.dumps({**said, "of a later release": 1}))
    assert etcd_on_disk.change() == UNDER_WAY


def test_a_note_that_names_the_member_in_its_own_keys_is_read_as_well(disk: Path) -> None:
    """So it was written for a while."""
    said = {"revision": "abc", "former": {}, "wanted": {}, "member": 0xA1, "cluster": 0xF00D, "tried": 2}
    Path(places.ETCD_CHANGE).write_text(json.dumps(said))
    assert etcd_on_disk.change() == Change("abc", {}, {}, member=0xA1, cluster=0xF00D, tried=2)
