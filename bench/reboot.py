"""Power cut of the only node: autarky against kubeadm, same binaries, same kind of host, one after the other.

Both clusters are there all the time and their power is cut in turn; `_power.py` says what is measured.

    ./run bench reboot [--rounds 3] [--json FILE] [--product DIR]
"""

from __future__ import annotations

from pathlib import Path

from _autarky import AutarkyCluster
from _figures import Figure
from _kubeadm import KubeadmCluster, kubeadm_cluster
from _power import compare
from _product import Product
from _rounds import main

from autarky.lab import Lab
from autarky.payload import Payload

OURS = AutarkyCluster("bench-reboot")
WANTED = (1.25, 0.6)


async def run(payload: Payload, product: Product, rounds: int) -> list[Figure]:
    async def theirs(lab: Lab, directory: Path) -> KubeadmCluster:
        return await kubeadm_cluster(payload, lab, directory)

    return await compare("reboot", payload, rounds, OURS.of(product), theirs, WANTED)


if __name__ == "__main__":
    main(__doc__, [run])
