"""The trees of other releases. Earlier ones, out of git: their commands make the clusters that this tree takes over.
And a later one: this tree with another edition of defaults.

`releases.json` names them, and says in what form. A tree is unpacked once; it runs with its own sources, and with its
own Python packages where its lock file is another than ours.

Contract: no module of the scenarios is imported here, and nothing in the checkout is changed. A commit that is not
there fails with the command that brings it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autarky.model.defaults import Edition

CHECKOUT = Path(__file__).parents[2]
RELEASES = Path(__file__).with_name("releases.json")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "autarky-tests/earlier"
PARTS = ("src", "requirements")
LOCK = "requirements/runtime.lock"


@dataclass(frozen=True)
class Release:
    """anew: component → why it is started anew when this tree takes over a cluster of that release."""

    name: str
    commit: str
    anew: Mapping[str, str]


@dataclass(frozen=True)
class Tree:
    """A checkout of an earlier release, as the scenarios run its commands."""

    root: Path
    python: str

    @property
    def command(self) -> list[str]:
        return [self.python, "-m", "autarky"]

    @property
    def variables(self) -> dict[str, str]:
        return {"PYTHONPATH": str(self.root / "src")}


def releases(file: Path = RELEASES) -> list[Release]:
    found = json.loads(file.read_text())["releases"]
    return [Release(one["name"], one["commit"], dict(one["anew"])) for one in found]


def tree_of(release: Release, *, checkout: Path = CHECKOUT, cache: Path = CACHE) -> Tree:
    """Unpacked, and seen to run with its own sources."""
    root = cache / release.commit
    if not root.exists():
        _unpack(release, checkout, root)
    tree = Tree(root, _python(root, checkout))
    _runs_its_own_sources(tree)
    return tree


def later_tree(edition: Edition, root: Path, *, checkout: Path = CHECKOUT) -> Tree:
    """This tree, as the release after it may be: with that edition of defaults as its newest. Made anew in `root`."""
    tree = _copied(root, checkout)
    with (root / "src/autarky/model/defaults.py").open("a") as module:
        module.write(f"\nEDITIONS = (*EDITIONS, {_as_source(edition)})\n")
    return tree


def broken_tree(at_the_start: str, root: Path, *, checkout: Path = CHECKOUT) -> Tree:
    """This tree, as a release that went wrong: its node agents and operators execute that statement first."""
    tree, begins = _copied(root, checkout), "from __future__ import annotations\n"
    for agent in ("node", "operator"):
        _edit(tree, f"agents/{agent}/__main__.py", begins, f"{begins}\n{at_the_start}\n")
    return tree


def edited_tree(module: str, said: str, says: str, root: Path, *, checkout: Path = CHECKOUT) -> Tree:
    """This tree, with other words in one of its modules (a path below the package)."""
    tree = _copied(root, checkout)
    _edit(tree, module, said, says)
    return tree


def _edit(tree: Tree, module: str, said: str, says: str) -> None:
    path = tree.root / "src/autarky" / module
    source = path.read_text()
    assert said in source, f"{module} does not have {said!r}"
    path.write_text(source.replace(said, says, 1))


def _copied(root: Path, checkout: Path) -> Tree:
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(checkout / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    tree = Tree(root, sys.executable)
    _runs_its_own_sources(tree)
    return tree


def _as_source(edition: Edition) -> str:
    arguments = {component: dict(flags) for component, flags in edition.arguments.items()}
    version = f'Version.parse("{edition.kubernetes}")'
    return f"Edition(kubernetes={version}, file={dict(edition.file)!r}, arguments={arguments!r})"


def _unpack(release: Release, checkout: Path, root: Path) -> None:
    """In one rename: half a tree would be taken for a whole one."""
    git = ["git", "-C", str(checkout)]
    there = subprocess.run([*git, "cat-file", "-e", f"{release.commit}^{{commit}}"], capture_output=True, check=False)
    assert there.returncode == 0, (
        f"commit {release.commit} (release {release.name} of {RELEASES.name}) is not in {checkout}:"
        " `git fetch --unshallow` brings it"
    )
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root.parent) as scratch:
        archive, unpacked = Path(scratch) / "tree.tar", Path(scratch) / "tree"
        unpacked.mkdir()
        subprocess.run([*git, "archive", f"--output={archive}", release.commit, *PARTS], check=True)
        subprocess.run(["tar", "-xf", str(archive), "-C", str(unpacked)], check=True)
        unpacked.rename(root)


def _python(root: Path, checkout: Path) -> str:
    """Ours, with what is installed for it; one of the tree's own where that has another list of packages."""
    if (root / LOCK).read_bytes() == (checkout / LOCK).read_bytes():
        return sys.executable
    environment, complete = root / "venv", root / "venv/.complete"
    python = str(environment / "bin/python")
    if not complete.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(environment)], check=True)
        install = ["-m", "pip", "install", "-q", "--disable-pip-version-check", "--require-hashes"]
        subprocess.run([python, *install, "-r", str(root / LOCK)], check=True)
        complete.touch()
    return python


def _runs_its_own_sources(tree: Tree) -> None:
    """Ours are installed for the same Python, and would make a cluster of this release."""
    argv = [tree.python, "-c", "import autarky; print(autarky.__file__)"]
    environment = {**os.environ, **tree.variables}
    said = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout.strip()
    assert Path(said).is_relative_to(tree.root), f"the commands of {tree.root} would run {said}"
