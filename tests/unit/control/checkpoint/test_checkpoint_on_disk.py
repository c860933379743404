"""The effects of a checkpoint on the node's disk."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from autarky import places
from autarky.control.checkpoint.node.checkpointer import delete_revision, disk_of, write_revision
from autarky.control.slots.manifests import Revision
from autarky.control.slots.node import on_disk as slots_on_disk
from autarky.model.components import WITH_STANDBY
from autarky.model.files import File

COMPONENT = "kube-scheduler"
POD = b'{\n  "kind": "Pod",\n  "metadata": {"annotations": {"autarky.dev/revision": "one"}}\n}\n'


@pytest.fixture(autouse=True)
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(places, "STANDBY", str(tmp_path / "standby"))
    monkeypatch.setattr(places, "MANIFESTS", str(tmp_path / "manifests"))
    (tmp_path / "standby" / COMPONENT).mkdir(parents=True)
    (tmp_path / "manifests").mkdir()
    return tmp_path


def revision(name: str = "checkpoint-1") -> Revision:
    directory = f"{places.STANDBY}/{COMPONENT}/{name}"
    files = (File(f"{directory}/files/secrets/key", b"secret", 0o444), File(f"{directory}/pod.json", POD, 0o600))
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
    complete = revision()
    write_revision(Revision(COMPONENT, complete.name, complete.files[:1]))
    disk = disk_of(COMPONENT)
    assert disk is not None
    assert (disk.complete, disk.incomplete) == (frozenset(), frozenset({"checkpoint-1"}))
    write_revision(complete)
    assert disk_of(COMPONENT) is not None
    assert disk_of(COMPONENT).complete == {"checkpoint-1"}


def test_a_deleted_revision_is_gone(node: Path) -> None:
    write_revision(revision())
    delete_revision(COMPONENT, "checkpoint-1")
    assert list((node / "standby" / COMPONENT).iterdir()) == []


def test_links_and_active_manifests_are_seen(node: Path) -> None:
    for name in ("one", "two"):
        write_revision(revision(name))
    (node / "standby" / COMPONENT / "current").symlink_to("two")
    (node / "standby" / COMPONENT / "previous").symlink_to("one")
    (node / "manifests" / f"standby-{COMPONENT}-0123abcd.json").write_bytes(POD)
    disk = disk_of(COMPONENT)
    assert disk is not None
    assert (disk.current, disk.previous, disk.in_use) == ("two", "one", frozenset({"one"}))


def test_a_disk_that_cannot_be_read_is_unknown(node: Path) -> None:
    """Rule 2: no directory is not "nothing there"."""
    assert disk_of("kube-apiserver") is None
    (node / "manifests").rmdir()
    assert disk_of(COMPONENT) is None


@pytest.mark.parametrize("torn", [b"", POD[:-3], b"\0" * len(POD)])
def test_while_a_manifest_is_torn_every_revision_counts_as_in_use_and_no_standby_as_active(
    node: Path, torn: bytes
) -> None:
    """Its pod may run on for a while, from whichever revision; but it ends when the kubelet looks again."""
    for name in ("one", "two"):
        write_revision(revision(name))
    (node / "manifests" / f"standby-{COMPONENT}-0123abcd.json").write_bytes(torn)
    disk = disk_of(COMPONENT)
    assert disk is not None
    assert disk.in_use == {"one", "two"}
    assert slots_on_disk.active_standbys() == dict.fromkeys(WITH_STANDBY, False)


@pytest.mark.parametrize("torn", [b"", POD[:-3], b"\0" * len(POD)])
def test_a_revision_whose_pod_is_torn_is_incomplete_and_will_be_written_again(node: Path, torn: bytes) -> None:
    write_revision(revision("one"))
    (node / "standby" / COMPONENT / "one" / "pod.json").write_bytes(torn)
    disk = disk_of(COMPONENT)
    assert disk is not None
    assert (disk.complete, disk.incomplete) == (frozenset(), frozenset({"one"}))


def test_an_active_standby_is_seen_by_its_complete_manifest(node: Path) -> None:
    (node / "manifests" / f"standby-{COMPONENT}-0123abcd.json").write_bytes(POD)
    (node / "manifests" / "standby-kube-apiserver-garbage").write_bytes(POD)
    assert slots_on_disk.active_standbys() == {**dict.fromkeys(WITH_STANDBY, False), COMPONENT: True}
