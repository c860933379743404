"""What a change touches is what git says where there is one, and is never guessed where there is none."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cases import changes
from cases.changes import UnknownBase, base, changed_since, hashes_now, is_other

MODULE = "tests/e2e/test_a.py"
ONE, TWO = f"{MODULE}::test_one[n1]", f"{MODULE}::test_two"


def git(root: Path, *argv: str) -> str:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *who, "-C", str(root), *argv], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(root: Path, *, one: int = 1, two: int = 1) -> str:
    path = root / MODULE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"def test_one(node): assert {one}\n\n\ndef test_two(): assert {two}\n")
    git(root, "add", "-A")
    git(root, "commit", "-q", "--allow-empty", "-m", "a change")
    return git(root, "rev-parse", "HEAD")


@pytest.fixture(autouse=True)
def _no_base_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTARKY_BASE", raising=False)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    root.mkdir()
    git(root, "init", "-q")
    return root


def touched(root: Path) -> set[str]:
    found = base(root)
    assert found is not None
    return changed_since(found, hashes_now([ONE, TWO], root), root)


def test_without_git_or_with_one_commit_there_is_no_base(root: Path, tmp_path: Path) -> None:
    commit(root)
    assert base(root) is None
    (tmp_path / "copy").mkdir()
    assert base(tmp_path / "copy") is None


def test_where_there_is_no_program_git_there_is_no_base(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(root)
    commit(root)
    monkeypatch.setenv("PATH", "/nowhere")
    assert base(root) is None


def test_without_an_origin_it_is_the_commit_before_and_of_a_merge_what_it_was_merged_into(root: Path) -> None:
    first = commit(root)
    git(root, "checkout", "-q", "-b", "other")
    commit(root, one=2)
    commit(root, one=2, two=2)
    git(root, "checkout", "-q", "main")
    git(root, "merge", "-q", "--no-ff", "other", "-m", "merged")
    assert base(root) == first
    assert touched(root) == {ONE, TWO}


def test_a_shallow_clone_has_no_base_until_one_is_named(root: Path, tmp_path: Path) -> None:
    commit(root)
    commit(root, one=2)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{root}", str(clone))
    git(clone, "remote", "remove", "origin")
    assert base(clone) is None


def test_a_branch_is_compared_with_where_it_left_origin(root: Path, tmp_path: Path) -> None:
    left = commit(root)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(root), str(clone))
    commit(clone, one=2)
    commit(clone, one=2)
    commit(root, two=2)
    git(clone, "fetch", "-q")
    assert base(clone) == left
    assert touched(clone) == {ONE}


def test_on_origins_own_branch_it_is_the_commit_before(root: Path, tmp_path: Path) -> None:
    first = commit(root)
    commit(root, one=2)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(root), str(clone))
    assert base(clone) == first


def test_the_base_that_is_named_is_taken(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = commit(root)
    commit(root, one=2)
    commit(root, one=2, two=2)
    assert touched(root) == {TWO}
    monkeypatch.setenv("AUTARKY_BASE", first)
    assert touched(root) == {ONE, TWO}


def test_a_base_that_is_not_here_is_an_error_that_says_how_to_get_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(root)
    monkeypatch.setenv("AUTARKY_BASE", "f" * 40)
    with pytest.raises(UnknownBase, match="git fetch --unshallow"):
        base(root)


def test_a_module_that_was_not_there_is_touched_as_a_whole(root: Path) -> None:
    (root / "README").write_text("x")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "nothing yet")
    commit(root)
    assert touched(root) == {ONE, TWO}


def test_what_is_not_committed_yet_counts(root: Path) -> None:
    commit(root)
    commit(root)
    assert touched(root) == set()
    (root / MODULE).write_text((root / MODULE).read_text().replace("test_two(): assert 1", "test_two(): assert 0"))
    assert touched(root) == {TWO}


def commit_of(root: Path, **files: str) -> str:
    """`files`: of the scenarios' directory, by names with __ for the dot."""
    for name, text in files.items():
        path = root / "tests/e2e" / name.replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "a change")
    return git(root, "rev-parse", "HEAD")


USES = "from own import helps\n\n\ndef test_one(): assert helps()\n\n\ndef test_two(): assert open('list.txt')\n"


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"own__py": "def helps(): return 2"}, {ONE}),
        ({"list__txt": "two"}, {TWO}),
        ({"own__py": "def helps():\n    return 1  # at once"}, set()),
        ({"other__txt": "two"}, set()),
    ],
)
def test_what_belongs_to_one_module_alone_touches_its_tests_that_use_it(
    root: Path, changed: dict[str, str], expected: set[str]
) -> None:
    commit_of(root, test_a__py=USES, own__py="def helps(): return 1", list__txt="one", other__txt="one")
    commit_of(root, **changed)
    assert touched(root) == expected


def test_what_two_modules_share_touches_none(root: Path) -> None:
    commit_of(root, test_a__py=USES, test_b__py="import own", own__py="def helps(): return 1", list__txt="one")
    commit_of(root, own__py="def helps(): return 2")
    assert touched(root) == set()


def test_a_new_name_alone_touches_nothing() -> None:
    then = {"test_old": "a", "test_other": "b"}
    assert not is_other("test_new", "a", then)
    assert is_other("test_new", "c", then)
    assert is_other("test_other", "a", then), "it was another under this very name"


def test_a_test_that_its_module_does_not_define_itself_has_the_hash_of_all_of_the_module(root: Path) -> None:
    path = root / MODULE
    path.parent.mkdir(parents=True)
    path.write_text("from helpers import test_three\n")
    three = f"{MODULE}::test_three"
    before = changes.hashes_now([three], root)
    path.write_text("from helpers import test_three\nX = 1\n")
    after = changes.hashes_now([three], root)
    assert after != before
    (path.parent / "helpers.py").write_text("def test_three(): pass\n")
    assert changes.hashes_now([three], root) != after
