"""Power cut of three control nodes and a worker at once: autarky against kubeadm, same binaries, same kind of hosts,
one cluster after the other.

Both clusters are there all the time and their power is cut in turn; `_power.py` says what is measured. The hosts are
started one right after the other, in the order of their names.

    ./run bench ha_reboot [--rounds 3]
"""

from __future__ import annotations

from pathlib import Path

from _autarky import AutarkyCluster
from _kubeadm import KubeadmCluster, kubeadm_ha_cluster
from _power import compare
from _rounds import main

from autarky.lab import Lab
from autarky.payload import Payload

OURS = AutarkyCluster("bench-ha-reboot", ("n1", "n2", "n3"), ("w1",))


async def run(payload: Payload, rounds: int) -> bool:
    async def theirs(lab: Lab, directory: Path) -> KubeadmCluster:
        return await kubeadm_ha_cluster(payload, lab, directory, OURS.control, OURS.workers)

    return await compare(payload, rounds, OURS, theirs)


if __name__ == "__main__":
    main(__doc__, run, rounds=3)
