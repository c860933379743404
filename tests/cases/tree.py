"""The hash of what a scenario meets: on which tree a case has passed.

By content of the working tree, with no git: the product, the scenarios, what both are configured by. What only chooses
and counts cases is not in it, or every record would end with each change of that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
HASHED = (
    *("src/autarky", "tests/e2e", "examples", "requirements", "pyproject.toml"),
    *("docs/by-hand.md", "docs/demos.md", "docs/etcd.md", "docs/recovery.md"),
    *("tests/conftest.py", "tests/fakes/editions.py", "tests/releases"),
)
"""Directories with all that is in them, and files; of the documents those whose commands scenarios run."""


def tree_hash(root: Path = ROOT) -> str:
    digest = hashlib.sha256()
    for path in sorted(_files(root)):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(root).as_posix()}\0{content}\n".encode())
    return digest.hexdigest()[:16]


def _files(root: Path) -> Iterator[Path]:
    for name in HASHED:
        path = root / name
        if path.is_file():
            yield path
        for found in path.rglob("*"):
            if found.is_file() and not any(_is_made(part) for part in found.relative_to(path).parts):
                yield found


def _is_made(part: str) -> bool:
    """By tools, on this machine only."""
    return part.startswith(".") or part == "__pycache__"
