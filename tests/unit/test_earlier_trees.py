"""Trees of earlier releases come out of git complete or not at all, and run with their own sources."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from e2e import harness
from e2e.earlier import CHECKOUT, LOCK, RELEASES, Release, releases, tree_of


def git(checkout: Path, *argv: str) -> str:
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false")
    argv = ("git", "-C", str(checkout), *identity, *argv)
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    """One that says today who runs, and said something else in its first commit."""
    root = tmp_path / "checkout"
    package = root / "src/autarky"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (root / LOCK).parent.mkdir()
    (root / LOCK).write_text("")
    (root / "tests").mkdir()
    (root / "tests/large").write_text("what no command needs")
    (package / "__main__.py").write_text("print('the earlier one')")
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    (package / "__main__.py").write_text("print('today')")
    return root


@pytest.fixture
def release(checkout):
    return Release("first", git(checkout, "rev-parse", "HEAD"), {})


def test_its_commands_are_those_of_its_commit(checkout, release, tmp_path, monkeypatch):
    tree = tree_of(release, checkout=checkout, cache=tmp_path / "cache")
    assert tree.python == sys.executable
    assert sorted(path.name for path in tree.root.iterdir()) == ["requirements", "src"]
    monkeypatch.setenv("PYTHONPATH", str(checkout / "src"))
    monkeypatch.setattr(harness, "COMMAND", [sys.executable, "-m", "autarky"])
    assert harness.TestCluster("one", {}, tree).autarky("up").stdout == "the earlier one\n"
    assert harness.TestCluster("one", {}).autarky("up").stdout == "today\n"


def test_it_is_unpacked_once(checkout, release, tmp_path):
    tree = tree_of(release, checkout=checkout, cache=tmp_path / "cache")
    (tree.root / "src/autarky/kept").touch()
    assert tree_of(release, checkout=checkout, cache=tmp_path / "cache") == tree
    assert (tree.root / "src/autarky/kept").exists()


def test_one_that_was_cut_short_is_unpacked_again(checkout, release, tmp_path, monkeypatch):
    real = subprocess.run

    def without_tar(argv, **options):
        if argv[0] == "tar":
            raise KeyboardInterrupt
        return real(argv, **options)

    monkeypatch.setattr(subprocess, "run", without_tar)
    with pytest.raises(KeyboardInterrupt):
        tree_of(release, checkout=checkout, cache=tmp_path / "cache")
    monkeypatch.undo()
    assert (tree_of(release, checkout=checkout, cache=tmp_path / "cache").root / LOCK).exists()


def test_a_commit_that_is_not_there_is_told_with_the_command_that_brings_it(checkout, tmp_path):
    gone = Release("gone", "0" * 40, {})
    with pytest.raises(AssertionError, match=r"commit 0{40} \(release gone .*`git fetch --unshallow` brings it"):
        tree_of(gone, checkout=checkout, cache=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_one_that_would_run_our_sources_is_refused(checkout, release, tmp_path):
    """Its package has gone: what is installed for the same Python would answer in its place."""
    tree = tree_of(release, checkout=checkout, cache=tmp_path / "cache")
    (tree.root / "src").rename(tree.root / "moved")
    with pytest.raises(AssertionError, match="would run"):
        tree_of(release, checkout=checkout, cache=tmp_path / "cache")


# --- the list ----------------------------------------------------------------------------------------------------


def test_the_list_names_complete_commits_each_once_and_says_why_who_restarts():
    found = releases()
    assert found
    assert all(len(release.commit) == 40 and set(release.commit) <= set("0123456789abcdef") for release in found)
    assert len({release.commit for release in found}) == len({release.name for release in found}) == len(found)
    assert all(why for release in found for why in release.anew.values())
    assert "anew" in json.loads(RELEASES.read_text())["form"]


def test_clusters_of_the_newest_published_release_are_taken_over():
    """Whoever publishes one adds it (CHANGELOG.md, `releases.json`)."""
    published = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - ", (CHECKOUT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert published
    assert published[0] in {one.name for one in releases()}
