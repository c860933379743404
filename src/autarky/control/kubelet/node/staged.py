"""What is staged on this node's disk for its kubelet: programs in the store, generations, and a ledger of both.

    store/NAME-SHA16            programs, named by their content, as `up` does it (`places.stored_name`)
    kubelet/GENERATION/         links to them, and files (`manifests.files`); `complete` is written last
    state/kubelet-staged.json   programs, generations: those that are ours to remove; origins: of which program of the
                                store a file of an image has the content, also where that is not ours

Contract: synchronous, and may be killed at any write. A program has its name in the store once all of it is on the
disk; a name proves the content from then on. A generation is complete once everything else of it is on the disk.
Nothing is switched here. `prune` removes only what the ledger names: generations that nothing asks for, then programs
that no link below `root` reaches, and nothing where that cannot be known. All raise OSError.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

from autarky import places
from autarky.control.kubelet.manifests import files
from autarky.control.kubelet.manifests.generation import Generation
from autarky.store import NOT_UNDERSTOOD, sync_directory, write_private

SYNCED_AT_ONCE: Final = 8 * 2**20
"""Bytes. etcd may be on the same disk: a sync of 80 MB could hold up its own for as long as an election takes."""
_GENERATION = re.compile(r"[0-9a-f]{16}")
_STORED = re.compile(r"[a-z0-9][a-z0-9.-]*-[0-9a-f]{16}")
_PART = re.compile(r"\.[a-z0-9.-]+\.part")


@dataclass(slots=True)
class Ledger:
    programs: set[str] = field(default_factory=set)
    generations: set[str] = field(default_factory=set)
    origins: dict[str, str] = field(default_factory=dict)

    def written(self) -> bytes:
        content = {
            "programs": sorted(self.programs),
            "generations": sorted(self.generations),
            "origins": dict(sorted(self.origins.items())),
        }
        return (json.dumps(content, indent=2) + "\n").encode()


class Part:
    """A program of which not all is in the store yet."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name, self.size = path, name, 0
        self._hash = sha256()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file = os.fdopen(os.open(path, flags, 0o600), "wb", buffering=0)

    def take(self, piece: bytes) -> None:
        left = memoryview(piece)
        while left:
            left = left[self._file.write(left) :]
        self._hash.update(piece)
        before, self.size = self.size, self.size + len(piece)
        if self.size // SYNCED_AT_ONCE > before // SYNCED_AT_ONCE:
            os.fdatasync(self._file.fileno())

    def finished(self) -> str:
        """Executable and on the disk; the name that it gets in the store."""
        os.fchmod(self._file.fileno(), 0o755)
        os.fsync(self._file.fileno())
        self._file.close()
        return places.stored_name(self.name, self._hash.hexdigest())

    def drop(self) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Staged:
    """root: of autarky's files on this node."""

    root: Path

    # --- programs ---

    def is_intact(self, stored: str, size: int | None = None) -> bool:
        """Whether the store has this program; of this size, if one is given."""
        path = self.root / "store" / stored
        if not _STORED.fullmatch(stored) or not path.is_file() or not os.access(path, os.X_OK):
            return False
        return path.stat().st_size == size if size is not None else path.stat().st_size > 0

    def program_of(self, origin: str, size: int) -> str | None:
        """The program of the store that has the content of this file of an image, where that is known."""
        stored = self.ledger().origins.get(origin, "")
        return stored if self.is_intact(stored, size) else None

    def in_use(self, names: Iterable[str]) -> dict[str, str]:
        """Program → the file of the store that its link in bin/ leads to; without those that lead elsewhere."""
        found = {name: self._stored_behind(self.root / "bin" / name) for name in names}
        return {name: stored for name, stored in found.items() if stored is not None}

    def part(self, name: str) -> Part:
        store = self.root / "store"
        store.mkdir(mode=0o755, parents=True, exist_ok=True)
        return Part(store / f".{name}.part", name)

    def put_in_store(self, parts: Mapping[str, Part]) -> dict[str, str]:
        """Program → its file in the store. parts: by their origin."""
        names = {origin: part.finished() for origin, part in parts.items()}
        ours = {stored for stored in names.values() if not (self.root / "store" / stored).exists()}
        with self._changed_ledger() as ledger:  # first: what it does not name is never removed
            ledger.programs |= ours
            ledger.origins |= names
        for origin, part in parts.items():
            part.path.replace(self.root / "store" / names[origin])
        sync_directory(self.root / "store")
        return {part.name: names[origin] for origin, part in parts.items()}

    def remove_parts(self) -> None:
        """Those of an agent that was killed."""
        store = self.root / "store"
        for path in store.iterdir() if store.exists() else ():
            if _PART.fullmatch(path.name):
                path.unlink()

    # --- generations ---

    def is_complete(self, generation: Generation) -> bool:
        directory = self.root / "kubelet" / generation.name
        wanted = {**generation.contents, files.COMPLETE: generation.complete}
        try:
            links = {name: str((directory / name).readlink()) for name in generation.links}
            contents = {name: (directory / name).read_bytes() for name in wanted}
        except OSError:
            return False
        return links == generation.links and contents == wanted

    def write(self, generation: Generation) -> None:
        """Also where a part of it is there, and even in use: each file and link is replaced in one rename."""
        with self._changed_ledger() as ledger:
            ledger.generations.add(generation.name)
        directory = self.root / "kubelet" / generation.name
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        for name, content in generation.contents.items():
            _write(directory / name, content)
        for name, target in generation.links.items():
            _point(directory / name, target)
        for changed in (directory, directory.parent):
            sync_directory(changed)
        _write(directory / files.COMPLETE, generation.complete)

    # --- what is removed ---

    def prune(self, keep: Collection[str]) -> list[str]:
        """What was removed. keep: generations besides `current` and `previous`."""
        return self._prune_generations(keep) + self.prune_store()

    def _prune_generations(self, keep: Collection[str]) -> list[str]:
        directory = self.root / "kubelet"
        current, previous = (_target(directory / link) for link in ("current", "previous"))
        if current is None:  # nobody knows what runs
            return []
        gone = sorted(self.ledger().generations - {*keep, current, previous})
        for name in gone:
            _remove_generation(directory / name)
        if gone:
            sync_directory(directory)
            with self._changed_ledger() as ledger:
                ledger.generations -= set(gone)
        return gone

    def prune_store(self) -> list[str]:
        store = self.root / "store"
        gone = sorted(self.ledger().programs - self._reached())
        for name in gone:
            (store / name).unlink(missing_ok=True)
        if gone:
            sync_directory(store)
            with self._changed_ledger() as ledger:
                ledger.programs -= set(gone)
                ledger.origins = {origin: name for origin, name in ledger.origins.items() if (store / name).exists()}
        return gone

    def _reached(self) -> set[str]:
        """Files of the store that any link below `root` leads to. OSError where a directory cannot be read."""

        def unknown(error: OSError) -> None:
            raise error

        paths = (
            Path(directory, name)
            for directory, directories, files in os.walk(self.root, onerror=unknown)
            for name in (*directories, *files)
        )
        return {stored for path in paths if path.is_symlink() and (stored := self._stored_behind(path)) is not None}

    def _stored_behind(self, path: Path) -> str | None:
        end = Path(os.path.realpath(path))
        return end.name if end.parent == Path(os.path.realpath(self.root / "store")) else None

    # --- the ledger ---

    def ledger(self) -> Ledger:
        """Empty where it cannot be understood: then nothing is ours, and nothing is removed."""
        try:
            found = json.loads(self._ledger_path.read_bytes())
            return Ledger(
                {name for name in found["programs"] if _STORED.fullmatch(name)},
                {name for name in found["generations"] if _GENERATION.fullmatch(name)},
                {origin: str(name) for origin, name in found["origins"].items()},
            )
        except NOT_UNDERSTOOD:
            return Ledger()

    @contextmanager
    def _changed_ledger(self) -> Iterator[Ledger]:
        """Written, durably, if the block has changed it."""
        ledger = self.ledger()
        before = ledger.written()
        yield ledger
        if (after := ledger.written()) != before:
            write_private(self._ledger_path, after)

    @property
    def _ledger_path(self) -> Path:
        return self.root / "state" / "kubelet-staged.json"


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    for left in path.parent.glob(f".{path.name}.*"):  # by an agent that was killed
        left.unlink()
    write_private(path, content, mode=0o644)


def _point(link: Path, target: str) -> None:
    temporary = link.with_name(f".{link.name}.next")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(link)


def _target(link: Path) -> str | None:
    """The name that the link points to; None where there is no link."""
    try:
        return link.readlink().name
    except FileNotFoundError:
        return None


def _remove_generation(directory: Path) -> None:
    """It is no longer complete before anything else of it is gone."""
    if directory.exists():
        (directory / files.COMPLETE).unlink(missing_ok=True)
        sync_directory(directory)
        shutil.rmtree(directory)
