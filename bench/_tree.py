"""What a checkout was when it was measured: its commit, what is not in that, and a hash of its sources.

Nothing that is measured is hidden: a module that git is told to ignore counts as much as one that it was not told of.
The hash is of content, with no git, so that two looks at a tree with changes tell whether they are the same changes.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
SOURCES = ("src", "bench")
"""Directories: what is measured, and what measures."""


@dataclass(frozen=True)
class Tree:
    """commit: empty where that is not known. changed: files that are not as the commit has them, and those below
    SOURCES that it has not. sources: a hash of all files below SOURCES."""

    commit: str
    changed: tuple[str, ...]
    sources: str

    def __str__(self) -> str:
        what = f"commit {self.commit}" if self.commit else "of a commit that is not known"
        return f"{what}, sources {self.sources}" + (f", not committed: {named(self.changed)}" if self.changed else "")


def tree_of(root: Path) -> Tree:
    """CalledProcessError where git knows the commit and fails to say what was changed: unknown is not unchanged."""
    commit = _commit(root)
    return Tree(commit, _changed(root) if commit else (), _hash(root))


def named(files: Sequence[str], most: int = 5) -> str:
    """For a message: some of them by name."""
    more = f" and {len(files) - most} more" if len(files) > most else ""
    return ", ".join(files[:most]) + more


def _commit(root: Path) -> str:
    """Of a checkout whose top this is; empty for anything else, such as a directory in somebody else's checkout."""
    try:
        top, commit = _git(root, "rev-parse", "--show-toplevel", "HEAD").splitlines()
    except (OSError, subprocess.CalledProcessError):
        return ""
    return commit if Path(top).resolve() == root.resolve() else ""


def _changed(root: Path) -> tuple[str, ...]:
    known = _git(root, "diff", "--name-only", "-z", "HEAD").split("\0")
    unknown = _git(root, "ls-files", "--others", "-z", "--", *SOURCES).split("\0")
    return tuple(sorted({*known, *(path for path in unknown if not _is_made(PurePosixPath(path)))} - {""}))


def _hash(root: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(_sources(root)):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(root).as_posix()}\0{content}\n".encode())
    return digest.hexdigest()[:16]


def _sources(root: Path) -> Iterator[Path]:
    for name in SOURCES:
        for path in (root / name).rglob("*"):
            if path.is_file() and not _is_made(PurePosixPath(path.relative_to(root))):
                yield path


def _is_made(path: PurePosixPath) -> bool:
    """By tools, on this machine only."""
    return any(part.startswith(".") or part == "__pycache__" for part in path.parts)


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True).stdout
