"""Another kubelet on the node's disk: what is written, what is refused, and what a program must say of itself."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import time
from pathlib import Path

import pytest

from autarky.control.kubelet.decide.own import SPARE
from autarky.control.kubelet.manifests import files
from autarky.control.kubelet.node import staged, staging
from autarky.control.kubelet.node.staging import NoRoom, Wanted, version_of
from autarky.errors import Unreachable, UserError
from fakes.image_files import FakeImageFiles
from unit.control.kubelet.staging_scene import (
    IMAGES,
    KUBELET,
    NEW,
    OF_UP,
    OLD,
    RUNTIME_PROGRAMS,
    SETTINGS,
    a_staging,
    as_up_has_left_it,
    every_program_is_intact,
    generations,
    in_store,
    is_complete_for_the_script,
    leftovers,
    put_by_up,
    stored,
    switch,
    wanted,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return as_up_has_left_it(tmp_path / "root")


# --- what is written -------------------------------------------------------------------------------------------


async def test_a_generation_has_its_programs_and_settings(root: Path) -> None:
    name = await a_staging(root).stage(wanted())
    directory = root / "kubelet" / name
    assert is_complete_for_the_script(root, name)
    assert (directory / files.VERSION).read_text() == "v1.37.1\n"
    assert str((directory / "kubelet").readlink()) == f"../../store/{stored('kubelet', IMAGES[KUBELET]['/kubelet'])}"
    assert in_store(root) == OF_UP | NEW
    assert every_program_is_intact(root)
    assert not leftovers(root)


async def test_a_runtime_that_stays_is_what_the_node_uses_now(root: Path) -> None:
    staging = a_staging(root)
    kept = staging.in_use(files.RUNTIME)
    assert set(kept.values()) == OF_UP - {stored("kubelet", b"kubelet of up")}
    first = await staging.stage(wanted(OLD, runtime=False, kept=kept))
    assert is_complete_for_the_script(root, first)
    switch(root, first)
    assert staging.in_use(files.RUNTIME) == kept
    second = await staging.stage(wanted(runtime=False, kept=kept))
    assert (root / "kubelet" / second / "runc").resolve() == root / "store" / kept["runc"]


async def test_a_generation_is_named_by_all_that_is_in_it(root: Path) -> None:
    staging, one = a_staging(root), wanted()
    changed = {**SETTINGS, files.CONFIG: b'{"maxPods": 50}\n'}
    names = {
        await staging.stage(one),
        await staging.stage(Wanted(one.version, one.programs, {}, changed)),
        await staging.stage(wanted(runtime=False, kept=staging.in_use(files.RUNTIME))),
        await staging.stage(wanted(OLD)),
    }
    assert len(names) == 4


async def test_a_second_time_nothing_is_read_or_written(root: Path) -> None:
    images = FakeImageFiles(IMAGES)
    name = await a_staging(root, images).stage(wanted())
    before = {path: path.lstat().st_mtime_ns for path in root.rglob("*")}
    images.asked.clear()
    assert await a_staging(root, images, free=0).stage(wanted()) == name
    assert {path: path.lstat().st_mtime_ns for path in root.rglob("*")} == before
    assert not images.asked


async def test_what_up_has_brought_is_used_and_stays_its_own(root: Path) -> None:
    content = IMAGES[KUBELET]["/kubelet"]
    put_by_up(root, "kubelet", content)
    staging = a_staging(root)
    switch(root, await staging.stage(wanted(OLD)))
    shutil.rmtree(root / "kubelet" / await staging.stage(wanted()))
    await staging.prune([])
    assert stored("kubelet", content) in in_store(root)


async def test_a_program_that_was_removed_or_damaged_is_brought_again(root: Path) -> None:
    staging = a_staging(root)
    name = await staging.stage(wanted())
    (root / "kubelet" / name / "kubelet").resolve().unlink()
    (root / "kubelet" / name / "runc").resolve().write_bytes(b"")
    (root / "kubelet" / name / "ctr").resolve().chmod(0o644)
    assert await staging.stage(wanted()) == name
    assert every_program_is_intact(root)


async def test_a_generation_that_was_damaged_is_written_again_and_never_in_parts(root: Path) -> None:
    staging = a_staging(root)
    name = await staging.stage(wanted())
    switch(root, name)
    (root / "kubelet" / name / files.CONFIG).write_bytes(b"")
    (root / "kubelet" / name / "runc").unlink()
    assert await staging.stage(wanted()) == name
    assert is_complete_for_the_script(root, name)


async def test_the_disk_gets_a_large_program_in_parts(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged, "SYNCED_AT_ONCE", 1500)
    synced, sync = [], os.fdatasync

    def seen(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_size)
        sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", seen)
    await a_staging(root).stage(wanted(runtime=False, kept=a_staging(root).in_use(files.RUNTIME)))
    assert synced == [2000, 3000]


# --- what is refused ---------------------------------------------------------------------------------------------


async def test_a_full_disk_is_refused_before_anything_is_written(root: Path) -> None:
    size = sum(map(len, RUNTIME_PROGRAMS.values())) + len(IMAGES[KUBELET]["/kubelet"])
    before = sorted(root.rglob("*"))
    with pytest.raises(NoRoom, match=r"no room for another kubelet: 256 MiB are needed, .*\n  fix: free some"):
        await a_staging(root, free=size + SPARE - 1).stage(wanted())
    assert sorted(root.rglob("*")) == before
    assert await a_staging(root, free=size + SPARE).stage(wanted())


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
async def test_so_is_one_that_fills_up_meanwhile(root: Path, number: int) -> None:
    with pytest.raises(NoRoom, match=r"is full\n  fix: free some"):
        await a_staging(root, FakeImageFiles(IMAGES, breaks_off=OSError(number, "full"))).stage(wanted())
    assert in_store(root) == OF_UP


async def test_only_what_is_missing_needs_room(root: Path) -> None:
    await a_staging(root).stage(wanted(OLD))
    size = len(IMAGES[KUBELET]["/kubelet"])
    with pytest.raises(UserError, match="no room"):
        await a_staging(root, free=size + SPARE - 1).stage(wanted())
    assert await a_staging(root, free=size + SPARE).stage(wanted())


async def test_a_kubelet_of_another_version_is_refused_and_does_not_stay(root: Path) -> None:
    staging = a_staging(root)
    with pytest.raises(UserError, match=rf"of the image {KUBELET} is v1\.37\.1, not v1\.37\.2\n  fix: use an image"):
        await staging.stage(wanted(version="v1.37.2"))
    assert in_store(root) == OF_UP
    assert not generations(root)
    assert is_complete_for_the_script(root, await staging.stage(wanted()))


async def test_a_program_of_the_node_that_is_lost_is_refused(root: Path) -> None:
    staging = a_staging(root)
    kept = staging.in_use(files.RUNTIME)
    (root / "store" / kept["runc"]).unlink()
    with pytest.raises(UserError, match=r"the runc that this node uses, runc-\w+, is not in its store\n  fix: run"):
        await staging.stage(wanted(runtime=False, kept=kept))
    assert not generations(root)


async def test_an_empty_program_is_refused(root: Path) -> None:
    images = FakeImageFiles({**IMAGES, KUBELET: {"/kubelet": b""}})
    with pytest.raises(UserError, match=r"kubelet in the image .* is empty"):
        await a_staging(root, images).stage(wanted())
    assert in_store(root) == OF_UP


@pytest.mark.parametrize("error", [UserError("the layer breaks off"), Unreachable("containerd is away")])
async def test_what_was_read_and_then_not_verified_is_dropped(root: Path, error: Exception) -> None:
    images = FakeImageFiles(IMAGES, breaks_off=error)
    with pytest.raises(type(error)):
        await a_staging(root, images).stage(wanted())
    assert in_store(root) == OF_UP
    assert not generations(root)


async def test_what_is_no_error_of_a_full_disk_passes(root: Path) -> None:
    with pytest.raises(OSError, match="Input/output"):
        await a_staging(root, FakeImageFiles(IMAGES, breaks_off=OSError(5, "Input/output error"))).stage(wanted())


async def test_cancelled_while_it_writes_it_ends_before_another_begins(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one uses the same names: a first one that went on would give them half a file."""
    begun, sync = asyncio.Event(), os.fsync
    loop = asyncio.get_running_loop()
    slow = [0.2]

    def slowly(descriptor: int) -> None:
        if slow:
            loop.call_soon_threadsafe(begun.set)
            time.sleep(slow.pop())
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", slowly)
    staging = a_staging(root)
    first = asyncio.create_task(staging.stage(wanted()))
    await begun.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert not leftovers(root)
    assert is_complete_for_the_script(root, await staging.stage(wanted()))
    assert every_program_is_intact(root)


# --- the version that a program says -------------------------------------------------------------------------------


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


async def test_a_kubelet_is_asked_for_its_version(tmp_path: Path) -> None:
    text = '#!/bin/sh\n[ "$*" = --version ] && echo Kubernetes v1.37.1\n'
    assert await version_of(program(tmp_path / "kubelet", text)) == "v1.37.1"


@pytest.mark.parametrize(
    "text",
    [
        "#!/bin/sh\necho Kubernetes v1.37.1; exit 1\n",
        "#!/bin/sh\nexit 0\n",
        "#!/bin/sh\necho v1.37.1\n",
        "#!/bin/sh\necho Kubernetes v1.37\n",
        "#!/bin/sh\nprintf '\\377\\376\\n'\n",
        "#!/bin/sh\nhead -c 100000 /dev/zero\n",
        "no program",
        "#!/nowhere\n",
    ],
)
async def test_what_does_not_say_a_version_is_no_kubelet(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match=r"the kubelet of the image, kubelet-0, .*\n  fix: use an image"):
        await version_of(program(tmp_path / "kubelet-0", text))


async def test_one_that_hangs_is_killed_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "VERSION_SECONDS", 0.2)
    text = f"#!/bin/sh\necho $$ >{tmp_path}/pid\nsleep 600 & echo $! >>{tmp_path}/pid\nwait\n"
    with pytest.raises(UserError, match="does not say its version within"):
        await version_of(program(tmp_path / "kubelet", text))
    for pid in (tmp_path / "pid").read_text().split():
        async with asyncio.timeout(5):
            while Path(f"/proc/{pid}/exe").exists():  # noqa: ASYNC110 # the kernel tells nobody
                await asyncio.sleep(0.01)


async def test_a_program_that_a_child_still_has_open_for_writing_is_tried_again(tmp_path: Path) -> None:
    path = program(tmp_path / "kubelet", "#!/bin/sh\necho Kubernetes v1.37.1\n")
    writing = path.open("ab")
    asyncio.get_running_loop().call_later(0.2, writing.close)
    assert await version_of(path) == "v1.37.1"
