"""A containerd root directory with a payload's images imported and unpacked, made once, for lab hosts.

Copying this is much faster than importing 700 MB of images on every host: what containerd never
writes in place (content blobs, the files of unpacked snapshots) is hard-linked, everything else is copied.
A new directory starts as a copy of the newest one, so that one changed image costs one import.

It has no image that nobody runs (one without a base), nor that of kubelets, which few clusters run: a lab host gets
these as any other host does.

Danger: a container's lower directories are these files. overlayfs never writes to a lower directory, and
image removal only unlinks, so that hosts cannot change each other's files; nothing else may be linked.

Needs root: containerd mounts what it unpacks. It runs in a mount namespace of its own and dies with us,
so that a kill in the middle leaves no mount, no process, and a directory that the next run removes.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

from autarky import places
from autarky.errors import TimedOut
from autarky.model.components import KUBELET
from autarky.payload.artefacts import Payload
from autarky.payload.disk import full_disk_explained, remove_tree
from autarky.payload.programs import in_thread, run_tool
from autarky.ports import Progress
from autarky.store import waiting_lock

PINNED = "io.cri-containerd.pinned=pinned"
KEPT_TEMPLATES = 3
IN_USE_SECONDS = 600.0
"""How long after it was requested another process may still be copying a directory."""
_LINKED = ("io.containerd.content.v1.content/blobs", "io.containerd.snapshotter.v1.overlayfs/snapshots")
_OWN_ID = "io.containerd.grpc.v1.introspection/uuid"
"""What a containerd calls itself; each host's makes its own."""
# The shell closes a race: we may have died before the kernel was asked to kill the child with us.
_CONTAINED = ("unshare", "--mount", "setpriv", "--pdeathsig", "KILL", "--")
_UNLESS_ORPHANED = ("sh", "-c", '[ "$PPID" = "$1" ] && shift && exec "$@"', "sh")
_STATE_LINK = ".state"
_NAMESPACE = "k8s.io"
_FORMAT = 3
_START_TIMEOUT = 20.0
_STOP_TIMEOUT = 10.0
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


def _parent() -> Path:
    return places.cache_dir() / "containerd-templates"


def _locked(progress: Progress) -> AbstractAsyncContextManager[None]:
    message = "waiting for another process that imports images"
    return waiting_lock(_parent() / "lock", lambda: progress.note(message))


async def containerd_template(payload: Payload, progress: Progress) -> Path:
    """The directory, made if it is missing (seconds). Safe to be killed: it appears in one rename."""
    parent, payload = _parent(), _of_what_runs(payload)
    key = "\n".join(sorted(f"{i.reference} {i.manifest_digest}" for i in payload.images.values()))
    final = parent / hashlib.sha256(f"{key}\n{_FORMAT}".encode()).hexdigest()[:16]
    if not final.is_dir():
        async with _locked(progress):
            if not final.is_dir():
                await _make(payload, final, progress)
    os.utime(final)  # used now: the last to be removed
    return final


def _of_what_runs(payload: Payload) -> Payload:
    run = {name for name in payload.images if payload.release.image(name).base} - {KUBELET}
    return replace(payload, images={name: image for name, image in payload.images.items() if name in run})


async def remove_templates(progress: Progress) -> None:
    """Remove all of them. Hosts that were made from one keep their links."""
    if _parent().is_dir():
        async with _locked(progress):
            await in_thread(_remove, _by_age(_parent()))


async def _make(payload: Payload, final: Path, progress: Progress) -> None:
    parent = final.parent
    for leftover in parent.glob(".making-*"):
        await in_thread(remove_tree, leftover)
    newest = _by_age(parent)[:1]
    temporary = parent / f".making-{os.getpid()}"
    try:
        with full_disk_explained(parent):
            if newest:
                await copy_template(newest[0], temporary)
            else:
                temporary.mkdir()
            await _import_all(payload, temporary, progress)
            (temporary / _OWN_ID).unlink(missing_ok=True)
            temporary.rename(final)
    finally:
        await in_thread(remove_tree, temporary)
    used = time.time() - IN_USE_SECONDS
    await in_thread(_remove, [path for path in _by_age(parent)[KEPT_TEMPLATES:] if path.stat().st_mtime < used])


def _by_age(parent: Path) -> list[Path]:
    """The finished directories, the one that was used last first."""
    directories = [path for path in parent.iterdir() if not path.name.startswith(".") and path.is_dir()]
    return sorted(directories, key=lambda path: path.stat().st_mtime, reverse=True)


def _remove(directories: Sequence[Path]) -> None:
    """Each new image makes a new directory. It is renamed first: nobody finds half of one."""
    for number, directory in enumerate(directories):
        doomed = directory.rename(directory.with_name(f".making-{os.getpid()}-old-{number}"))
        remove_tree(doomed)


async def _import_all(payload: Payload, root: Path, progress: Progress) -> None:
    """Bring the directory's images to those of the payload, by the payload's own containerd."""
    wanted = {image.reference: image for image in payload.images.values()}
    async with _containerd(payload, root) as ctr:
        present = await _listed(ctr)
        stale = [r for r, digest in present.items() if r not in wanted or wanted[r].manifest_digest != digest]
        if stale:
            await run_tool([*ctr, "images", "rm", "--sync", *stale])
        missing = [image for reference, image in wanted.items() if reference in stale or reference not in present]
        for number, image in enumerate(missing):
            progress.progress("importing images", number, len(missing))
            await run_tool([*_contained(), *ctr, "images", "import", "--local", str(image.archive)])
            await run_tool([*ctr, "images", "label", image.reference, PINNED])
        progress.progress("importing images", len(missing), len(missing))


def _contained() -> list[str]:
    """In a mount namespace of its own, and dead when we are."""
    return [*_CONTAINED, *_UNLESS_ORPHANED, str(os.getpid())]


async def _listed(ctr: list[str]) -> dict[str, str]:
    """Reference → manifest digest."""
    lines: list[str] = []
    await run_tool([*ctr, "images", "ls"], on_line=lines.append)
    rows = (line.split() for line in lines)  # warnings may stand before the heading
    return {row[0]: row[2] for row in rows if len(row) > 2 and row[2].startswith("sha256:")}


@asynccontextmanager
async def _containerd(payload: Payload, root: Path) -> AsyncIterator[list[str]]:
    """containerd on that root directory, with everything else it needs in a temporary one; how to call ctr."""
    state = _temporary_state(root.parent)
    process = None
    try:
        (state / "config.toml").write_text(_CONFIG.format(root=root, state=state))
        with (state / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *_contained(),
                str(payload.binaries["containerd"].path),
                "--config",
                str(state / "config.toml"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C is ours to handle: containerd ends after its clients
            )
        ctr = [str(payload.binaries["ctr"].path), "--address", f"{state}/containerd.sock", "--namespace", _NAMESPACE]
        await _wait_until_it_answers(ctr, state)
        yield ctr
    finally:
        if process is not None:
            await _stop(process)
        shutil.rmtree(state, ignore_errors=True)
        (root.parent / _STATE_LINK).unlink(missing_ok=True)


def _temporary_state(parent: Path) -> Path:
    """An empty directory with a short path, as sockets need it. A link tells the next run what to remove."""
    link = parent / _STATE_LINK
    if link.is_symlink():
        shutil.rmtree(link.readlink(), ignore_errors=True)
        link.unlink()
    state = Path(tempfile.mkdtemp(prefix="autarky-containerd-"))
    link.symlink_to(state)
    return state


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.terminate()
    try:
        async with asyncio.timeout(_STOP_TIMEOUT):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


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
            raise TimedOut(f"waited {_START_TIMEOUT:.0f} s for containerd to answer; its log: {log}")
        await asyncio.sleep(0.1)


async def copy_template(template: Path, target: Path) -> None:
    """A copy for one host. `target` must not exist; a killed copy is incomplete: the caller renames it.

    What is linked needs both on one file system; on two, it is copied.
    """
    target.mkdir()
    how = "--link" if template.stat().st_dev == target.stat().st_dev else "--reflink=auto"
    shutil.copystat(template, target)
    for entry in sorted(template.iterdir()):
        if not any(linked.startswith(f"{entry.name}/") for linked in _LINKED):
            await run_tool(["cp", "--archive", str(entry), str(target)])
            continue
        (target / entry.name).mkdir()
        shutil.copystat(entry, target / entry.name)
        for part in sorted(entry.iterdir()):
            option = how if f"{entry.name}/{part.name}" in _LINKED else "--reflink=auto"
            await run_tool(["cp", "--archive", option, str(part), str(target / entry.name)])
