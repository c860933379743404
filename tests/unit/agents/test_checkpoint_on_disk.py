"""The effects of a checkpoint on the node's disk."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from autarky import places
from autarky.agents.node.checkpointer import delete_revision, disk_of, write_revision
from autarky.model.files import File
from autarky.render.standby import Revision

COMPONENT = "kube-scheduler"


@pytest.fixture(autouse=True)
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(places, "STANDBY", str(tmp_path / "standby"))
    monkeypatch.setattr(places, "MANIFESTS", str(tmp_path / "manifests"))
    (tmp_path / "standby" / COMPONENT).mkdir(parents=True)
    (tmp_path / "manifests").mkdir()
    return tmp_path


def revision(name: str = "checkpoint-1") -> Revision:
    directory = f"{places.STANDBY}/{COMPONENT}/{name}"
    files = (File(f"{directory}/files/secrets/key", b"secret", 0o444), File(f"{directory}/pod.json", b"{}", 0o600))
    return Revision(COMPONENT, name, files)


def test_a_written_revision_is_complete_and_closed_to_others(node: Path) -> None:
    write_revision(revision())
    disk = disk_of(COMPONENT)
    assert disk is not None
    assert disk.complete == {"checkpoint-1"}
    directory = node / "standby" / COMPONENT / "checkpoint-1"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / "files/secrets/key").stat().st_mode) == 0o444


def test_what_was_cut_while_it_was_written_is_incomplete_and_can_be_written_again() -> None:
    whole = revision()
    write_revision(Revision(COMPONENT, whole.name, whole.files[:1]))
    disk = disk_of(COMPONENT)
    assert disk is not None
    assert (disk.complete, disk.incomplete) == (frozenset(), {"checkpoint-1"})
    write_revision(whole)
    assert disk_of(COMPONENT) is not None
    assert disk_of(COMPONENT).complete == {"checkpoint-1"}  # type: ignore[union-attr]


def test_a_deleted_revision_is_gone(node: Path) -> None:
    write_revision(revision())
    delete_revision(COMPONENT, "checkpoint-1")
    assert list((node / "standby" / COMPONENT).iterdir()) == []


def test_links_and_active_manifests_are_seen(node: Path) -> None:
    for name in ("one", "two"):
        write_revision(revision(name))
    (node / "standby" / COMPONENT / "current").symlink_to("two")
    (node / "standby" / COMPONENT / "previous").symlink_to("one")
    active = '{"metadata": {"annotations": {"autarky.dev/revision": "one"}}}'
    (node / "manifests" / f"standby-{COMPONENT}-abc.json").write_text(active)
    disk = disk_of(COMPONENT)
    assert disk is not None
    assert (disk.current, disk.previous, disk.in_use) == ("two", "one", {"one"})


def test_a_disk_that_cannot_be_read_is_unknown(node: Path) -> None:
    """Rule 2: half a manifest, or no directory, is not "nothing there"."""
    (node / "manifests" / f"standby-{COMPONENT}-abc.json").write_text("{")
    assert disk_of(COMPONENT) is None
    assert disk_of("kube-apiserver") is None
