"""What was staged and nothing needs any more is removed; nothing else ever is."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from autarky.control.kubelet.manifests import files
from autarky.control.kubelet.node.staging import Wanted
from unit.control.kubelet.staging_scene import (
    IMAGES,
    NEW,
    OF_UP,
    OLD,
    SETTINGS,
    a_staging,
    as_up_has_left_it,
    generations,
    in_store,
    is_complete_for_the_script,
    put_by_up,
    stored,
    switch,
    wanted,
)

OLD_KUBELET = stored("kubelet", IMAGES[OLD]["/kubelet"])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return as_up_has_left_it(tmp_path / "root")


async def test_the_current_the_previous_and_what_is_asked_for_stay(root: Path) -> None:
    staging = a_staging(root)
    names = []
    for number in range(4):
        changed = Wanted("v1.37.1", wanted().programs, {}, {**SETTINGS, files.ARGUMENTS: f"--v={number}\n".encode()})
        names.append(await staging.stage(changed))
    switch(root, names[0])
    switch(root, names[1])
    assert await staging.prune([names[2]]) == [names[3]]
    assert await staging.prune([names[2]]) == []
    assert generations(root) == set(names[:3])
    assert in_store(root) == OF_UP | NEW


async def test_programs_go_with_the_last_generation_that_has_them(root: Path) -> None:
    staging = a_staging(root)
    old, new = await staging.stage(wanted(OLD)), await staging.stage(wanted())
    switch(root, old)
    switch(root, new)
    assert await staging.prune([]) == []
    (root / "kubelet" / "previous").unlink()
    assert await staging.prune([]) == [old, OLD_KUBELET]
    assert in_store(root) == OF_UP | NEW
    assert is_complete_for_the_script(root, new)
    assert is_complete_for_the_script(root, await staging.stage(wanted(OLD)))


async def test_what_is_not_in_the_ledger_is_never_removed(root: Path) -> None:
    """`up` has pushed a program, and does not link it yet; somebody has made a generation by hand."""
    staging = a_staging(root)
    switch(root, await staging.stage(wanted()))
    link = (root / "bin" / "kubelet").readlink()
    put_by_up(root, "kubelet", b"pushed")
    (root / "bin" / "kubelet").unlink()
    (root / "bin" / "kubelet").symlink_to(link)
    (root / "kubelet" / "by-hand").mkdir()
    assert await staging.prune([]) == []
    assert stored("kubelet", b"pushed") in in_store(root)


@pytest.mark.parametrize("where", ["bin/kubelet", "state/deep/link", "bin/other"])
async def test_any_link_below_the_root_holds_a_program(root: Path, where: str) -> None:
    staging = a_staging(root)
    switch(root, await staging.stage(wanted()))
    shutil.rmtree(root / "kubelet" / await staging.stage(wanted(OLD)))
    link = root / where
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(root / "store" / OLD_KUBELET)
    await staging.prune([])
    assert OLD_KUBELET in in_store(root)
    link.unlink()
    await staging.prune([])
    assert OLD_KUBELET not in in_store(root)


async def test_while_nobody_knows_what_runs_no_generation_is_removed(root: Path) -> None:
    staging = a_staging(root)
    name = await staging.stage(wanted())
    assert await staging.prune([]) == []
    (root / "kubelet" / "current").mkdir()
    with pytest.raises(OSError, match="Invalid argument"):
        await staging.prune([])
    assert is_complete_for_the_script(root, name)


async def test_what_cannot_be_read_holds_every_program(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    staging = a_staging(root)
    switch(root, await staging.stage(wanted()))
    shutil.rmtree(root / "kubelet" / await staging.stage(wanted(OLD)))
    scan = os.scandir

    def unreadable(path: str) -> object:
        if str(path).endswith("bin"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", unreadable)
    with pytest.raises(PermissionError):
        await staging.prune([])
    assert OLD_KUBELET in in_store(root)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"programs": 1, "generations": [], "origins": {}}',
        b'{"programs": ["../bin/kubelet", "../../etc/passwd"], "generations": ["..", "current", "/"], "origins": {}}',
        b'{"programs": [1], "generations": [null], "origins": []}',
    ],
)
async def test_a_ledger_that_is_none_removes_nothing(root: Path, content: bytes) -> None:
    staging = a_staging(root)
    switch(root, await staging.stage(wanted()))
    await staging.stage(wanted(OLD))
    (root / "state" / "kubelet-staged.json").write_bytes(content)
    before = sorted(root.rglob("*"))
    assert await staging.prune([]) == []
    assert sorted(root.rglob("*")) == before
    assert is_complete_for_the_script(root, await staging.stage(wanted()))
