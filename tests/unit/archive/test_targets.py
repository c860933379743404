"""Where archives are kept: under their names they are complete, or not there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from autarky.archive import Directory
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
    assert target.names() == []
    with target.writing("a") as writer:
        writer.write(b"1")
        assert target.names() == []
    assert target.names() == ["a"]
    assert (tmp_path / "backups/a").stat().st_mode & 0o777 == 0o600
    with target.reading("a") as reader:
        assert reader.read() == b"1"


def test_what_fails_in_the_middle_leaves_nothing(target: Directory, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="full"):
        _written(target, "a", _full)
    assert listed(tmp_path) == []


def test_what_a_kill_has_left_is_replaced(target: Directory, tmp_path: Path) -> None:
    (tmp_path / "backups").mkdir()
    (tmp_path / "backups/.a.part").write_bytes(b"half of something that was longer")
    with target.writing("a") as writer:
        writer.write(b"1")
    assert (tmp_path / "backups/a").read_bytes() == b"1"
    assert listed(tmp_path) == ["a"]


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
    assert target.names() == []
    with pytest.raises(UserError, match="there is no file"), target.reading("a"):
        pass
