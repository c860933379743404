"""Level 0 at rest: the kubelet of a DaemonSet with the host's as its standby, beside the host's kubelet alone.

One cluster of one node in every round, first with `selfHosted: "0-4"`, then moved to `"1-4"` at run time. Each rests
for 75 s; then the processor time that both kubelets, the supervisor and its shell take in 120 s is read from /proc, and
that of all processes on the node from its cgroup, and after that the memory of all processes.

    ./run bench level_0 [--rounds 3] [--json FILE] [--product DIR]
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from _autarky import AutarkyCluster
from _figures import SECONDS, Figure
from _kubeadm import lab_host
from _memory import memory, memory_figures
from _product import Product
from _rounds import STEADY_SECONDS, main

from autarky.payload import Payload
from autarky.ports import Host

CLUSTER = AutarkyCluster("bench-level-0", spec={"selfHosted": "0-4"})
LOOK_SECONDS = 120
WAIT_SECONDS = 120
# Ticks of all processes with these names, that of children which have ended included: the supervisor's looks are such.
_TICKS = r"""
for name in kubelet kubelet-hosted busybox; do
  for pid in $(pgrep -x "$name"); do sed 's/.*) //' "/proc/$pid/stat"; done
done 2>/dev/null | awk '{ ticks += $12 + $13 + $14 + $15 } END { print ticks }'
getconf CLK_TCK
"""
# Nanoseconds, of the node's cgroup and all below it.
_ALL = """
cat /sys/fs/cgroup/cpuacct/cpuacct.usage 2>/dev/null || awk '/^usage_usec/ { print $2 * 1000 }' /sys/fs/cgroup/cpu.stat
"""


@dataclass(frozen=True)
class AtRest:
    """Seconds of a processor, and MiB by row."""

    kubelets: float
    all: float
    memory: dict[str, float]


async def level_0(payload: Payload, product: Product, rounds: int) -> Sequence[Figure]:
    cluster = CLUSTER.of(product)
    both, alone = list[AtRest](), list[AtRest]()
    for _ in range(rounds):
        cluster.write()
        cluster.up()
        host, kubectl = lab_host(cluster.name, "n1"), cluster.kubectl(payload)
        await _until(kubectl, "InForce")
        both.append(await _at_rest(host))
        spec = json.dumps({"spec": {"selfHosted": "1-4"}})
        subprocess.run([*kubectl, "patch", "controlplane", "cluster", "--type=merge", "-p", spec], check=True)
        await _until(kubectl, "")
        alone.append(await _at_rest(host))
        cluster.down()
    figures = []
    for what, of in (("kubelets", lambda one: one.kubelets), ("all processes", lambda one: one.all)):
        name = f"processor time of {what} in {LOOK_SECONDS} s"
        figures.append(Figure("level_0", name, SECONDS, tuple(map(of, both)), tuple(map(of, alone))))
    return [*figures, *memory_figures("level_0", [one.memory for one in both], [one.memory for one in alone])]


async def _at_rest(host: Host) -> AtRest:
    await asyncio.sleep(STEADY_SECONDS)
    kubelets, everything = await _processor(host)
    await asyncio.sleep(LOOK_SECONDS)
    kubelets_after, all_after = await _processor(host)
    return AtRest(kubelets_after - kubelets, all_after - everything, await memory([host]))


async def _processor(host: Host) -> tuple[float, float]:
    """Seconds so far, of kubelets and of all processes."""
    everything = int((await host.run(["sh", "-c", _ALL])).text) / 1e9
    ticks, a_second = (await host.run(["sh", "-c", _TICKS])).text.split()
    return int(ticks) / int(a_second), everything


async def _until(kubectl: Sequence[str], words: str) -> None:
    """The node reports of its hosted kubelet what has these words in it; nothing where they are empty."""
    path = r"jsonpath={.metadata.annotations.autarky\.dev/kubelet-hosted}"
    argv = [*kubectl, "get", "node", "n1", "-o", path]
    end = time.monotonic() + WAIT_SECONDS
    while True:
        said = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
        if words in said and bool(words) is bool(said):
            return
        if time.monotonic() > end:
            raise SystemExit(f"the hosted kubelet does not come to what is measured: {said}")
        await asyncio.sleep(1)


if __name__ == "__main__":
    main(__doc__, [level_0], beside="host's alone")
