"""Three control nodes and a worker: autarky `up` against kubeadm, same binaries, same images, same kind of hosts, in
turn, in one run.

kubeadm does what its documentation says: `init`, then two `join --control-plane` and one worker's `join`, one after
another. Both clocks start on booted hosts with their binaries in place, containerd running, all images imported and all
certificates issued but those of kubelets: kubeadm's CAs were copied to its other control nodes. They stop when
  autarky: hosted API servers, controller-managers and schedulers of all three nodes, kube-proxy on all four and both
           CoreDNS pods are Ready;
  kubeadm: API servers, controller-managers and schedulers of all three, kube-proxy on all four and both CoreDNS pods
           are Ready (flannel is applied the moment `init` returns);
and etcd says on all three that it is ready. Itself, not its pods in the API: a kubelet that began before there was an
API shows its static pods there only after its next look, up to 90 s later. The same poll looks at both, twice a second.
Then the memory of all processes of all four hosts is measured, after the same rest. A ratio of the times of at most 0.6
is wanted.

    ./run bench ha_up [--rounds 3] [--json FILE] [--product DIR]
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from _autarky import AutarkyCluster
from _figures import Figure
from _kubeadm import kubeadm_ha_cluster, lab_host, refuse_others
from _product import Product
from _ready import HOSTED, until_ready
from _rounds import main
from _up import Measured, in_turn, memory_at_rest

from autarky.kube.kubeconfig import read_kubeconfig
from autarky.lab import Lab
from autarky.payload import Payload

CONTROL, WORKERS = ("n1", "n2", "n3"), ("w1",)
CLUSTER = AutarkyCluster("bench-ha", CONTROL, WORKERS)
WANTED = 0.6
PODS = {**dict.fromkeys(HOSTED, len(CONTROL)), "kube-proxy": len(CONTROL) + len(WORKERS), "kube-dns": 2}


async def measure_autarky(cluster: AutarkyCluster) -> Measured:
    cluster.prepare()
    ready, returned = await cluster.timed_up(all_ready(cluster.kubeconfig, cluster.name))
    assert read_kubeconfig(cluster.kubeconfig).others, "a kubeconfig of three control nodes has three servers"
    used = await memory_at_rest(cluster.name, (*CONTROL, *WORKERS))
    cluster.down()
    return Measured(ready, returned, used)


async def measure_kubeadm(payload: Payload) -> Measured:
    lab = Lab.open(f"{CLUSTER.name}-kubeadm")
    with tempfile.TemporaryDirectory() as directory:
        cluster = await kubeadm_ha_cluster(payload, lab, Path(directory), CONTROL, WORKERS)
        await all_ready(Path(directory) / "kubeconfig", lab.name)
        ready = time.monotonic() - cluster.begin
    await refuse_others(cluster.hosts, cluster.issued)
    used = await memory_at_rest(lab.name, (*CONTROL, *WORKERS))
    await lab.down()
    return Measured(ready, cluster.returned - cluster.begin, used)


async def all_ready(kubeconfig: Path, lab: str) -> None:
    await until_ready(kubeconfig, PODS, [lab_host(lab, name) for name in CONTROL])


async def run(payload: Payload, product: Product, rounds: int) -> list[Figure]:
    ours = CLUSTER.of(product)
    return await in_turn("ha_up", rounds, lambda: measure_autarky(ours), lambda: measure_kubeadm(payload), WANTED)


if __name__ == "__main__":
    main(__doc__, [run])
