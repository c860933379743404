"""Quorum lost: two of three control nodes are gone, and never come back. autarky's command beside the same by hand.

Both clusters are made from scratch in every round, in turn, with the same binaries on the same kind of hosts. The
power of two hosts is cut and stays off; the clock starts when somebody begins to do something about it:
  autarky: `autarky etcd recover-quorum`, its wait for an etcd that comes back by itself included,
  kubeadm: what etcd's documentation says (`_by_hand.py`), each command typed the moment the one before has ended.
Two figures: until the API of the node that is left takes a write, polled five times a second, at most 60 s of
autarky's; and until the last command has returned. Nobody reads, thinks or types on kubeadm's clock.

    ./run bench quorum [--rounds 3] [--json FILE] [--product DIR]
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from _autarky import AutarkyCluster
from _by_hand import recover_by_hand
from _figures import SECONDS, Figure
from _kubeadm import kubeadm_ha_cluster
from _product import Product
from _ready import HOSTED, until_ready
from _rounds import main

from autarky.lab import Lab
from autarky.payload import Payload

CONTROL = ("n1", "n2", "n3")
LEFT, LOST = CONTROL[0], CONTROL[1:]
"""kubeadm's endpoint is the first one's own address."""
OURS = AutarkyCluster("bench-quorum", CONTROL)
PODS = dict.fromkeys(HOSTED, len(CONTROL))
REST_SECONDS = 30
"""Before the hosts are lost, and after that: leases and elections have run out."""
WAIT_SECONDS = 300
MOST_SECONDS = 60.0
WRITES, RETURNED = "command → the API takes writes", "command → the last one returned"


@dataclass(frozen=True)
class Measured:
    writes: float
    returned: float


async def measure_autarky(payload: Payload, cluster: AutarkyCluster) -> Measured:
    cluster.write()
    cluster.up()
    lab = Lab.open(cluster.name)

    async def recover() -> None:
        await asyncio.to_thread(cluster.timed, "etcd", "recover-quorum", "--yes")

    with tempfile.TemporaryDirectory() as directory:
        kubectl = [*cluster.kubectl(payload), f"--cache-dir={directory}"]
        found = await _lost_and_recovered(lab, cluster.kubeconfig, kubectl, recover)
    cluster.down()
    return found


async def measure_kubeadm(payload: Payload) -> Measured:
    lab = Lab.open(f"{OURS.name}-kubeadm")
    with tempfile.TemporaryDirectory() as directory:
        theirs = await kubeadm_ha_cluster(payload, lab, Path(directory), CONTROL, ())
        host = theirs.hosts[LEFT]
        kubectl = [*theirs.kubectl, f"--cache-dir={directory}/cache"]
        found = await _lost_and_recovered(
            lab, Path(directory, "kubeconfig"), kubectl, lambda: recover_by_hand(host, LEFT, host.address)
        )
    await lab.down()
    return found


async def _lost_and_recovered(
    lab: Lab, kubeconfig: Path, kubectl: Sequence[str], recover: Callable[[], Awaitable[None]]
) -> Measured:
    await until_ready(kubeconfig, PODS)
    await asyncio.sleep(REST_SECONDS)
    await lab.cut(*LOST)
    await asyncio.sleep(REST_SECONDS)
    if _takes_a_write(kubectl, "too-early"):
        raise SystemExit(f"{lab.name} takes writes without a quorum")
    begin = time.monotonic()

    async def seconds_until(end: Awaitable[object]) -> float:
        await end
        return time.monotonic() - begin

    writes = asyncio.to_thread(_until_it_takes_writes, kubectl, begin)
    return Measured(*await asyncio.gather(seconds_until(writes), seconds_until(recover())))


def _until_it_takes_writes(kubectl: Sequence[str], begin: float) -> None:
    while time.monotonic() < begin + WAIT_SECONDS:
        if _takes_a_write(kubectl, "recovered"):
            return
        time.sleep(0.2)
    raise SystemExit(f"the API takes no writes within {WAIT_SECONDS} s")


def _takes_a_write(kubectl: Sequence[str], name: str) -> bool:
    """A request that took too long may have been carried out all the same."""
    argv = [*kubectl, "--request-timeout=1s", "create", "configmap", name]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return re.search("created|AlreadyExists", done.stdout) is not None


async def run(payload: Payload, product: Product, rounds: int) -> list[Figure]:
    ours = OURS.of(product)
    sides: dict[str, Callable[[], Awaitable[Measured]]] = {
        "autarky": lambda: measure_autarky(payload, ours),
        "kubeadm": lambda: measure_kubeadm(payload),
    }
    measured: dict[str, list[Measured]] = {name: [] for name in sides}
    for number in range(1, rounds + 1):
        for name, measure in sides.items():
            found = await measure()
            measured[name].append(found)
            print(f"quorum: {name} {number}: {found.writes:.1f} s, returned at {found.returned:.1f} s", flush=True)
    return figures(measured["autarky"], measured["kubeadm"])


def figures(ours: Sequence[Measured], theirs: Sequence[Measured]) -> list[Figure]:
    writes = tuple(m.writes for m in ours), tuple(m.writes for m in theirs)
    returned = tuple(m.returned for m in ours), tuple(m.returned for m in theirs)
    return [
        Figure("quorum", WRITES, SECONDS, *writes, most=MOST_SECONDS),
        Figure("quorum", RETURNED, SECONDS, *returned),
    ]


if __name__ == "__main__":
    main(__doc__, [run])
