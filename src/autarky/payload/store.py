"""The content store: blobs under their sha256, and records that say which recipe made which blob.

Contract: a blob appears in one rename, complete and synced; a record is written after its blobs. A blob
is verified before it is handed out: by its full digest the first time, then by what the file system says
of it (size, time, inode), which a changed or truncated file does not keep. `verify` always hashes.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autarky import places
from autarky.errors import UserError
from autarky.store import write_private

Stamp = tuple[int, int, int]


class Store:
    def __init__(self, root: Path | None = None) -> None:
        self.root = root if root is not None else places.cache_dir() / "store"
        self._verified: dict[str, Stamp] | None = None

    # --- blobs ---

    def blob_path(self, digest: str) -> Path:
        return self.root / "blobs" / "sha256" / digest

    def has(self, digest: str) -> bool:
        """Whether the blob is there and whole. A damaged one is removed, so that it is made again."""
        path = self.blob_path(digest)
        stamp = _stamp(path)
        if stamp is None:
            return False
        known = self._stamps()
        if known.get(digest) == stamp:
            return True
        if file_digest(path) != digest:
            path.unlink()
            return False
        self._remember(digest, stamp)
        return True

    def add(self, source: Path) -> tuple[str, int]:
        """Take a file in, moving it where the file system allows; its digest and size."""
        with full_disk_explained(self.root):
            digest = file_digest(source)
            target = self.blob_path(digest)
            target.parent.mkdir(parents=True, exist_ok=True)
            size = source.stat().st_size
            if not self.has(digest):
                _sync(source)
                source.rename(target)
                _sync(target.parent)
                stamp = _stamp(target)
                if stamp is not None:
                    self._remember(digest, stamp)
            return digest, size

    def blobs(self) -> Iterator[Path]:
        directory = self.root / "blobs" / "sha256"
        return iter(sorted(directory.iterdir())) if directory.is_dir() else iter(())

    # --- records ---

    def record(self, key: str) -> dict[str, Any] | None:
        """What was recorded under the key, or None; a torn record counts as none."""
        try:
            found = json.loads(self._record_path(key).read_text())
        except (FileNotFoundError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def write_record(self, key: str, value: Mapping[str, Any]) -> None:
        with full_disk_explained(self.root):
            write_private(self._record_path(key), json.dumps(value, indent=1).encode(), mode=0o644)

    def records(self) -> dict[str, dict[str, Any]]:
        directory = self.root / "records"
        paths = sorted(directory.glob("*.json")) if directory.is_dir() else []
        return {path.stem: self.record(path.stem) or {} for path in paths}

    def remove_record(self, key: str) -> None:
        self._record_path(key).unlink(missing_ok=True)

    def _record_path(self, key: str) -> Path:
        return self.root / "records" / f"{key}.json"

    # --- scratch ---

    @contextmanager
    def scratch(self, name: str) -> Iterator[Path]:
        """An empty directory on the store's file system, gone afterwards; leftovers of a killed run go first."""
        directory = self.root / "scratch" / name
        remove_tree(directory)
        with full_disk_explained(self.root):
            directory.mkdir(parents=True)
        try:
            yield directory
        finally:
            remove_tree(directory)

    # --- what was verified ---

    def _stamps(self) -> dict[str, Stamp]:
        if self._verified is None:
            try:
                data = json.loads((self.root / "verified.json").read_text())
                self._verified = {digest: (s[0], s[1], s[2]) for digest, s in data.items()}
            except (FileNotFoundError, ValueError, IndexError, TypeError, AttributeError):
                self._verified = {}
        return self._verified

    def _remember(self, digest: str, stamp: Stamp) -> None:
        stamps = self._stamps()
        stamps[digest] = stamp
        write_private(self.root / "verified.json", json.dumps(stamps).encode(), mode=0o644)


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove_tree(directory: Path) -> None:
    """Remove a tree that may hold read-only directories (Go's module cache has them)."""
    if not directory.exists():
        return
    for root, directories, files in os.walk(directory, topdown=False):
        Path(root).chmod(0o700)
        for name in files:
            (Path(root) / name).unlink()
        for name in directories:
            path = Path(root) / name
            path.unlink() if path.is_symlink() else path.rmdir()
    directory.rmdir()


@contextmanager
def full_disk_explained(directory: Path) -> Iterator[None]:
    """Turn "no space left" into an error that says where and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise no_space(directory) from error


def no_space(directory: Path) -> UserError:
    return UserError(
        f"there is no space left for {directory}",
        fix="free some (a cold build needs 15 GB with Go's caches, the store 2 GB), or set XDG_CACHE_HOME to a "
        "larger disk; then run the command again: what is built is kept",
    )


def _stamp(path: Path) -> Stamp | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
