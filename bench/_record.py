"""A run as it is kept: what was measured, when, of which tree and where. JSON, for docs/measurements.md and for whoever
compares two runs."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from _figures import Figure

from autarky import __version__
from autarky.payload import Release

ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "bench" / "measurements.json"
"""The run that docs/measurements.md tells of. There is none before the first was recorded."""


@dataclass(frozen=True)
class Machine:
    """memory: bytes."""

    cores: int
    memory: int
    kernel: str
    cgroup: int


@dataclass(frozen=True)
class Record:
    """date: when it began, UTC. commit: empty where that is not known. dirty: the tree had changes that are not in the
    commit."""

    date: str
    commit: str
    dirty: bool
    machine: Machine
    versions: Mapping[str, str]
    figures: tuple[Figure, ...] = ()

    def extended(self, figures: Iterable[Figure]) -> Record:
        return replace(self, figures=(*self.figures, *figures))

    def of(self, benchmark: str) -> list[Figure]:
        return [figure for figure in self.figures if figure.benchmark == benchmark]

    def lacking(self, benchmarks: Iterable[str]) -> list[str]:
        """Those of the benchmarks that have measured nothing."""
        return [name for name in benchmarks if not self.of(name)]


# --- as JSON --------------------------------------------------------------------------------------


def written(record: Record) -> str:
    return json.dumps(asdict(record), indent=1, ensure_ascii=False) + "\n"


def read(text: str) -> Record:
    """What `written` has written. ValueError, KeyError or TypeError for anything else."""
    document: dict[str, Any] = json.loads(text)
    figures = [
        {**figure, "ours": tuple(figure["ours"]), "theirs": tuple(figure["theirs"])} for figure in document["figures"]
    ]
    return Record(
        **{
            **document,
            "machine": Machine(**document["machine"]),
            "figures": tuple(Figure(**figure) for figure in figures),
        }
    )


def recorded() -> Record | None:
    """The run that docs/measurements.md tells of."""
    return read(RECORDED.read_text()) if RECORDED.exists() else None


# --- what is known before the first figure --------------------------------------------------------


def begun(release: Release) -> Record:
    commit, dirty = _tree()
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Record(now, commit, dirty, _machine(), versions_of(release))


def versions_of(release: Release) -> dict[str, str]:
    haproxy = release.image("haproxy").reference.rpartition(":")[2]
    parts = {component.name: component.version for component in release.components}
    return {"autarky": __version__, **parts, "haproxy": haproxy}


def memory_total(meminfo: str) -> int:
    """Bytes, of what /proc/meminfo says."""
    found = re.search(r"^MemTotal: +(\d+) kB$", meminfo, re.MULTILINE)
    if found is None:
        raise ValueError("/proc/meminfo says nothing of MemTotal")
    return int(found[1]) * 1024


def _machine() -> Machine:
    return Machine(
        cores=len(os.sched_getaffinity(0)),
        memory=memory_total(Path("/proc/meminfo").read_text()),
        kernel=platform.release(),
        cgroup=2 if Path("/sys/fs/cgroup/cgroup.controllers").exists() else 1,
    )


def _tree() -> tuple[str, bool]:
    """The commit, and whether files that it has were changed since."""
    commit = _git("rev-parse", "HEAD")
    return commit, bool(commit and _git("status", "--porcelain", "--untracked-files=no"))


def _git(*arguments: str) -> str:
    """What git says; nothing where this is no checkout."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
