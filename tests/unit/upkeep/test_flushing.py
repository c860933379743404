"""What others write is flushed as it comes."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from autarky.archive import targets
from autarky.upkeep.flushing import flushed


class Disk:
    """Which files were flushed, by their content then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.flushed: list[bytes] = []
        self._came = threading.Event()
        monkeypatch.setattr(os, "fdatasync", self._flush)

    def _flush(self, descriptor: int) -> None:
        self.flushed.append(Path(f"/proc/self/fd/{descriptor}").read_bytes())
        self._came.set()

    def wait(self) -> None:
        assert self._came.wait(30)
        self._came.clear()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_a_file_that_comes_or_grows_is_flushed_and_one_that_stays_as_it_was_is_not(disk: Disk, tmp_path: Path) -> None:
    (tmp_path / "before").write_bytes(b"as it was")
    with flushed(tmp_path):
        (tmp_path / "deep").mkdir()
        (tmp_path / "deep" / "snapshot.db.part").write_bytes(b"half")
        disk.wait()
        with (tmp_path / "deep" / "snapshot.db.part").open("ab") as file:
            file.write(b" and more")
        disk.wait()
    assert disk.flushed[-1] == b"half and more"
    assert b"as it was" not in disk.flushed


def test_a_directory_that_is_not_there_yet_and_what_is_no_file_are_passed_over(disk: Disk, tmp_path: Path) -> None:
    with flushed(tmp_path / "later"):
        (tmp_path / "later").mkdir()
        (tmp_path / "later" / "link").symlink_to("/etc/hostname")
        (tmp_path / "later" / "file").write_bytes(b"x")
        disk.wait()
    assert set(disk.flushed) <= {b"", b"x"}


def test_an_archive_is_flushed_piece_by_piece(disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "_UNFLUSHED", 10)
    with targets.Directory(tmp_path).writing("archive") as writer:
        for _ in range(5):
            writer.write(b"123456")
    assert disk.flushed == [b"123456" * 2, b"123456" * 4]
    assert (tmp_path / "archive").read_bytes() == b"123456" * 5
