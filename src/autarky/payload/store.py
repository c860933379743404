"""The content store: blobs under their sha256, and records that say which recipe made which blob.

Contract: a blob appears in one rename, complete and synced; a record is written after its blobs. A blob
is verified before it is handed out: by its full digest the first time, then by what the file system says
of it (size, time, inode), which a changed or truncated file does not keep. `autarky payload verify` always
hashes. Reading changes nothing: a damaged blob counts as absent, and `add` puts the good one in its place.

Writers hold `lock`, as two builds at once would do the same work twice. Readers need no lock.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from autarky import places
from autarky.payload.disk import full_disk_explained, remove_tree
from autarky.store import file_digest, write_private

Stamp = tuple[int, int, int]


class Store:
    def __init__(self, root: Path | None = None) -> None:
        self.root = root if root is not None else places.cache_dir() / "store"
        self.damaged: set[str] = set()
        """Digests whose blob was found damaged since this object was made."""
        self._verified: dict[str, Stamp] | None = None

    @property
    def lock(self) -> Path:
        """The lock file of those that change the store."""
        return self.root / "lock"

    # --- blobs ---

    def blob_path(self, digest: str) -> Path:
        return self.root / "blobs" / "sha256" / digest

    def has(self, digest: str) -> bool:
        """Whether the blob is there and intact."""
        stamp = self._stamp(digest)
        if stamp is None:
            return False
        if self._stamps().get(digest) == stamp:
            return True
        return self.check(digest)

    def check(self, digest: str) -> bool:
        """As `has`, by reading all of it."""
        stamp = self._stamp(digest)
        try:
            intact = stamp is not None and file_digest(self.blob_path(digest)) == digest
        except FileNotFoundError:  # pruned meanwhile
            return False
        if stamp is not None and intact:
            self._remember(digest, stamp)
        elif stamp is not None:
            self.damaged.add(digest)
        return intact

    def add(self, source: Path) -> tuple[str, int]:
        """Move a file of the store's file system in; its digest and size in bytes."""
        with full_disk_explained(self.root):
            digest, size = file_digest(source), source.stat().st_size
            target = self.blob_path(digest)
            target.parent.mkdir(parents=True, exist_ok=True)
            if not self.has(digest):
                _sync(source)
                source.rename(target)
                _sync(target.parent)
                stamp = self._stamp(digest)
                if stamp is not None:
                    self._remember(digest, stamp)
            return digest, size

    def blobs(self) -> Iterator[Path]:
        directory = self.root / "blobs" / "sha256"
        return iter(sorted(directory.iterdir())) if directory.is_dir() else iter(())

    def _stamp(self, digest: str) -> Stamp | None:
        try:
            status = self.blob_path(digest).stat()
        except FileNotFoundError:
            return None
        return status.st_size, status.st_mtime_ns, status.st_ino

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
        """An empty directory on the store's file system, gone afterwards.

        Its name holds our process id: a tool that outlived a killed run cannot write into this one's.
        """
        directory = self.root / "scratch" / f"{name}-{os.getpid()}"
        remove_tree(directory)
        with full_disk_explained(self.root):
            directory.mkdir(parents=True)
        try:
            yield directory
        finally:
            remove_tree(directory)

    def clear_scratch(self) -> None:
        """Remove what killed runs left behind. For the holder of the lock."""
        remove_tree(self.root / "scratch")

    # --- what was verified ---

    def _stamps(self) -> dict[str, Stamp]:
        if self._verified is None:
            try:
                data = json.loads((self.root / "verified.json").read_text())
                self._verified = {digest: (s[0], s[1], s[2]) for digest, s in data.items()}
            except (FileNotFoundError, ValueError, LookupError, TypeError, AttributeError):
                self._verified = {}
        return self._verified

    def _remember(self, digest: str, stamp: Stamp) -> None:
        """Only a cache: nothing is lost when two processes overwrite each other's, or the disk is full."""
        stamps = self._stamps()
        if stamps.get(digest) == stamp:
            return
        stamps[digest] = stamp
        with suppress(OSError):
            write_private(self.root / "verified.json", json.dumps(stamps).encode(), mode=0o644)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
