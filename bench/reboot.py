"""Power cut of the only node: autarky against kubeadm, same binaries, same kind of host, one after the other.

Both clusters are there all the time and their power is cut in turn; `_power.py` says what is measured.

    ./run bench reboot [--rounds 3]
"""

from __future__ import annotations

from _autarky import AutarkyCluster
from _kubeadm import kubeadm_cluster
from _power import compare
from _rounds import main

from autarky.payload import Payload

OURS = AutarkyCluster("bench-reboot")
WANTED = (1.25, 0.6)


async def run(payload: Payload, rounds: int) -> bool:
    return await compare(payload, rounds, OURS, lambda lab, directory: kubeadm_cluster(payload, lab, directory), WANTED)


if __name__ == "__main__":
    main(__doc__, run, rounds=3)
