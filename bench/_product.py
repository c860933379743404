"""Whose commands the benchmarks measure: this tree's, or with `--product DIR` those of another checkout, such as one of
an earlier commit. Everything else is this tree's on both sides: the clocks, the looks, kubeadm and the binaries.

The other checkout's commands run with its own sources, and with this tree's Python packages if its lock file is the
same, else with those of its own .venv.

Danger: what is installed for a Python answers where a checkout has no such package. So the other tree is asked before
anything is measured, and refused unless it is itself that answers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path
from typing import Any

from _record import versions_of
from _tree import ROOT

import autarky
from autarky.payload import Release
from autarky.workflows.up import PHASES

LOCK = "requirements/runtime.lock"
FIRST_CLOCKED = "start-control-plane"
# Argument: a version of Kubernetes. Where the package is, the phases of its `up`, and the versions of what it runs.
ASK = """\
import json, sys
import autarky
from autarky.model.versions import Version
from autarky.payload import load_release
from autarky.workflows.up import PHASES
release = load_release(Version.parse(sys.argv[1]))
versions = {component.name: component.version for component in release.components}
versions["haproxy"] = release.image("haproxy").reference.rpartition(":")[2]
phases = [phase.name for phase in PHASES]
print(json.dumps({"package": autarky.__file__, "phases": phases, "versions": versions}))
"""


@dataclass(frozen=True)
class Product:
    """A checkout whose commands are run. variables: those that they need. phases: of its `up`, in their order."""

    root: Path
    python: str
    variables: Mapping[str, str]
    phases: Sequence[str]

    @property
    def command(self) -> list[str]:
        return [self.python, "-m", "autarky"]

    @property
    def where(self) -> dict[str, Any]:
        """Options of a subprocess. Python looks for packages first where it is started: at a checkout's top is none."""
        return {"cwd": self.root, "env": {**os.environ, **self.variables}}

    @property
    def clocked(self) -> tuple[str, ...]:
        """The phases of `up` from the first kubelet on."""
        return tuple(dropwhile(lambda phase: phase != FIRST_CLOCKED, self.phases))


THIS_TREE = Product(ROOT, sys.executable, {}, tuple(phase.name for phase in PHASES))


def product_of(directory: Path | None, release: Release) -> Product:
    """That of the directory; this tree's where there is none. SystemExit with what is wrong for one that cannot be
    measured here."""
    if not Path(autarky.__file__).resolve().is_relative_to(ROOT.resolve()):
        raise SystemExit(
            f"{sys.executable} runs {autarky.__file__}, not {ROOT}: remove {ROOT}/.venv and use ./run bench"
        )
    return THIS_TREE if directory is None else _other(directory.resolve(), release)


def _other(root: Path, release: Release) -> Product:
    python, variables = _python(root), {"PYTHONPATH": str(root / "src")}
    reported = _asked(root, python, variables, release)
    if not Path(reported["package"]).is_relative_to(root):
        raise SystemExit(f"the commands of {root} would run {reported['package']}: name the top of a checkout")
    if FIRST_CLOCKED not in reported["phases"]:
        raise SystemExit(f"`up` of {root} has no phase {FIRST_CLOCKED}, where the clock starts")
    _refuse_other_versions(root, reported["versions"], versions_of(release))
    return Product(root, python, variables, tuple(reported["phases"]))


def _python(root: Path) -> str:
    try:
        same = (root / LOCK).read_bytes() == (ROOT / LOCK).read_bytes()
    except OSError as error:
        raise SystemExit(f"{root} is no checkout of autarky: {error}") from error
    own = root / ".venv/bin/python"
    if not same and not own.exists():
        raise SystemExit(f"{root} needs other Python packages than this tree: run {root}/run autarky version")
    return sys.executable if same else str(own)


def _asked(root: Path, python: str, variables: Mapping[str, str], release: Release) -> dict[str, Any]:
    argv = [python, "-c", ASK, str(release.kubernetes)]
    environment = {**os.environ, **variables}
    done = subprocess.run(argv, cwd=root, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise SystemExit(f"the commands of {root} cannot be measured by this tree: {why}")
    reported: dict[str, Any] = json.loads(done.stdout)
    return reported


def _refuse_other_versions(root: Path, theirs: Mapping[str, str], ours: Mapping[str, str]) -> None:
    """kubeadm has this tree's, and both sides have the same."""
    other = [
        f"{name} {version} (here {ours[name]})"
        for name, version in theirs.items()
        if ours.get(name, version) != version
    ]
    if other:
        raise SystemExit(
            f"{root} has other versions, so that kubeadm is no yardstick: {', '.join(other)}; use its own bench"
        )
