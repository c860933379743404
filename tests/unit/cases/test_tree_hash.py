"""The hash of the tree changes with the product and the scenarios, and with nothing that only counts them."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import pytest

from cases.tree import ROOT, _files, tree_hash

CONTENT = {
    "src/autarky/__init__.py": "",
    "src/autarky/payload/recipes/etcd/go.mod": "module x",
    "tests/e2e/test_a.py": "def test_a(): ...",
    "tests/e2e/focus.txt": "a spec",
    "tests/cases/rotation.py": "",
    "tests/cases/records/test_a/test_a.json": "{}",
    "tests/unit/test_b.py": "",
    "tests/conftest.py": "a seed",
    "tests/fakes/editions.py": "a later release",
    "examples/lab-1.yaml": "a",
    "docs/by-hand.md": "how",
    "docs/recovery.md": "how",
    "docs/README.md": "what",
    "requirements/dev.lock": "x==1",
    "pyproject.toml": "",
    "run": "#!/bin/sh",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in CONTENT.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_the_same_content_has_the_same_hash_wherever_it_lies(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = tree_hash(root)
    assert len(before) == 16
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "checkout"
    root.rename(elsewhere)
    os.utime(elsewhere / "pyproject.toml", (0, 0))
    assert tree_hash(elsewhere) == before


@pytest.mark.parametrize(
    "name",
    [
        "src/autarky/__init__.py",
        "src/autarky/payload/recipes/etcd/go.mod",
        "tests/e2e/test_a.py",
        "tests/e2e/focus.txt",
        "tests/conftest.py",
        "tests/fakes/editions.py",
        "docs/by-hand.md",
        "docs/recovery.md",
        "examples/lab-1.yaml",
        "requirements/dev.lock",
        "pyproject.toml",
    ],
)
def test_what_a_scenario_meets_counts(root: Path, name: str) -> None:
    before = tree_hash(root)
    (root / name).write_text("something else")
    assert tree_hash(root) != before


COUNTING = ("cases", "unit")
"""What scenarios import of that which counts and claims them, and shares with unit tests."""


def test_whatever_a_scenario_imports_of_the_tests_is_in_the_hash_or_counts_it() -> None:
    hashed = set(_files(ROOT))
    missing = set()
    for path in sorted((ROOT / "tests/e2e").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            for name in names:
                found = ROOT / "tests" / f"{name.replace('.', '/')}.py"
                if found.is_file() and found not in hashed and name.partition(".")[0] not in COUNTING:
                    missing.add((path.name, name))
    assert missing == set()


def test_whatever_page_a_scenario_reads_is_in_the_hash() -> None:
    hashed = {path.relative_to(ROOT).as_posix() for path in _files(ROOT)}
    named = {
        page
        for path in (ROOT / "tests/e2e").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for page in re.findall(r"^(?:docs/)?([a-z-]+\.md)$", node.value)
    }
    assert {"by-hand.md", "demos.md", "etcd.md", "recovery.md"} <= named
    assert {f"docs/{page}" for page in named} <= hashed


def test_names_and_new_files_count(root: Path) -> None:
    seen = {tree_hash(root)}
    (root / "src/autarky/new.py").write_text("")
    seen.add(tree_hash(root))
    (root / "src/autarky/new.py").rename(root / "src/autarky/newer.py")
    seen.add(tree_hash(root))
    assert len(seen) == 3


@pytest.mark.parametrize(
    "name",
    [
        "tests/cases/rotation.py",
        "tests/cases/records/test_a/test_a.json",
        "tests/unit/test_b.py",
        "docs/README.md",
        "run",
        "src/autarky/__pycache__/x.pyc",
        "tests/e2e/.pytest_cache/x",
    ],
)
def test_what_no_scenario_meets_does_not_count(root: Path, name: str) -> None:
    before = tree_hash(root)
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text("something else")
    assert tree_hash(root) == before
