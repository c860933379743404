"""Disk handling of the payload: explain a full disk, and remove trees whatever is in them."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autarky.errors import UserError

FREE_SOME = (
    "free some (a cold build needs 15 GB with Go's caches, the store and its image directories 5 GB; "
    "`autarky payload prune` removes what no release needs), or set XDG_CACHE_HOME to a larger disk; "
    "then run the command again: what is built is kept"
)


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
    return UserError(f"there is no space left for {directory} ({_free(directory)} free)", fix=FREE_SOME)


def _free(directory: Path) -> str:
    there = next(path for path in (directory, *directory.parents) if path.exists())
    return f"{shutil.disk_usage(there).free / 1e6:,.0f} MB"


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
