"""Clusters that are brought up in turn: how long that takes, and the memory of what is there then.

Both clocks start on booted hosts with their binaries in place, containerd running, all images imported and all
certificates issued but those of kubelets (`_kubeadm.py` says how). autarky has its configuration files in place as
well; kubeadm writes its own, which takes it milliseconds.

Memory is measured once each cluster has rested for as long (`_memory.py` says what is counted).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from _figures import SECONDS, Figure
from _kubeadm import lab_host
from _memory import memory, memory_figures
from _rounds import STEADY_SECONDS

READY, RETURNED = "everything Ready", "the last command returned"


@dataclass(frozen=True)
class Measured:
    """Seconds until everything was Ready, and until the last command returned; MiB by row."""

    ready: float
    returned: float
    memory: Mapping[str, float]


async def memory_at_rest(lab: str, hosts: Sequence[str]) -> dict[str, float]:
    """Of these hosts of the lab together, once they have rested."""
    await asyncio.sleep(STEADY_SECONDS)
    return await memory([lab_host(lab, name) for name in hosts])


async def in_turn(
    benchmark: str,
    rounds: int,
    ours: Callable[[], Awaitable[Measured]],
    theirs: Callable[[], Awaitable[Measured]],
    wanted: float,
) -> list[Figure]:
    """Each makes its cluster and takes it away. `wanted`: the highest ratio, for everything Ready."""
    a: list[Measured] = []
    k: list[Measured] = []
    for number in range(1, rounds + 1):
        for name, measure, measured in (("autarky", ours, a), ("kubeadm", theirs, k)):
            measured.append(await measure())
            print(f"{benchmark}: {name} {number}: {_told(measured[-1])}", flush=True)
    return [
        Figure(benchmark, READY, SECONDS, tuple(m.ready for m in a), tuple(m.ready for m in k), wanted),
        Figure(benchmark, RETURNED, SECONDS, tuple(m.returned for m in a), tuple(m.returned for m in k)),
        *memory_figures(benchmark, [m.memory for m in a], [m.memory for m in k]),
    ]


def _told(found: Measured) -> str:
    used = sum(found.memory.values())
    return f"{found.ready:.1f} s (the last command returned at {found.returned:.1f} s), {used:.0f} MiB"
