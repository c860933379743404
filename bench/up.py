"""autarky `up` against kubeadm `init`: same binaries, same images, same kind of host, in turn, in one run.

Both clocks start on a booted host with its binaries in place, containerd running and all images imported.
They stop when
  autarky: hosted API server, controller-manager and scheduler, kube-proxy and both CoreDNS pods are Ready;
  kubeadm: kube-proxy and both CoreDNS pods are Ready (flannel is applied the moment `init` returns).
The same poll looks at both, twice a second. Prints the ratio, and the memory of the control plane.

    ./run bench up [--rounds 3]
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from _autarky import AutarkyCluster
from _kubeadm import kubeadm_cluster, lab_host
from _ready import HOSTED, until_ready
from _rounds import main, report

from autarky.lab import Lab
from autarky.payload import Payload
from autarky.ports import Host

CLUSTER = AutarkyCluster("bench-up")
PROCESSES = (*HOSTED, "etcd", "haproxy", "kubelet", "kube-proxy", "containerd", "flanneld", "coredns")
ADDONS = {"kube-proxy": 1, "kube-dns": 2}
WANTED = 1.0


@dataclass(frozen=True)
class Measured:
    """Seconds until everything was Ready, and until the command returned; MB by process."""

    ready: float
    returned: float
    memory: dict[str, float]


async def measure_autarky() -> Measured:
    CLUSTER.prepare()
    wanted = {**dict.fromkeys(HOSTED, 1), **ADDONS}
    ready, returned = await CLUSTER.timed_up(until_ready(CLUSTER.kubeconfig, wanted))
    used = await memory(lab_host(CLUSTER.name))
    CLUSTER.down()
    return Measured(ready, returned, used)


async def measure_kubeadm(payload: Payload) -> Measured:
    lab = Lab.open(f"{CLUSTER.name}-kubeadm")
    with tempfile.TemporaryDirectory() as directory:
        cluster = await kubeadm_cluster(payload, lab, Path(directory))
        await until_ready(Path(directory) / "kubeconfig", ADDONS)
        ready = time.monotonic() - cluster.begin
    used = await memory(cluster.host)
    await lab.down()
    return Measured(ready, cluster.returned - cluster.begin, used)


async def memory(host: Host) -> dict[str, float]:
    """Resident memory by process name, in MB."""
    lines = (await host.run(["ps", "-eo", "rss=,comm="])).text.splitlines()
    total: dict[str, float] = {}
    for line in lines:
        rss, name = line.split(None, 1)
        for known in PROCESSES:
            if known.startswith(name[:15]) or name == known:
                total[known] = total.get(known, 0) + int(rss) / 1024
    return total


async def run(payload: Payload, rounds: int) -> bool:
    ours, theirs = [], []
    for number in range(1, rounds + 1):
        ours.append(await measure_autarky())
        theirs.append(await measure_kubeadm(payload))
        print(
            f"round {number}: autarky {ours[-1].ready:.1f} s (up returned at {ours[-1].returned:.1f} s), "
            f"kubeadm {theirs[-1].ready:.1f} s (init returned at {theirs[-1].returned:.1f} s)",
            flush=True,
        )
    kept = report("everything Ready", [m.ready for m in ours], [m.ready for m in theirs], WANTED)
    print_memory(ours[-1].memory, theirs[-1].memory)
    return kept


def print_memory(ours: dict[str, float], theirs: dict[str, float]) -> None:
    print(f"\n{'resident memory, MB':28}{'autarky':>10}{'kubeadm':>10}")
    for name in sorted({*ours, *theirs}):
        print(f"{name:28}{ours.get(name, 0):>10.0f}{theirs.get(name, 0):>10.0f}")
    print(f"{'together':28}{sum(ours.values()):>10.0f}{sum(theirs.values()):>10.0f}")


if __name__ == "__main__":
    main(__doc__, run)
