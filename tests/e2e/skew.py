"""The version skew policy of Kubernetes, looked at from outside once a second: by the images of containers that run, by
what kubelets say, and by the standbys on the disks, which may run at any moment. It shares no rule with the product
(`watching`).
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from harness import TestCluster
from watching import BEHIND, SERVERS, WITH_STANDBY, Looks, Minors, component_and_minor, silences, too_long

from autarky.errors import AutarkyError
from autarky.kube import KubeClient

__all__ = ["SERVERS", "skew_is_kept"]

LONGEST_GAP = 10.0
"""Seconds between two looks. One a second, which takes longer while all processors are busy, and is given up after 5 s:
so one of them may have no answer, and two in a row may not."""
LOOK_SECONDS = 5.0


@contextmanager
def skew_is_kept(
    cluster: TestCluster, *, least: int = 20, gap: float = LONGEST_GAP, without: Collection[str] = ()
) -> Iterator[Looks]:
    """In each second of the block in which the API answers; at least so often, and never with more than LONGEST_GAP
    between two looks. gap: the same where a cut was announced. without: nodes that are off, of which the API says what
    has run. By one client that stays connected: a kubectl for each look would take a processor from what is watched."""
    looks, over = Looks(began=time.time()), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_watch(cluster, looks, over, without)), name="skew")
    thread.start()
    try:
        yield looks
    finally:
        over.set()
        thread.join()
    assert looks.broken == [], looks.broken[:5]
    assert looks.number >= least, looks
    announced = [(one.since, one.until) for one in cluster.announcements]
    found = silences([looks.began, *looks.moments], time.time())
    gaps = too_long(found, min(gap, LONGEST_GAP), announced=announced, at_a_cut=gap)
    assert gaps == [], f"nobody looked for so many seconds: {gaps}"
    assert looks.sets.keys() >= {SERVERS, *BEHIND}, f"nobody has seen all components: {looks.sets}"


async def _watch(cluster: TestCluster, looks: Looks, over: threading.Event, without: Collection[str]) -> None:
    kube = KubeClient.from_kubeconfig(cluster.directory / "kubeconfig")
    try:
        while not over.is_set():
            await asyncio.sleep(1)
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    pods = await kube.list("v1", "Pod", namespace="kube-system")
                    nodes = await kube.list("v1", "Node")
            except (AutarkyError, TimeoutError):
                continue  # no answer
            there = [pod for pod in pods if pod["spec"].get("nodeName") not in without]
            running = _running(there, [node for node in nodes if node["metadata"]["name"] not in without])
            # After the API was asked: standbys follow before anything else goes on.
            looks.saw(running, _parked(cluster, without), time.time())
    finally:
        await kube.close()


def _running(pods: Sequence[dict[str, Any]], nodes: Sequence[dict[str, Any]]) -> Minors:
    """Of the containers that run, and of kubelets."""
    minors: dict[str, set[int]] = {"kubelet": {_minor(node) for node in nodes}}
    for pod in pods:
        for status in pod["status"].get("containerStatuses") or ():
            if "running" in status["state"]:
                _note(minors, status["image"])
    return minors


def _minor(node: dict[str, Any]) -> int:
    return int(node["status"]["nodeInfo"]["kubeletVersion"].split(".")[1])


def _parked(cluster: TestCluster, without: Collection[str]) -> Minors:
    """Of the standbys that would be activated, and of the hosts' kubelets, on the disks of all nodes that are on. As
    this machine sees the files: a command on each host would take a processor from what is watched."""
    minors: dict[str, set[int]] = {}
    for node in (str(one["name"]) for one in cluster.spec["nodes"] if one["name"] not in without):
        standbys = Path(f"/proc/{cluster.host_process(node)}/root/var/lib/autarky/standby")
        for component in WITH_STANDBY:
            with suppress(OSError):  # a worker, or one that is off
                pod = json.loads((standbys / component / "current/pod.json").read_bytes())
                for container in pod["spec"]["containers"]:
                    _note(minors, container["image"])
        with suppress(OSError):  # the host's, which is in force, or waits behind a hosted one
            version = (standbys.parent / "kubelet/current/version").read_text()
            minors.setdefault("kubelet", set()).add(int(version.split(".")[1]))
    return minors


def _note(minors: dict[str, set[int]], image: str) -> None:
    if (found := component_and_minor(image)) is not None:
        component, minor = found
        minors.setdefault(component, set()).add(minor)
