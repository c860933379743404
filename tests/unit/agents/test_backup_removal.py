"""An archive is removed, unless the directory is not what it was: its disk may not be mounted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autarky.agents.backup import wiring

FILE, OTHER = "demo-a-1.tar.gz.age", "demo-b-2.tar.gz.age"


def removed(tmp_path: Path, *there: str, beside: tuple[str, ...] = (OTHER,)) -> dict[str, str]:
    """What the pod says; there: files in the directory, beside: what the operator says that there is."""
    directory = tmp_path / "backups"
    directory.mkdir()
    for name in there:
        (directory / name).touch()
    target = {"directory": str(directory)}
    request = {"verb": "remove", "backup": "a", "target": target, "file": FILE, "beside": beside}
    wiring.run(json.dumps(request), tmp_path / "said")
    found: dict[str, str] = json.loads((tmp_path / "said").read_text())
    return found


def left(tmp_path: Path) -> list[str]:
    return sorted(one.name for one in (tmp_path / "backups").iterdir())


def test_it_goes_with_the_file_beside_it(tmp_path: Path) -> None:
    assert removed(tmp_path, FILE, "demo-a-1.json", OTHER) == {}
    assert left(tmp_path) == [OTHER]


def test_where_none_of_the_archives_is_there_that_should_be_nothing_counts_as_removed(tmp_path: Path) -> None:
    """The Backup was deleted, and the archive stayed on the disk that was not mounted."""
    said = removed(tmp_path, "something-else")["error"]
    assert said.startswith(f"{tmp_path / 'backups'} has neither {FILE} nor any of 1 other archives")
    assert "mount" in said


@pytest.mark.parametrize(("there", "beside"), [((OTHER,), (OTHER, "demo-c-3.tar.gz.age")), ((), ())])
def test_one_that_is_gone_already_is_removed(tmp_path: Path, there: tuple[str, ...], beside: tuple[str, ...]) -> None:
    """An attempt before was killed when it had removed it."""
    assert removed(tmp_path, *there, beside=beside) == {}


def test_one_that_is_there_is_removed_whatever_else_is_missing(tmp_path: Path) -> None:
    assert removed(tmp_path, FILE) == {}
    assert left(tmp_path) == []
