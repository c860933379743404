"""Where archives are kept: under their names they are complete, or not there."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from contextlib import chdir, closing
from pathlib import Path

import pytest

from autarky.agents.backup.wiring import _name
from autarky.archive import Directory
from autarky.archive.targets import LEFT_SECONDS
from autarky.control.backup.manifests.pods import LONGEST_SECONDS
from autarky.errors import UserError


@pytest.fixture
def target(tmp_path: Path) -> Directory:
    return Directory(tmp_path / "backups")


def _written(target: Directory, name: str, meanwhile: Callable[[], object]) -> None:
    with target.writing(name) as writer:
        writer.write(b"1")
        meanwhile()


def _full() -> None:
    raise OSError("full")


def listed(tmp_path: Path) -> list[str]:
    return [one.name for one in (tmp_path / "backups").iterdir()]


def test_what_is_written_is_there_and_only_for_root(target: Directory, tmp_path: Path) -> None:
    assert not target.has("a")
    with target.writing("a") as writer:
        writer.write(b"1")
        assert not target.has("a")
    assert target.has("a")
    assert listed(tmp_path) == ["a"]
    assert (tmp_path / "backups/a").stat().st_mode & 0o777 == 0o600
    with target.reading("a") as reader:
        assert reader.read() == b"1"


def test_what_fails_in_the_middle_leaves_nothing(target: Directory, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="full"):
        _written(target, "a", _full)
    assert listed(tmp_path) == []


@pytest.mark.parametrize("left", [".a.part", ".a.0123456789abcdef.part"])
def test_what_a_kill_has_left_is_removed(target: Directory, tmp_path: Path, left: str) -> None:
    (tmp_path / "backups").mkdir()
    (tmp_path / "backups" / left).write_bytes(b"half of something that was longer")
    others = [".a.json.part", ".a.x.part", ".ab.part"]
    for name in others:
        (tmp_path / "backups" / name).touch()
    with target.writing("a") as writer:
        writer.write(b"1")
    assert (tmp_path / "backups/a").read_bytes() == b"1"
    assert sorted(listed(tmp_path)) == sorted(["a", *others])


@pytest.mark.parametrize("kind", [".tar.gz.age", ".json"])
def test_what_was_killed_under_another_name_is_removed_when_it_is_surely_nobodys(
    target: Directory, tmp_path: Path, kind: str
) -> None:
    """Each attempt has a name of its own, so that no later one removed its part: the directory filled up."""
    name = _name("demo", "nightly-20261126-030000", "2026-11-26T03:00:05Z").removesuffix(".tar.gz.age") + kind
    (tmp_path / "backups").mkdir()
    old, young = (tmp_path / "backups" / f".{name}.{digit * 16}.part" for digit in "12")
    others = [tmp_path / "backups" / one for one in (name, f".mine{kind}.{'3' * 16}.part", f".{name}.part")]
    for part in (old, young, *others):
        part.touch()
        age = LEFT_SECONDS - 60 if part == young else LEFT_SECONDS + 60
        os.utime(part, (time.time() - age,) * 2)
    with target.writing("a"):
        pass
    assert sorted(listed(tmp_path)) == sorted(["a", young.name, *(one.name for one in others)])


def test_a_part_is_left_for_longer_than_a_pod_may_write() -> None:
    assert LEFT_SECONDS > 2 * LONGEST_SECONDS


def test_what_others_have_put_there_is_neither_written_to_nor_removed(target: Directory, tmp_path: Path) -> None:
    """Who may write to the directory puts a link where the archive is to be written first."""
    victim = tmp_path / "shadow"
    victim.write_bytes(b"precious")
    (tmp_path / "backups").mkdir()
    (tmp_path / "backups/.a.part").symlink_to(victim)
    (tmp_path / "backups/.a.0123456789abcdef.part").mkdir()
    with target.writing("a") as writer:
        writer.write(b"1")
    assert victim.read_bytes() == b"precious"
    assert (tmp_path / "backups/.a.part").is_symlink()
    assert (tmp_path / "backups/a").read_bytes() == b"1"


@pytest.mark.usefixtures("as_root")  # who makes files of others
def test_a_file_of_another_user_stays_his(target: Directory, tmp_path: Path) -> None:
    (tmp_path / "backups").mkdir()
    foreign = tmp_path / "backups/.a.part"
    foreign.write_bytes(b"his")
    os.chown(foreign, 65534, 65534)
    with target.writing("a") as writer:
        writer.write(b"1")
    assert foreign.read_bytes() == b"his"
    assert (tmp_path / "backups/a").stat().st_uid == 0


@pytest.mark.parametrize("link", [True, False])
def test_though_somebody_guesses_the_name_nothing_is_followed_or_taken_over(
    target: Directory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: bool
) -> None:
    monkeypatch.setattr("autarky.archive.targets.secrets.token_hex", lambda _: "guessed")
    (tmp_path / "backups").mkdir()
    victim, part = tmp_path / "victim", tmp_path / "backups/.a.guessed.part"
    victim.write_bytes(b"precious")
    part.symlink_to(victim) if link else part.write_bytes(b"precious")
    with pytest.raises(UserError, match="exists already"), target.writing("a"):
        pass
    assert (victim if link else part).read_bytes() == b"precious"
    assert "a" not in listed(tmp_path)


def test_of_two_that_write_the_same_one_fails(target: Directory, tmp_path: Path) -> None:
    def other() -> None:
        with target.writing("a") as writer:
            writer.write(b"2")
        target.remove("a")

    with pytest.raises(UserError, match="somebody else writes"):
        _written(target, "a", other)


def test_nothing_is_replaced(target: Directory, tmp_path: Path) -> None:
    with target.writing("a") as writer:
        writer.write(b"1")
    with pytest.raises(UserError, match="exists already"), target.writing("a"):
        pass
    with pytest.raises(UserError, match="exists already"):
        _written(target, "b", lambda: (tmp_path / "backups/b").write_bytes(b"another's"))
    assert (tmp_path / "backups/b").read_bytes() == b"another's"


def test_removing_twice_is_the_same_as_once(target: Directory) -> None:
    target.remove("a")
    with target.writing("a") as writer:
        writer.write(b"1")
    target.remove("a")
    target.remove("a")
    assert not target.has("a")
    with pytest.raises(UserError, match="there is no file"), target.reading("a"):
        pass


def test_a_file_that_was_replaced_by_a_pipe_is_not_waited_for(target: Directory, tmp_path: Path) -> None:
    """Whoever has the directory puts one there between the writing and the reading: nobody ever writes into it."""
    (tmp_path / "backups").mkdir()
    os.mkfifo(tmp_path / "backups/a")
    with pytest.raises(UserError, match="backups/a is no regular file"), target.reading("a"):
        pass


@pytest.mark.parametrize("kind", ["link", "directory", "socket"])
def test_what_is_no_regular_file_is_not_read(target: Directory, tmp_path: Path, kind: str) -> None:
    (tmp_path / "backups").mkdir()
    found = tmp_path / "backups/a"
    if kind == "link":
        found.symlink_to("/dev/zero")
    elif kind == "directory":
        found.mkdir()
    else:
        with closing(socket.socket(socket.AF_UNIX)) as listening, chdir(found.parent):
            listening.bind("a")
    assert not target.has("a")
    with pytest.raises(UserError, match="backups/a is no regular file"), target.reading("a"):
        pass
