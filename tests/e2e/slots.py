"""What scenarios on the slots of one node share: which standbys are active, and who acts."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import TestCluster

SYSTEM = ("-n", "kube-system")
API = "ds/kube-apiserver"
_AGENT_LOG = "/var/log/pods/kube-system_node-agent-standby-*/node-agent/*.log"
REST_SECONDS = 30.0
OLD_HEARTBEAT = 20.0
"""Seconds. Whoever holds a node's lock writes one every 5, and has 10 to end when it is told to. Then whoever waits for
the lock has it at once, and writes one."""


def standbys(cluster: TestCluster) -> list[str]:
    """The components whose standby is active."""
    return [name.rsplit("-", 1)[0] for name in cluster.static_pods("n1") if name.startswith("standby-")]


def settled(cluster: TestCluster) -> bool:
    return not standbys(cluster) and bool(cluster.status()["healthy"])


def has_rested(cluster: TestCluster) -> None:
    """Everything was settled at each look of some time."""
    since = time.monotonic()

    def long_enough() -> bool:
        nonlocal since
        if not settled(cluster):
            since = time.monotonic()
        return time.monotonic() - since >= REST_SECONDS

    cluster.wait(f"all has been settled for {REST_SECONDS:.0f} s", long_enough, seconds=180, pause=5)


def hosted_on(node: str) -> tuple[str, ...]:
    """What kubectl is told to find the hosted API server of a node."""
    return ("-l", "k8s-app=kube-apiserver,autarky.dev/slot=hosted", f"--field-selector=spec.nodeName={node}")


def rounds(cluster: TestCluster, controller: str = "slots") -> float:
    """How many reconciles of the controller have ended, in the agent that acts: each look at the slots is one."""
    counted = f'autarky_reconcile_seconds_count{{controller="{controller}"}}'
    lines = cluster.shell("n1", "curl -s http://127.0.0.1:10301/metrics || true").splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(counted)), 0.0)


def turns_of_the_parked_agent(cluster: TestCluster) -> frozenset[str]:
    """Each time it began to act, by what it said then. Not a number: the log of a parked agent that was replaced
    goes with its pod, and a hosted agent's goes with that."""
    return frozenset(cluster.shell("n1", f"cat {_AGENT_LOG} | grep 'acts on the node now' || true").splitlines())


def parked_agent_is_a_copy(cluster: TestCluster, node: str = "n1") -> bool:
    """One stands alone, of a checkpoint; before that the next replaces it at any moment, and its log goes with it."""
    manifests = "/etc/kubernetes/manifests/node-agent-standby-*.json"
    found = cluster.shell(node, f'cat {manifests} | grep -c \'"name": "node-agent-standby\' || true').strip()
    return found == "1" and "autarky.dev/revision" in cluster.shell(node, f"cat {manifests}")


@contextmanager
def always_an_agent_acts(cluster: TestCluster, node: str = "n1", *, least: int = 30) -> Iterator[None]:
    """In each second of the block, and so often at least: the node's lock has a holder that lives, as its heartbeats
    say. (They are by the kernel's monotonic clock, which hosts of a lab share with this machine.)"""
    lock = Path(f"/proc/{cluster.host_process(node)}/root/run/autarky/node-agent.lock")
    ages: list[float] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(1):
            ages.append(abs(time.monotonic() - float(lock.read_text().split()[0])))

    thread = threading.Thread(target=look, name="heartbeats")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert len(ages) >= least, f"nobody looked but {len(ages)} times"
    assert max(ages) <= OLD_HEARTBEAT, f"no agent of {node} has acted for {max(ages):.0f} s"


def happened(cluster: TestCluster, reason: str) -> str:
    """What the agents told by events of that reason on their Nodes."""
    only = f"--field-selector=involvedObject.kind=Node,reason={reason}"
    return cluster.kubectl("get", "events", only, "-o", "jsonpath={.items[*].message}")


def events_by_name(cluster: TestCluster, reason: str) -> dict[str, str]:
    """The same by the names of the events, each of which is made once: so one that is new can be told."""
    only = f"--field-selector=involvedObject.kind=Node,reason={reason}"
    found = json.loads(cluster.kubectl("get", "events", only, "-o", "json"))["items"]
    return {event["metadata"]["name"]: event["message"] for event in found}


def run_nowhere(cluster: TestCluster, workload: str) -> None:
    """Its pods may run on no node any more."""
    selector = {"spec": {"template": {"spec": {"nodeSelector": {"no-node": "has-this"}}}}}
    cluster.kubectl(*SYSTEM, "patch", workload, "--type=merge", "-p", json.dumps(selector))


def run_anywhere(cluster: TestCluster, workload: str) -> None:
    """Takes `run_nowhere` back, for a workload that has no other selector."""
    removal = [{"op": "remove", "path": "/spec/template/spec/nodeSelector"}]
    cluster.kubectl(*SYSTEM, "patch", workload, "--type=json", "-p", json.dumps(removal))
