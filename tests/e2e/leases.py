"""Who leads scheduler and controller-manager: by their leases, and by what the processes say of themselves."""

from __future__ import annotations

import logging
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import pairwise

from direct import asked
from ha import CONTROL, etcd_leader
from harness import COMMAND, TestCluster, environment
from rollouts import CONTROLLER_MANAGER, SCHEDULER, component
from slots import SYSTEM

from autarky.model import ports

_PORTS = {
    CONTROLLER_MANAGER: {"hosted": ports.CONTROLLER_MANAGER_HOSTED, "standby": ports.CONTROLLER_MANAGER_STANDBY},
    SCHEDULER: {"hosted": ports.SCHEDULER_HOSTED, "standby": ports.SCHEDULER_STANDBY},
}
_log = logging.getLogger(__name__)


@dataclass
class Renewals:
    """Of one lease: when it was renewed, by its own stamps (Unix seconds, of the holders' clock), and by whom."""

    stamps: list[float] = field(default_factory=list)
    holders: list[str] = field(default_factory=list)

    def saw(self, line: str) -> None:
        stamp, _, holder = line.strip().partition(" ")
        if stamp and holder:  # a released lease has no holder: nobody leads
            self.stamps.append(datetime.fromisoformat(stamp).timestamp())
            self.holders.append(holder)

    @property
    def longest_gap(self) -> float:
        """Seconds between two renewals, whoever made them: for so long nobody led at most."""
        return max(after - before for before, after in pairwise(self.stamps))


def leader(cluster: TestCluster, workload: str) -> str:
    """The node whose process leads; "" while nobody does. (All of ours name themselves HOST_UUID.)"""
    path = "jsonpath={.spec.holderIdentity}"
    return cluster.kubectl(*SYSTEM, "get", "lease", component(workload), "-o", path).partition("_")[0]


def everything_is_led(cluster: TestCluster) -> None:
    """By one of the three control nodes: etcd, and both components of level 3."""
    cluster.wait("etcd has a leader", lambda: etcd_leader(cluster))
    for workload in (CONTROLLER_MANAGER, SCHEDULER):
        cluster.wait(f"{workload} is led", partial(_is_led, cluster, workload, since=renewed(cluster, workload)))


def _is_led(cluster: TestCluster, workload: str, *, since: str) -> bool:
    """The lease names one who is dead until another one takes it, so it is renewed, too: not as it was at that time."""
    return leader(cluster, workload) in CONTROL and renewed(cluster, workload) not in ("", since)


def renewed(cluster: TestCluster, workload: str) -> str:
    """When the lease was, last."""
    path = "jsonpath={.spec.renewTime}"
    return cluster.kubectl(*SYSTEM, "get", "lease", component(workload), "-o", path, check=False)


def slot_that_leads(cluster: TestCluster, workload: str) -> str:
    """Whose process on the node that the lease names says of itself that it leads: "hosted" or "standby"; "" where
    none does. (The lease tells the node only: both slots of a node name themselves alike.)"""
    node = leader(cluster, workload)
    slots = [slot for slot, port in _PORTS[workload].items() if node and _says_that_it_leads(cluster, node, port)]
    return slots[0] if len(slots) == 1 else ""


def _says_that_it_leads(cluster: TestCluster, node: str, port: int) -> bool:
    """By its own metrics."""
    said = asked(cluster, node, port, "/metrics") or ""
    leads = [line for line in said.splitlines() if line.startswith("leader_election_master_status{")]
    return any(line.endswith(" 1") for line in leads)


@contextmanager
def lease_watched(cluster: TestCluster, workload: str) -> Iterator[Renewals]:
    """Follow the lease during the block. Watched, not polled: each renewal counts."""
    seen, ended = Renewals(), threading.Event()
    shown = "jsonpath={.spec.renewTime} {.spec.holderIdentity}{'\\n'}"
    argv = [*COMMAND, "kubectl", "--cluster", cluster.name, *SYSTEM]
    argv += ["get", "lease", component(workload), "--watch", "-o", shown]

    def follow() -> None:
        """A watch ends with the API server that serves it."""
        while not ended.is_set():
            with subprocess.Popen(
                argv, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            ) as kubectl:
                assert kubectl.stdout is not None
                for line in kubectl.stdout:
                    seen.saw(line)
                    if ended.is_set():
                        kubectl.terminate()

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        cluster.wait("the lease is renewed", lambda: len(seen.stamps) > 2)
        yield seen
        before = len(seen.stamps)
        cluster.wait("the lease is renewed afterwards, too", lambda: len(seen.stamps) > before + 2)
        _log.info("%s: longest time without a renewal %.1f s", workload, seen.longest_gap)
    finally:
        ended.set()  # the next renewal ends it
        thread.join(timeout=60)
