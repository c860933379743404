from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest

from autarky.errors import UserError
from autarky.payload import Store
from autarky.payload import store as store_module
from autarky.payload.disk import full_disk_explained, remove_tree
from autarky.store import file_digest

CONTENT = b"a binary of some size\n" * 1000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def add(store: Store, content: bytes = CONTENT) -> str:
    with store.scratch("build") as scratch:
        (scratch / "built").write_bytes(content)
        digest, size = store.add(scratch / "built")
    assert size == len(content)
    return digest


def again(store: Store) -> Store:
    """The same store as the next process sees it."""
    return Store(store.root)


def hashed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that are hashed from now on."""
    seen: list[Path] = []

    def watched(path: Path) -> str:
        seen.append(path)
        return file_digest(path)

    monkeypatch.setattr(store_module, "file_digest", watched)
    return seen


def test_a_blob_lies_under_its_digest(store):
    assert add(store) == DIGEST
    assert store.has(DIGEST)
    assert store.blob_path(DIGEST).read_bytes() == CONTENT
    assert [path.name for path in store.blobs()] == [DIGEST]


def test_an_empty_store_has_nothing(store):
    assert not store.has(DIGEST)
    assert list(store.blobs()) == []
    assert store.records() == {}
    assert store.record("kubelet") is None


def test_adding_the_same_content_twice_keeps_the_first(store):
    add(store)
    inode = store.blob_path(DIGEST).stat().st_ino
    add(store)
    assert store.blob_path(DIGEST).stat().st_ino == inode


@pytest.mark.parametrize(
    "damage",
    [lambda content: content[:-1], lambda _: b"", lambda content: b"X" + content[1:], lambda content: content + b"\0"],
    ids=["truncated", "empty", "changed", "longer"],
)
def test_a_damaged_blob_counts_as_absent_until_it_is_made_again(store, damage):
    add(store)
    store.blob_path(DIGEST).write_bytes(damage(CONTENT))
    reader = again(store)
    assert not reader.has(DIGEST)
    assert reader.damaged == {DIGEST}
    assert store.blob_path(DIGEST).exists()  # looking changes nothing
    assert add(again(store)) == DIGEST
    assert store.blob_path(DIGEST).read_bytes() == CONTENT
    assert again(store).has(DIGEST)


def test_damage_that_keeps_size_and_time_is_found_by_reading_all_of_it(store):
    add(store)
    path = store.blob_path(DIGEST)
    before = path.stat()
    with path.open("r+b") as file:
        file.write(b"X")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not again(store).check(DIGEST)


def test_a_blob_that_vanishes_while_it_is_read_counts_as_absent(store, monkeypatch):
    add(store)

    def pruned(path: Path) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(store_module, "file_digest", pruned)
    assert not store.check(DIGEST)
    assert store.damaged == set()


def test_what_was_verified_need_not_be_remembered_on_a_full_disk(store, monkeypatch):
    add(store)
    (store.root / "verified.json").unlink()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert again(store).has(DIGEST)


def test_a_blob_is_hashed_once_and_then_known_by_its_stamp(store, monkeypatch):
    add(store)
    seen = hashed(monkeypatch)
    assert again(store).has(DIGEST)
    assert seen == []


def test_a_blob_that_was_touched_is_hashed_again(store, monkeypatch):
    add(store)
    os.utime(store.blob_path(DIGEST), ns=(1, 1))
    seen = hashed(monkeypatch)
    assert again(store).has(DIGEST)
    assert seen == [store.blob_path(DIGEST)]


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"x": [1]}', '{"x": 1}'])
def test_without_a_memory_of_what_was_verified_everything_is_hashed_again(store, text, monkeypatch):
    add(store)
    (store.root / "verified.json").write_text(text)
    seen = hashed(monkeypatch)
    assert again(store).has(DIGEST)
    assert seen == [store.blob_path(DIGEST)]


def test_a_record_is_read_back(store):
    store.write_record("kubelet-1", {"sha256": DIGEST})
    assert again(store).record("kubelet-1") == {"sha256": DIGEST}
    assert again(store).records() == {"kubelet-1": {"sha256": DIGEST}}
    store.remove_record("kubelet-1")
    store.remove_record("kubelet-1")
    assert store.record("kubelet-1") is None


def test_a_torn_record_counts_as_none(store):
    store.write_record("kubelet-1", {"sha256": DIGEST})
    path = store.root / "records" / "kubelet-1.json"
    path.write_text(path.read_text()[:-5])
    assert store.record("kubelet-1") is None
    assert store.records() == {"kubelet-1": {}}


def test_scratch_is_empty_and_gone_afterwards(store):
    with store.scratch("build") as scratch:
        assert list(scratch.iterdir()) == []
        leftover = scratch / "pkg" / "mod"
        leftover.mkdir(parents=True)
        (leftover / "file").write_text("of Go")
        leftover.chmod(0o500)  # as Go's module cache is
    assert not scratch.exists()


def test_scratch_is_not_shared_with_what_a_killed_run_left_running(store):
    theirs = store.root / "scratch" / "build-1"
    theirs.mkdir(parents=True)
    with store.scratch("build") as scratch:
        assert scratch != theirs
    store.clear_scratch()
    assert not theirs.exists()


def test_a_tree_is_removed_without_following_its_links(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "tree" / "dangling").symlink_to("nowhere")
    remove_tree(tmp_path / "tree")
    remove_tree(tmp_path / "tree")
    assert not (tmp_path / "tree").exists()
    assert (tmp_path / "kept" / "file").exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_explained(tmp_path, number):
    with (
        pytest.raises(UserError, match=r"no space left for .* MB free\)\n  fix: .*XDG_CACHE_HOME"),
        full_disk_explained(tmp_path),
    ):
        raise OSError(number, os.strerror(number))


def test_other_errors_of_the_file_system_are_not_taken_for_a_full_disk(tmp_path):
    with pytest.raises(PermissionError), full_disk_explained(tmp_path):
        raise PermissionError(errno.EACCES, "no")


def test_a_record_on_a_full_disk_is_explained_and_the_old_one_stays(store, monkeypatch):
    store.write_record("kubelet-1", {"sha256": "old"})

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(UserError, match="no space left"):
            store.write_record("kubelet-1", {"sha256": "new"})
    assert store.record("kubelet-1") == {"sha256": "old"}
    assert [path.name for path in (store.root / "records").iterdir()] == ["kubelet-1.json"]
