"""Which scenarios the change touches: those that are other than in the commit which it is based on.

The base is $AUTARKY_BASE; else where this branch left origin's; else the commit before this one. A checkout without
git, or with one commit only, has none: then only the records tell what has changed since its last pass.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from cases.beside import own_files
from cases.records import SCENARIOS
from cases.scenario import name_of_test, scenario_hashes
from cases.tree import ROOT


class UnknownBase(Exception):
    """$AUTARKY_BASE names a commit that is not here."""


def hashes_now(cases: Iterable[str], root: Path = ROOT) -> dict[str, str]:
    """Case → the hash of its scenario in the working tree; of its module where that does not define the test itself."""
    cases, files = list(cases), _files_now(root)
    beside = own_files(files)
    modules = {module_of(case) for case in cases}
    of_tests = {module: scenario_hashes(files[module].decode(), beside[module]) for module in modules}
    of_all = {module: _complete(files[module], beside[module]) for module in modules}
    return {case: of_tests[module_of(case)].get(name_of_test(case), of_all[module_of(case)]) for case in cases}


def module_of(case: str) -> str:
    """The name of its file."""
    return case.partition("::")[0].removeprefix(f"{SCENARIOS}/")


def _complete(module: bytes, beside: Mapping[str, str]) -> str:
    brought = [f"{file}: {brings}".encode() for file, brings in sorted(beside.items())]
    return hashlib.sha256(b"\n".join([module, *brought])).hexdigest()[:12]


def base(root: Path = ROOT) -> str | None:
    """A commit; None when there is none to compare with. UnknownBase."""
    named = os.environ.get("AUTARKY_BASE")
    if named:
        found = _line(root, "rev-parse", "--verify", "--quiet", f"{named}^{{commit}}")
        if found is None:
            raise UnknownBase(f"the commit {named} (AUTARKY_BASE) is not here: git fetch --unshallow")
        return found
    head = _line(root, "rev-parse", "HEAD")
    left = _line(root, "merge-base", "HEAD", "origin/HEAD")
    if left is not None and left != head:
        return left
    return _line(root, "rev-parse", "--verify", "--quiet", "HEAD^")


def changed_since(commit: str, now: Mapping[str, str], root: Path = ROOT) -> set[str]:
    """The cases whose scenario is other than in that commit, or was not there."""
    files = _files_then(commit, root)
    beside = own_files(files)
    there = {module_of(case) for case in now} & beside.keys()
    then = {module: scenario_hashes(files[module].decode(), beside[module]) for module in there}
    return {
        case for case, scenario in now.items() if is_other(name_of_test(case), scenario, then.get(module_of(case), {}))
    }


def is_other(test: str, scenario: str, then: Mapping[str, str]) -> bool:
    """Pure. A test that has only got another name is the same."""
    return then[test] != scenario if test in then else scenario not in then.values()


# --- what lies in the directory of the scenarios -------------------------------------------------------


def _files_now(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / SCENARIOS).iterdir() if path.is_file()}


def _files_then(commit: str, root: Path) -> dict[str, bytes]:
    packed = _git(root, "archive", "--format=tar", f"{commit}:{SCENARIOS}")
    if packed is None:
        return {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        files = {member.name: archive.extractfile(member) for member in archive if "/" not in member.name}
        return {name: file.read() for name, file in files.items() if file is not None}


def _line(root: Path, *argv: str) -> str | None:
    said = _git(root, *argv)
    return None if said is None else said.decode().strip()


def _git(root: Path, *argv: str) -> bytes | None:
    """What it says; None when it fails or there is no git."""
    command = ["git", "-C", str(root), *argv]
    try:
        done = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None
