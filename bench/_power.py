"""Power cuts of two clusters in turn, so that whatever else the machine does meanwhile disturbs both alike.

All hosts of a cluster lose their power in one moment and get it back in one: starts that wait for each other's boot
would be on both clocks, and bring the ratio nearer to 1. The clock starts with the power. Two figures:
  /readyz: the API answers "ok" through the first node's address;
  pod runs: a Deployment that is created the moment the API answers has its pod running.
Both are polled five times a second.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _autarky import AutarkyCluster
from _figures import SECONDS, Figure
from _kubeadm import KubeadmCluster
from _rounds import STEADY_SECONDS

from autarky.cli.wiring import Silence
from autarky.lab import Lab
from autarky.model.components import NAME_LABEL, NODE_AGENT, SLOT_LABEL, STANDBY
from autarky.payload import Payload

READY, POD = "power on → /readyz", "power on → a new Deployment's pod runs"
WAIT_SECONDS = 300
PAUSE_SECONDS = 30
"""Before a cut, for which everything of both clusters has been where it belongs: one that still starts would disturb
the other, and come back from another state itself."""
LOOK_SECONDS = 1.0
IMAGE = "registry.k8s.io/e2e-test-images/agnhost:2.63.0"


@dataclass(frozen=True)
class Measured:
    ready: float
    pod: float


@dataclass(frozen=True)
class CutCluster:
    lab: Lab
    hosts: Sequence[str]
    kubectl: Sequence[str]


async def compare(
    benchmark: str,
    payload: Payload,
    rounds: int,
    ours: AutarkyCluster,
    make: Callable[[Lab, Path], Awaitable[KubeadmCluster]],
    wanted: tuple[float | None, float | None],
) -> list[Figure]:
    """`make`: kubeadm's cluster in that lab, with hosts of the same names, its kubeconfig in that directory.
    `wanted`: the highest ratios, for /readyz and for the pod."""
    lab, hosts = Lab.open(f"{ours.name}-kubeadm"), (*ours.control, *ours.workers)
    ours.write()
    ours.up()
    with tempfile.TemporaryDirectory() as directory:
        theirs = await make(lab, Path(directory))
        sides = {"autarky": (Lab.open(ours.name), ours.kubectl(payload)), "kubeadm": (lab, theirs.kubectl)}
        # What kubectl kept of another API, which an earlier run had at the same address, would help one of both.
        clusters = {
            name: CutCluster(at, hosts, [*kubectl, f"--cache-dir={directory}/cache-{name}"])
            for name, (at, kubectl) in sides.items()
        }
        a, k = (await _in_turn(benchmark, clusters, rounds)).values()
    ours.down()
    await lab.down()
    ready, pod = wanted
    return [
        Figure(benchmark, READY, SECONDS, tuple(m.ready for m in a), tuple(m.ready for m in k), ready),
        Figure(benchmark, POD, SECONDS, tuple(m.pod for m in a), tuple(m.pod for m in k), pod),
    ]


async def _in_turn(benchmark: str, clusters: Mapping[str, CutCluster], rounds: int) -> dict[str, list[Measured]]:
    """Each time once both are at rest."""
    await asyncio.sleep(STEADY_SECONDS)
    measured: dict[str, list[Measured]] = {name: [] for name in clusters}
    for number in range(1, rounds + 1):
        for name, cluster in clusters.items():
            await _rest(clusters)
            found = await cut_and_return(cluster, f"after-{number}")
            measured[name].append(found)
            print(f"{benchmark}: {name} {number}: /readyz {found.ready:.1f} s, pod runs {found.pod:.1f} s", flush=True)
    return measured


async def _rest(clusters: Mapping[str, CutCluster]) -> None:
    """Until everything is settled at both ends of a pause."""
    end = time.monotonic() + WAIT_SECONDS
    rested = False
    while not rested:
        while left := _left(clusters):
            if time.monotonic() >= end:
                raise SystemExit(f"not settled within {WAIT_SECONDS} s: {', '.join(left)}")
            await asyncio.sleep(LOOK_SECONDS)
        await asyncio.sleep(PAUSE_SECONDS)
        rested = not _left(clusters)


def _left(clusters: Mapping[str, CutCluster]) -> list[str]:
    return [f"{name}: {what}" for name, cluster in clusters.items() for what in _left_of(cluster)]


def _left_of(cluster: CutCluster) -> list[str]:
    said = _say([*cluster.kubectl, "--request-timeout=2s", "-n", "kube-system", "get", "nodes,pods", "-o", "json"])
    try:
        return out_of_place(json.loads(said)["items"], len(cluster.hosts))
    except ValueError:
        return [said]


def out_of_place(items: Iterable[Mapping[str, Any]], nodes: int) -> list[str]:
    """What is not Ready of the nodes, and of the pods of kube-system, among them etcd and the hosted control plane; and
    which standby of a component is active: that of the node agent is always there."""
    found: dict[str, list[Mapping[str, Any]]] = {"Node": [], "Pod": []}
    for item in items:
        if item["status"].get("phase") != "Succeeded":
            found[item["kind"]].append(item)
    left = [] if len(found["Node"]) == nodes else [f"{len(found['Node'])} of {nodes} nodes"]
    left += [] if found["Pod"] else ["no pods"]
    left += [f"{_name(item)} is not Ready" for each in found.values() for item in each if not _is_ready(item)]
    return left + [f"{_name(pod)} is active" for pod in found["Pod"] if _is_active_standby(pod)]


def _name(item: Mapping[str, Any]) -> str:
    return str(item["metadata"]["name"])


def _is_ready(item: Mapping[str, Any]) -> bool:
    conditions = item["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _is_active_standby(pod: Mapping[str, Any]) -> bool:
    labels = pod["metadata"].get("labels", {})
    return bool(labels.get(SLOT_LABEL) == STANDBY and labels.get(NAME_LABEL) != NODE_AGENT)


async def cut_and_return(cluster: CutCluster, name: str) -> Measured:
    """`name` of the Deployment: one that the cluster has not had."""
    await cluster.lab.cut(*cluster.hosts)
    begin = time.monotonic()
    await cluster.lab.start(*cluster.hosts, progress=Silence())

    def say(*argv: str) -> str:
        return _say([*cluster.kubectl, "--request-timeout=2s", *argv])

    ready = _until("/readyz", begin, lambda: say("get", "--raw", "/readyz") == "ok")
    create = ("create", "deployment", name, f"--image={IMAGE}", "--", "/usr/local/bin/agnhost", "pause")
    # A request that took too long may have been carried out all the same.
    _until("a Deployment is created", begin, lambda: re.search("created|AlreadyExists", say(*create)))
    pod = _until("its pod runs", begin, lambda: "Running" in say("get", "pods", "-l", f"app={name}"))
    return Measured(ready, pod)


def _until(what: str, begin: float, holds: Callable[[], object]) -> float:
    """Seconds from `begin` until the condition holds."""
    while time.monotonic() < begin + WAIT_SECONDS:
        if holds():
            return time.monotonic() - begin
        time.sleep(0.2)
    raise SystemExit(f"not within {WAIT_SECONDS} s: {what}")


def _say(command: Sequence[str]) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout
