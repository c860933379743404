"""A containerd root directory with a payload's images imported and unpacked, made once, for lab hosts.

Importing 600 MB of images takes 15 s per host; copying this takes less than one: what containerd never
writes in place (content blobs, the files of unpacked snapshots) is hard-linked, the databases are copied.

Danger: a container's lower directories are these files. overlayfs never writes to a lower directory, and
image removal only unlinks, so that hosts cannot change each other's; nothing else may be linked.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from autarky import places
from autarky.errors import TimedOut
from autarky.payload.get import Payload
from autarky.payload.programs import run_tool
from autarky.payload.store import full_disk_explained, remove_tree
from autarky.ports import Progress
from autarky.store import waiting_lock

PINNED = "io.cri-containerd.pinned=pinned"
KEPT_TEMPLATES = 3
_NAMESPACE = "k8s.io"
_START_TIMEOUT = 20.0
_CONFIG = """\
version = 3
root = '{root}'
state = '{state}'
disabled_plugins = ['io.containerd.grpc.v1.cri', 'io.containerd.cri.v1.images', 'io.containerd.cri.v1.runtime',
  'io.containerd.nri.v1.nri', 'io.containerd.internal.v1.opt', 'io.containerd.snapshotter.v1.blockfile',
  'io.containerd.snapshotter.v1.devmapper', 'io.containerd.snapshotter.v1.erofs', 'io.containerd.snapshotter.v1.native',
  'io.containerd.snapshotter.v1.zfs', 'io.containerd.snapshotter.v1.btrfs']
[grpc]
address = '{state}/containerd.sock'
[ttrpc]
address = '{state}/containerd.sock.ttrpc'
"""


async def containerd_template(payload: Payload, progress: Progress) -> Path:
    """The directory, made if it is missing (seconds). Safe to be killed: it appears in one rename."""
    parent = places.cache_dir() / "containerd-templates"
    key = "\n".join(sorted(f"{i.reference} {i.manifest_digest}" for i in payload.images.values()))
    final = parent / hashlib.sha256(f"{key}\n2".encode()).hexdigest()[:16]
    if final.is_dir():
        return final
    async with waiting_lock(parent / "lock", lambda: progress.note("waiting for another process that imports images")):
        if final.is_dir():
            return final
        for leftover in parent.glob(".making-*"):
            remove_tree(leftover)
        temporary = parent / f".making-{os.getpid()}"
        temporary.mkdir()
        with full_disk_explained(parent):
            await _import_all(payload, temporary, progress)
            temporary.rename(final)
        _remove_oldest(parent)
    return final


def _remove_oldest(parent: Path) -> None:
    """Keep the newest few: each new image makes a new directory of more than a gigabyte. Hosts that were
    made from an older one keep their links."""
    directories = sorted((p for p in parent.iterdir() if p.is_dir()), key=lambda p: p.stat().st_mtime, reverse=True)
    for directory in directories[KEPT_TEMPLATES:]:
        remove_tree(directory)


async def _import_all(payload: Payload, root: Path, progress: Progress) -> None:
    """Run the payload's own containerd on the directory and let it import the archives."""
    state = Path(tempfile.mkdtemp(prefix="autarky-containerd-"))
    process = None
    try:
        config = state / "config.toml"
        config.write_text(_CONFIG.format(root=root, state=state))
        log = (state / "log").open("wb")
        with log:
            process = await asyncio.create_subprocess_exec(
                str(payload.binaries["containerd"].path),
                "--config",
                str(config),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        ctr = [str(payload.binaries["ctr"].path), "--address", f"{state}/containerd.sock", "--namespace", _NAMESPACE]
        await _wait_until_it_answers(ctr, state)
        for number, image in enumerate(payload.images.values()):
            progress.progress("importing images", number, len(payload.images))
            await run_tool([*ctr, "images", "import", "--local", str(image.archive)])
            await run_tool([*ctr, "images", "label", image.reference, PINNED])
    finally:
        if process is not None and process.returncode is None:
            process.terminate()
            await process.wait()
        shutil.rmtree(state, ignore_errors=True)


async def _wait_until_it_answers(ctr: list[str], state: Path) -> None:
    deadline = asyncio.get_running_loop().time() + _START_TIMEOUT
    while True:
        probe = await asyncio.create_subprocess_exec(
            *ctr, "version", stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        if await probe.wait() == 0:
            return
        if asyncio.get_running_loop().time() > deadline:
            log = (state / "log").read_text(errors="replace")[-1500:]
            raise TimedOut(f"waited {_START_TIMEOUT:.0f} s until containerd answers; its log: {log}")
        await asyncio.sleep(0.1)


async def copy_template(template: Path, target: Path) -> None:
    """A copy for one host: blobs and snapshots linked, everything else copied. `target` must not exist."""
    await run_tool(["cp", "--archive", "--link", str(template), str(target)])
    for path in target.rglob("*"):
        if path.suffix == ".db" and path.is_file():
            copy = path.with_suffix(".copy")
            shutil.copy2(path, copy)
            copy.rename(path)
