"""Brings another kubelet onto the node's disk, as a generation: its programs out of images that containerd has, and its
settings.

Contract: what runs is not touched, since only the script on the host switches to another generation. It may be killed
at any write, and called again (`staged`): what is on the disk already is not read again, and where all of it is,
nothing is written. UserError, which names the fix, is for what another attempt would not change: an image that cannot
give the programs, a kubelet of another version; NoRoom, which is one, for a disk without room (seen before the first
write, or while it is written), which may have some a moment later. Unreachable, ApiError and OSError pass.

Danger: between the push of a program and its link, `up` relies on a file that no link reaches. Do not prune while a
change by `up` is under way on this node.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shutil
import signal
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from autarky import places
from autarky.control.kubelet.decide.own import SPARE
from autarky.control.kubelet.manifests.files import VERSION
from autarky.control.kubelet.manifests.generation import Generation, in_store
from autarky.control.kubelet.node.staged import Part, Staged
from autarky.errors import UserError
from autarky.ports import FoundImage, ImageFiles
from autarky.threads import to_the_end

KUBELET: Final = "kubelet"
VERSION_SECONDS: Final = 60.0
"""For `kubelet --version`, which takes 0.2 s."""
_SAID = re.compile(rb"Kubernetes (v\d+\.\d+\.\d+\S{0,64})\n")
_NO_PROGRAM = (errno.ENOEXEC, errno.EACCES, errno.ENOENT)
_FREE_SOME = f"free some space below {places.HOST_ROOT} on this node"


class NoRoom(UserError):
    """On the disk, now."""


@dataclass(frozen=True, slots=True)
class Source:
    """A program in an image: a regular file."""

    image: str
    path: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """version: that the kubelet must have. programs: those that come out of images. kept: the others, as files of the
    store (`Staging.in_use`). files: the rest of the generation, except `version` and `complete`."""

    version: str
    programs: Mapping[str, Source]
    kept: Mapping[str, str]
    files: Mapping[str, bytes]


def free_bytes(directory: Path) -> int:
    return shutil.disk_usage(directory).free


async def version_of(program: Path) -> str:
    """What a kubelet says of itself, "v1.37.1". UserError for a program that does not."""
    pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    try:
        process = await _when_nobody_writes_it(
            partial(
                asyncio.create_subprocess_exec,
                program,
                "--version",
                stdin=none,
                stdout=pipe,
                stderr=none,
                start_new_session=True,
            )
        )
    except OSError as error:
        if error.errno not in _NO_PROGRAM:
            raise
        raise _no_kubelet(program, f"cannot be run: {error.strerror}") from error
    assert process.stdout is not None  # noqa: S101 # we asked for a pipe
    try:
        async with asyncio.timeout(VERSION_SECONDS):
            line, status = await process.stdout.readline(), await process.wait()
    except (TimeoutError, ValueError) as error:  # ValueError: a line without an end
        raise _no_kubelet(program, f"does not say its version within {VERSION_SECONDS:.0f} s") from error
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    said = _SAID.fullmatch(line)
    if status or said is None:
        raise _no_kubelet(program, "does not say its version")
    return said[1].decode(errors="replace")


async def _when_nobody_writes_it(
    start: Callable[[], Awaitable[asyncio.subprocess.Process]],
) -> asyncio.subprocess.Process:
    """A child that was forked while the program was being written holds it open until it executes something else."""
    for _ in range(20):
        try:
            return await start()
        except OSError as error:
            if error.errno != errno.ETXTBSY:
                raise
        await asyncio.sleep(0.1)
    return await start()


def _no_kubelet(program: Path, why: str) -> UserError:
    return UserError(
        f"the kubelet of the image, {program.name}, {why}", fix="use an image with a kubelet that runs here"
    )


@dataclass(slots=True)
class Staging:
    """root: of autarky's files on this node. free, version_of: for tests."""

    images: ImageFiles
    root: Path = Path(places.HOST_ROOT)
    free: Callable[[Path], int] = free_bytes
    version_of: Callable[[Path], Awaitable[str]] = version_of
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def stage(self, wanted: Wanted) -> str:
        """The name of the generation, which is complete on the disk."""
        async with self._one_at_a_time:
            with _full_disk_explained():
                return await self._stage(wanted)

    async def prune(self, keep: Collection[str]) -> list[str]:
        """Remove what is ours and not used; what was removed. keep: generations that an ask or a trial names, besides
        `current` and `previous`."""
        async with self._one_at_a_time:
            return await to_the_end(lambda: self._disk.prune(keep))

    def in_use(self, names: Iterable[str]) -> dict[str, str]:
        """Program → the file of the store that it is now; without those that are elsewhere."""
        return self._disk.in_use(names)

    @property
    def _disk(self) -> Staged:
        return Staged(self.root)

    async def _stage(self, wanted: Wanted) -> str:
        found = await self._find(wanted.programs)
        programs = self._present(wanted.programs, found)
        missing = {name: source for name, source in wanted.programs.items() if name not in programs}
        self._refuse_lost(wanted.kept)
        self._disk.remove_parts()
        self._refuse_without_room(sum(found[one.image].files[one.path].size for one in missing.values()))
        for image in dict.fromkeys(source.image for source in missing.values()):
            paths = {source.path: name for name, source in missing.items() if source.image == image}
            programs |= await self._bring(found[image], paths)
        contents = {**wanted.files, VERSION: f"{wanted.version}\n".encode()}
        links = {name: in_store(stored) for name, stored in {**wanted.kept, **programs}.items()}
        generation = Generation(links, contents)
        if not self._disk.is_complete(generation):
            await self._try(programs.get(KUBELET), wanted)
            await to_the_end(lambda: self._disk.write(generation))
        return generation.name

    # --- programs ---

    async def _find(self, programs: Mapping[str, Source]) -> dict[str, FoundImage]:
        images = dict.fromkeys(source.image for source in programs.values())
        found = {i: await self.images.find(i, [s.path for s in programs.values() if s.image == i]) for i in images}
        for name, source in programs.items():
            if not found[source.image].files[source.path].size:
                raise UserError(f"{name} in the image {source.image} is empty", fix="build the image again")
        return found

    def _present(self, programs: Mapping[str, Source], found: Mapping[str, FoundImage]) -> dict[str, str]:
        """Of these, what the store has already."""
        stored = {
            name: self._disk.program_of(_origin(image, source.path), image.files[source.path].size)
            for name, source in programs.items()
            if (image := found[source.image])
        }
        return {name: one for name, one in stored.items() if one is not None}

    async def _bring(self, image: FoundImage, paths: Mapping[str, str]) -> dict[str, str]:
        """Program → its file in the store. paths: where it is in the image → program."""
        parts: dict[str, Part] = {}
        try:
            for path, name in paths.items():
                parts[path] = self._disk.part(name)
            await self.images.read(image, {path: part.take for path, part in parts.items()})
            of = {_origin(image, path): part for path, part in parts.items()}
            return await to_the_end(lambda: self._disk.put_in_store(of))
        finally:
            for part in parts.values():
                part.drop()

    # --- what is refused ---

    def _refuse_lost(self, kept: Mapping[str, str]) -> None:
        for name, stored in kept.items():
            if not self._disk.is_intact(stored):
                raise UserError(
                    f"the {name} that this node uses, {stored}, is not in its store", fix="run `autarky up`"
                )

    def _refuse_without_room(self, size: int) -> None:
        if size and (free := self.free(self.root)) < size + SPARE:
            needed = f"{(size + SPARE) / 2**20:.0f} MiB are needed, {free / 2**20:.0f} MiB are free"
            raise NoRoom(f"there is no room for another kubelet: {needed} at {self.root}", fix=_FREE_SOME)

    async def _try(self, stored: str | None, wanted: Wanted) -> None:
        """UserError where it is not the wanted kubelet; then nothing of it stays."""
        if stored is None:
            return
        try:
            said = await self.version_of(self.root / "store" / stored)
            _refuse_other_version(said, wanted)
        except UserError:
            with suppress(OSError):
                await to_the_end(self._disk.prune_store)
            raise


def _refuse_other_version(said: str, wanted: Wanted) -> None:
    if said != wanted.version:
        what = f"the kubelet of the image {wanted.programs[KUBELET].image} is {said}, not {wanted.version}"
        raise UserError(what, fix=f"use an image with the kubelet {wanted.version}, or ask for {said}")


def _origin(image: FoundImage, path: str) -> str:
    return f"{image.digest} {path}"


@contextmanager
def _full_disk_explained() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise NoRoom(f"the disk with {places.HOST_ROOT} is full", fix=_FREE_SOME) from error
