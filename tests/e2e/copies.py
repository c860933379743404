"""What the scenarios of a copy of etcd share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from harness import Ended, TestCluster
from power import Writer

LONGEST_GAP = 120.0
"""Seconds without a write, of a small database: what is documented (docs/etcd.md). A tenth of it is usual."""
_MOST_APART = 10.0
"""Seconds by which clients may have noticed more, or less, than the command says: a write has three, and on a busy
machine the first ones after the pause may fail."""
_AWAY = re.compile(r"it was away for ([0-9.]+) s")
_BOUND = re.compile(r"if the copy is not complete after ([0-9]+) s")


def command(cluster: TestCluster, spec: Mapping[str, Any]) -> list[str]:
    cluster.spec = spec
    return ["etcd", "migrate", "-f", str(cluster.file), "--copy", "--yes", "-o", "plain"]


def said(ended: Ended) -> str:
    return ended.stdout + ended.stderr


@dataclass(frozen=True)
class Pause:
    """Of a copy, in seconds: how long the API was away, and after how long the command would have gone back."""

    away: float
    bound: float

    def __str__(self) -> str:
        return f"the API was away for {self.away:.1f} s, of {self.bound:.0f} s that were announced at most"


def announced_pause(text: str) -> Pause:
    """As a command that copies says it, which keeps to the bound that it has announced."""
    away, bound = _AWAY.findall(text), _BOUND.findall(text)
    assert away, text
    assert bound, text
    pause = Pause(float(away[-1]), float(bound[-1]))
    assert pause.away <= pause.bound, f"longer than announced: {pause}"
    return pause


def gap_of(writer: Writer) -> float:
    """The longest time, in seconds, from a write that was acknowledged to the next one, by when they began."""
    moments = sorted(int(name.rpartition("-")[2]) for name in writer.acknowledged)
    return max(after - before for before, after in pairwise(moments)) / 1e9


def clients_noticed(pause: Pause, writer: Writer) -> None:
    """The pause that the command says it was, and no longer one than is documented."""
    gap = gap_of(writer)
    noticed = f"nothing was acknowledged for {gap:.1f} s: {pause}"
    assert gap < LONGEST_GAP, noticed
    assert abs(gap - pause.away) < _MOST_APART, noticed


def lost(cluster: TestCluster, writer: Writer) -> set[str]:
    """In pages: there are thousands, more than are answered at once in a client's time."""
    listed = cluster.kubectl("get", "configmaps", "-n", "default", "-l", "written=yes", "-o", "name")
    return writer.acknowledged - {name.rpartition("/")[2] for name in listed.split()}
