"""Which tree was measured: nothing of it is hidden, and a change while it is measured is seen."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from _tree import ROOT, named, tree_of


def git(checkout: Path, *argv: str) -> str:
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false")
    argv = ("git", "-C", str(checkout), *identity, *argv)
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    """With all that it has in its commit."""
    root = tmp_path / "checkout"
    for name in ("src/autarky/__init__.py", "bench/up.py", "docs/a page.md"):
        put(root / name, name)
    put(root / ".gitignore", "__pycache__/\nlocal_*\n")
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    return root


def put(path: Path, content: str = "new") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def test_a_tree_that_is_as_its_commit_has_it_has_no_changes(checkout):
    tree = tree_of(checkout)
    assert (tree.commit, tree.changed) == (git(checkout, "rev-parse", "HEAD"), ())


@pytest.mark.parametrize(
    ("path", "reported"),
    [
        ("src/autarky/__init__.py", True),
        ("bench/up.py", True),
        ("docs/a page.md", True),
        ("src/autarky/new.py", True),
        ("src/autarky/new/part.py", True),
        ("bench/new.py", True),
        ("src/autarky/local_new.py", True),  # which git ignores here
        ("docs/new.md", False),
        ("src/autarky/__pycache__/new.pyc", False),
        ("bench/.cache/new", False),
    ],
)
def test_what_the_commit_has_otherwise_and_what_it_has_not_among_the_sources_counts_as_changed(
    checkout, path, reported
):
    put(checkout / path)
    assert tree_of(checkout).changed == ((path,) if reported else ())


def test_a_file_that_is_gone_and_one_that_waits_for_the_commit_are_changes(checkout):
    (checkout / "bench/up.py").unlink()
    put(checkout / "docs/new.md")
    git(checkout, "add", "docs/new.md")
    assert tree_of(checkout).changed == ("bench/up.py", "docs/new.md")


@pytest.mark.parametrize("path", ["src/autarky/__init__.py", "bench/up.py", "src/autarky/new.py", "bench/local_new.py"])
def test_the_hash_is_another_with_any_other_content_of_the_sources(checkout, path):
    before = tree_of(checkout).sources
    put(checkout / path, "one")
    one = tree_of(checkout).sources
    put(checkout / path, "two")
    assert len({before, one, tree_of(checkout).sources}) == 3


def test_the_hash_goes_by_names_as_well(checkout):
    before = tree_of(checkout).sources
    (checkout / "bench/up.py").rename(checkout / "bench/down.py")
    assert tree_of(checkout).sources != before


@pytest.mark.parametrize("path", ["docs/a page.md", "src/autarky/__pycache__/new.pyc"])
def test_what_is_no_source_is_not_in_the_hash(checkout, path):
    before = tree_of(checkout).sources
    put(checkout / path)
    assert tree_of(checkout).sources == before


def test_a_commit_meanwhile_is_another_tree_though_the_sources_are_the_same(checkout):
    before = tree_of(checkout)
    git(checkout, "commit", "-q", "--allow-empty", "-m", "second")
    assert tree_of(checkout) != before


def test_a_tree_that_is_no_checkout_has_no_commit_also_within_somebody_elses(checkout):
    put(checkout / "unpacked/src/autarky/__init__.py")
    tree = tree_of(checkout / "unpacked")
    assert (tree.commit, tree.changed) == ("", ())
    assert tree.sources != tree_of(checkout).sources


def test_unknown_is_not_unchanged(checkout):
    (checkout / ".git/index").write_text("damaged")
    with pytest.raises(subprocess.CalledProcessError):
        tree_of(checkout)


def test_of_many_files_some_are_named():
    assert named(["a", "b"]) == "a, b"
    assert named([f"f{number}" for number in range(7)]) == "f0, f1, f2, f3, f4 and 2 more"


def test_the_root_is_that_of_this_checkout():
    assert (ROOT / "run").exists()
