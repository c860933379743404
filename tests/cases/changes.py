"""Which scenarios the change touches: those that are other than in the commit which it is based on.

The base is $AUTARKY_BASE; else where this branch left origin's; else the commit before this one. A checkout without
git, or with one commit only, has none: then only the records tell what has changed since its last pass.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from cases.scenario import name_of_test, scenario_hashes
from cases.tree import ROOT


class UnknownBase(Exception):
    """$AUTARKY_BASE names a commit that is not here."""


def hashes_now(cases: Iterable[str], root: Path = ROOT) -> dict[str, str]:
    """Case → the hash of its scenario in the working tree; of its module where that does not define the test itself."""
    cases = list(cases)
    sources = {file: (root / file).read_text() for file in {file_of(case) for case in cases}}
    of_file = {file: scenario_hashes(source) for file, source in sources.items()}
    of_all = {file: hashlib.sha256(source.encode()).hexdigest()[:12] for file, source in sources.items()}
    return {case: of_file[file_of(case)].get(name_of_test(case), of_all[file_of(case)]) for case in cases}


def file_of(case: str) -> str:
    return case.partition("::")[0]


def base(root: Path = ROOT) -> str | None:
    """A commit; None when there is none to compare with. UnknownBase."""
    named = os.environ.get("AUTARKY_BASE")
    if named:
        found = _git(root, "rev-parse", "--verify", "--quiet", f"{named}^{{commit}}")
        if found is None:
            raise UnknownBase(f"the commit {named} (AUTARKY_BASE) is not here: git fetch --unshallow")
        return found.strip()
    head = _git(root, "rev-parse", "HEAD")
    left = _git(root, "merge-base", "HEAD", "origin/HEAD")
    if left is not None and left != head:
        return left.strip()
    before = _git(root, "rev-parse", "--verify", "--quiet", "HEAD^")
    return before.strip() if before is not None else None


def changed_since(commit: str, now: Mapping[str, str], root: Path = ROOT) -> set[str]:
    """The cases whose scenario is other than in that commit, or was not there."""
    then = {file: _hashes_then(commit, file, root) for file in {file_of(case) for case in now}}
    return {case for case, scenario in now.items() if is_other(name_of_test(case), scenario, then[file_of(case)])}


def is_other(test: str, scenario: str, then: Mapping[str, str]) -> bool:
    """Pure. A test that has only got another name is the same."""
    return then[test] != scenario if test in then else scenario not in then.values()


def _hashes_then(commit: str, file: str, root: Path) -> dict[str, str]:
    source = _git(root, "show", f"{commit}:{file}")
    return scenario_hashes(source) if source is not None else {}


def _git(root: Path, *argv: str) -> str | None:
    """What it says; None when it fails or there is no git."""
    command = ["git", "-C", str(root), *argv]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None
