"""Power cut of three control nodes and a worker at once: autarky against kubeadm, same binaries, same kind of hosts,
one cluster after the other.

Both clusters are there all the time and their power is cut in turn; `_power.py` says what is measured. All hosts of one
lose their power at once, and get it back at once.

    ./run bench ha_reboot [--rounds 3] [--json FILE] [--product DIR]
"""

from __future__ import annotations

from pathlib import Path

from _autarky import AutarkyCluster
from _figures import Figure
from _kubeadm import KubeadmCluster, kubeadm_ha_cluster
from _power import compare
from _product import Product
from _rounds import main

from autarky.lab import Lab
from autarky.payload import Payload

OURS = AutarkyCluster("bench-ha-reboot", ("n1", "n2", "n3"), ("w1",))
WANTED = (0.65, 1.0)
"""Both are less than kubeadm's since members of etcd begin in turn; before that the pod was later by a half."""


async def run(payload: Payload, product: Product, rounds: int) -> list[Figure]:
    async def theirs(lab: Lab, directory: Path) -> KubeadmCluster:
        return await kubeadm_ha_cluster(payload, lab, directory, OURS.control, OURS.workers)

    return await compare("ha_reboot", payload, rounds, OURS.of(product), theirs, WANTED)


if __name__ == "__main__":
    main(__doc__, [run])
