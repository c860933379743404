"""Three control nodes and a worker: autarky `up` against kubeadm, same binaries, same images, same kind of hosts, in
turn, in one run.

kubeadm does what its documentation says: `init`, then two `join --control-plane` and one worker's `join`, one after
another. Both clocks start on booted hosts with their binaries in place, containerd running and all images imported.
They stop when
  autarky: hosted API servers, controller-managers and schedulers of all three nodes, kube-proxy on all four and both
           CoreDNS pods are Ready;
  kubeadm: API servers, controller-managers and schedulers of all three, kube-proxy on all four and both CoreDNS pods
           are Ready (flannel is applied the moment `init` returns);
and etcd says on all three that it is ready. Itself, not its pods in the API: a kubelet that began before there was an
API shows its static pods there only after its next look, up to 90 s later. The same poll looks at both, twice a second.
Prints the ratio; at most 0.6 is wanted.

    ./run bench ha_up [--rounds 3]
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from _autarky import AutarkyCluster
from _kubeadm import kubeadm_ha_cluster, lab_host
from _ready import HOSTED, until_ready
from _rounds import main, report

from autarky.kube.kubeconfig import read_kubeconfig
from autarky.lab import Lab
from autarky.payload import Payload

CONTROL, WORKERS = ("n1", "n2", "n3"), ("w1",)
CLUSTER = AutarkyCluster("bench-ha", CONTROL, WORKERS)
WANTED = 0.6
PODS = {**dict.fromkeys(HOSTED, len(CONTROL)), "kube-proxy": len(CONTROL) + len(WORKERS), "kube-dns": 2}


@dataclass(frozen=True)
class Measured:
    """Seconds until everything was Ready, and until the last command returned."""

    ready: float
    returned: float


async def measure_autarky() -> Measured:
    CLUSTER.prepare()
    ready, returned = await CLUSTER.timed_up(all_ready(CLUSTER.kubeconfig, CLUSTER.name))
    assert read_kubeconfig(CLUSTER.kubeconfig).others, "a kubeconfig of three control nodes has three servers"
    CLUSTER.down()
    return Measured(ready, returned)


async def measure_kubeadm(payload: Payload) -> Measured:
    lab = Lab.open(f"{CLUSTER.name}-kubeadm")
    with tempfile.TemporaryDirectory() as directory:
        cluster = await kubeadm_ha_cluster(payload, lab, Path(directory), CONTROL, WORKERS)
        await all_ready(Path(directory) / "kubeconfig", lab.name)
        ready = time.monotonic() - cluster.begin
    await lab.down()
    return Measured(ready, cluster.returned - cluster.begin)


async def all_ready(kubeconfig: Path, lab: str) -> None:
    await until_ready(kubeconfig, PODS, [lab_host(lab, name) for name in CONTROL])


async def run(payload: Payload, rounds: int) -> bool:
    ours, theirs = [], []
    for number in range(1, rounds + 1):
        ours.append(await measure_autarky())
        print(f"autarky {number}: {ours[-1].ready:.1f} s (up returned at {ours[-1].returned:.1f} s)", flush=True)
        theirs.append(await measure_kubeadm(payload))
        said = f"{theirs[-1].ready:.1f} s (the last join returned at {theirs[-1].returned:.1f} s)"
        print(f"kubeadm {number}: {said}", flush=True)
    return report("everything Ready", [m.ready for m in ours], [m.ready for m in theirs], WANTED)


if __name__ == "__main__":
    main(__doc__, run, rounds=3)
