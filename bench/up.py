"""autarky `up` against kubeadm `init`: same binaries, same images, same kind of host, in turn, in one run.

Both clocks start on a booted host with its binaries in place, containerd running, all images imported and all
certificates issued but the kubelet's. They stop when
  autarky: hosted API server, controller-manager and scheduler, kube-proxy and both CoreDNS pods are Ready;
  kubeadm: kube-proxy and both CoreDNS pods are Ready (flannel is applied the moment `init` returns).
The same poll looks at both, twice a second. Then the memory of all processes is measured, after the same rest. A ratio
of the times of at most 1.0 is wanted.

    ./run bench up [--rounds 3] [--json FILE] [--product DIR]
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from _autarky import AutarkyCluster
from _figures import Figure
from _kubeadm import kubeadm_cluster, refuse_others
from _product import Product
from _ready import HOSTED, until_ready
from _rounds import main
from _up import Measured, in_turn, memory_at_rest

from autarky.lab import Lab
from autarky.payload import Payload

CLUSTER = AutarkyCluster("bench-up")
ADDONS = {"kube-proxy": 1, "kube-dns": 2}
WANTED = 1.0


async def measure_autarky(cluster: AutarkyCluster) -> Measured:
    cluster.prepare()
    wanted = {**dict.fromkeys(HOSTED, 1), **ADDONS}
    ready, returned = await cluster.timed_up(until_ready(cluster.kubeconfig, wanted))
    used = await memory_at_rest(cluster.name, cluster.control)
    cluster.down()
    return Measured(ready, returned, used)


async def measure_kubeadm(payload: Payload) -> Measured:
    lab = Lab.open(f"{CLUSTER.name}-kubeadm")
    with tempfile.TemporaryDirectory() as directory:
        cluster = await kubeadm_cluster(payload, lab, Path(directory))
        await until_ready(Path(directory) / "kubeconfig", ADDONS)
        ready = time.monotonic() - cluster.begin
    await refuse_others(cluster.hosts, cluster.issued)
    used = await memory_at_rest(lab.name, CLUSTER.control)
    await lab.down()
    return Measured(ready, cluster.returned - cluster.begin, used)


async def run(payload: Payload, product: Product, rounds: int) -> list[Figure]:
    ours = CLUSTER.of(product)
    return await in_turn("up", rounds, lambda: measure_autarky(ours), lambda: measure_kubeadm(payload), WANTED)


if __name__ == "__main__":
    main(__doc__, [run])
