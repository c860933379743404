"""The agent is killed, or the disk is full, right before any of its writes: what has a name on the disk is always
complete, the next agent ends with what is wanted, and nothing is left that nobody would remove.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from autarky.errors import UserError
from fakes.dying import KILLED, At, Writes, ends_at, full_at, in_a_child
from fakes.image_files import FakeImageFiles
from unit.control.kubelet.staging_scene import (
    IMAGES,
    NEW,
    OF_UP,
    OLD,
    a_staging,
    as_up_has_left_it,
    every_program_is_intact,
    generations,
    in_store,
    is_complete_for_the_script,
    leftovers,
    stored,
    switch,
    wanted,
)

REFUSED = 5
Work = Callable[[Writes], object]
OLD_KUBELET = stored("kubelet", IMAGES[OLD]["/kubelet"])


class WatchedImageFiles(FakeImageFiles):
    """Each piece that it gives is a write."""

    def __init__(self, writes: Writes) -> None:
        super().__init__(IMAGES)
        self.writes = writes

    def _give(self, files: Mapping[str, bytes], into: Mapping[str, Callable[[bytes], object]]) -> None:
        for path, take in into.items():
            for begin in range(0, len(files[path]), 1500):
                self.writes.note("write")
                take(files[path][begin : begin + 1500])


@pytest.fixture(autouse=True)
def _nothing_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process loses nothing that it has written."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(os, "fdatasync", lambda _: None)


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """It runs a generation of the former version."""
    root = as_up_has_left_it(tmp_path / "node")
    switch(root, asyncio.run(a_staging(root).stage(wanted(OLD))))
    return root


def stage(root: Path) -> Work:
    return lambda writes: asyncio.run(a_staging(root, WatchedImageFiles(writes)).stage(wanted()))


def each_write(node: Path, at: Callable[[int], At], work: Callable[[Path], Work]) -> Iterator[tuple[Path, int]]:
    """What `work` has left of the node when it met `at` at its first write, its second, …; and when it met none."""
    for number in itertools.count(1):
        root = node.with_name(f"at-{number}")
        shutil.copytree(node, root, symlinks=True)
        status = in_a_child(root, at(number), work(root))
        yield root, status
        if status == 0:
            assert number > 20, "it has hardly written anything"
            return
        shutil.rmtree(root)


def former_of(root: Path) -> str:
    return (root / "kubelet" / "current").readlink().name


def nothing_in_parts(root: Path) -> None:
    """What runs is untouched, and what has a name is complete."""
    assert every_program_is_intact(root)
    assert in_store(root) >= OF_UP | {OLD_KUBELET}
    assert is_complete_for_the_script(root, former_of(root))
    for name in generations(root):
        is_complete_for_the_script(root, name)  # or it has not the mark


def test_killed_at_any_write_the_next_agent_ends_with_what_is_wanted_or_removes_all_of_it(node: Path) -> None:
    before = in_store(node)
    for root, status in each_write(node, ends_at, stage):
        assert status in (KILLED, 0)
        nothing_in_parts(root)
        other = root.with_name("other")
        shutil.copytree(root, other, symlinks=True)
        asyncio.run(_is_taken_back(other))
        assert in_store(other) == before
        assert generations(other) == {former_of(other)}
        shutil.rmtree(other)

        name = asyncio.run(a_staging(root).stage(wanted()))
        assert is_complete_for_the_script(root, name)
        nothing_in_parts(root)
        assert in_store(root) == before | NEW
        assert generations(root) == {former_of(root), name}
        assert not [path for path in leftovers(root) if path.parent.name != "state"]


async def _is_taken_back(root: Path) -> None:
    """Nobody stages the same again."""
    staging = a_staging(root)
    assert await staging.stage(wanted(OLD)) == former_of(root)
    await staging.prune([])


def test_where_the_disk_is_full_at_any_write_it_is_refused_and_nothing_is_left(node: Path) -> None:
    def refused(root: Path) -> Work:
        def work(writes: Writes) -> None:
            try:
                stage(root)(writes)
            except UserError as error:
                said = str(error)
            else:
                return
            assert "is full\n  fix: free some" in said
            os._exit(REFUSED)

        return work

    for root, status in each_write(node, full_at, refused):
        assert status in (REFUSED, 0)
        nothing_in_parts(root)
        assert not [path for path in leftovers(root) if path.name.endswith(".part")]
        assert is_complete_for_the_script(root, asyncio.run(a_staging(root).stage(wanted())))


def test_killed_at_any_write_while_it_removes_the_next_one_removes_the_rest(node: Path) -> None:
    def prune(root: Path) -> Work:
        return lambda _: asyncio.run(a_staging(root).prune([]))

    before = in_store(node)
    new = asyncio.run(a_staging(node).stage(wanted()))
    for root, _ in each_write(node, ends_at, prune):
        nothing_in_parts(root)
        asyncio.run(a_staging(root).prune([]))
        assert generations(root) == {former_of(root)}
        assert in_store(root) == before
        nothing_in_parts(root)
        assert asyncio.run(a_staging(root).stage(wanted())) == new


def test_everything_is_on_the_disk_before_it_has_its_name(node: Path) -> None:
    """A power cut loses what was not synced: of files their content, of directories what was changed in them."""
    synced: set[str] = set()
    changed: set[str] = set()
    wrong: list[str] = []

    def at(_: int, what: str) -> None:
        event, path, source = [*what.split(), "", ""][:3]
        if event == "fsync":
            synced.add(path)
            changed.discard(path)
        elif event == "open" and Path(path).name.startswith(".complete."):
            wrong.extend(f"{one} was not synced before {path}" for one in changed if not one.endswith("/state"))
        elif event == "os.rename" and not Path(source).is_symlink() and source not in synced:
            wrong.append(f"{source} was not synced before it became {path}")
        if event in ("open", "os.rename", "os.symlink", "os.mkdir"):
            changed.add(str(Path(path).parent))

    def work(writes: Writes) -> None:
        stage(node)(writes)
        assert len(synced) > 10
        assert not changed, f"not synced at the end: {changed}"
        assert not wrong, wrong

    assert in_a_child(node, at, work) == 0
