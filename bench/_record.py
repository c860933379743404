"""A run as it is kept: what was measured, when, of which tree and where. JSON, for docs/measurements.md and for whoever
compares two runs."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from _figures import MEMORY, Figure, Rounds
from _tree import ROOT, Tree

from autarky import __version__
from autarky.payload import Release

ROUNDS = 3
"""How many are made, unless it is said otherwise; a run of fewer is not published."""
RECORDED = ROOT / "bench" / "measurements.json"
"""The run that docs/measurements.md tells of. There is none before the first was recorded."""
RECORDED_APART = ROOT / "bench" / "apart"
"""The runs of benchmarks that are run by themselves, NAME.json each."""


@dataclass(frozen=True)
class Machine:
    """memory: bytes."""

    cores: int
    memory: int
    kernel: str
    cgroup: int


@dataclass(frozen=True)
class Trees:
    """own: the one whose benchmarks run. product: the one whose commands they measure, where that is another."""

    own: Tree
    product: Tree | None = None

    def changes(self, now: Trees) -> list[str]:
        """What is different now, a sentence each."""
        pairs = [("the tree", self.own, now.own), ("the product's tree", self.product, now.product)]
        return [f"{what} has changed: it was {was}; it is {has}" for what, was, has in pairs if was != has]


@dataclass(frozen=True)
class Record:
    """date: when it began, UTC. began, ended: the trees as they were then; ended is None while it runs, and stays
    so where it was stopped or failed."""

    date: str
    began: Trees
    machine: Machine
    versions: Mapping[str, str]
    figures: tuple[Figure, ...] = ()
    ended: Trees | None = None

    def extended(self, figures: Iterable[Figure]) -> Record:
        return replace(self, figures=(*self.figures, *figures))

    def at_end(self, trees: Trees) -> Record:
        return replace(self, ended=trees)

    @property
    def changes(self) -> list[str]:
        """What became different of the trees while they were measured, a sentence each."""
        return [] if self.ended is None else self.began.changes(self.ended)

    def of(self, benchmark: str) -> list[Figure]:
        return [figure for figure in self.figures if figure.benchmark == benchmark]

    def lacking(self, benchmarks: Iterable[str]) -> list[str]:
        """Those of the benchmarks that have measured nothing."""
        return [name for name in benchmarks if not self.of(name)]

    def rounds(self, benchmark: str) -> int:
        """Those that every one of its figures was measured in."""
        return min((len(figure.ours) for figure in self.of(benchmark)), default=0)


# --- as JSON --------------------------------------------------------------------------------------


def written(record: Record) -> str:
    return json.dumps(asdict(record), indent=1, ensure_ascii=False) + "\n"


def read(text: str) -> Record:
    """What `written` has written. ValueError, KeyError or TypeError for anything else."""
    document: dict[str, Any] = json.loads(text)
    figures = [
        {**figure, **{side: _rounds(figure[side], figure["unit"]) for side in ("ours", "theirs")}}
        for figure in document["figures"]
    ]
    return Record(
        **{
            **document,
            "began": _trees(document["began"]),
            "machine": Machine(**document["machine"]),
            "figures": tuple(Figure(**figure) for figure in figures),
            "ended": None if document["ended"] is None else _trees(document["ended"]),
        }
    )


def _rounds(rounds: list[float | None], unit: str) -> Rounds:
    """Records of before have a memory of 0 where there was no process; none has that."""
    return tuple(None if unit == MEMORY and each == 0 else each for each in rounds)


def _trees(trees: dict[str, Any]) -> Trees:
    return Trees(_tree(trees["own"]), None if trees["product"] is None else _tree(trees["product"]))


def _tree(tree: dict[str, Any]) -> Tree:
    return Tree(tree["commit"], tuple(tree["changed"]), tree["sources"])


def recorded() -> Record | None:
    """The run that docs/measurements.md tells of."""
    return read(RECORDED.read_text()) if RECORDED.exists() else None


def recorded_apart() -> dict[str, Record]:
    """By the name of the benchmark."""
    return {file.stem: read(file.read_text()) for file in sorted(RECORDED_APART.glob("*.json"))}


# --- what is known before the first figure --------------------------------------------------------


def begun(release: Release, trees: Trees) -> Record:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Record(now, trees, _machine(), versions_of(release))


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
