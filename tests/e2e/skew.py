"""The version skew policy of Kubernetes, looked at from outside once a second: by the images of containers that run,
and by what kubelets say. It shares no rule with the product.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import TestCluster

from autarky.errors import AutarkyError
from autarky.kube import KubeClient

SERVERS, PROXY = "kube-apiserver", "kube-proxy"
BEHIND = {"kube-controller-manager": 1, "kube-scheduler": 1, PROXY: 3, "kubelet": 3}
"""Component → how many minors it may be older than the newest API server. None may be newer than the oldest one."""
_IMAGE = re.compile(r"/(kube-[a-z-]+):v1\.(\d+)\.\d+$")


@dataclass
class Looks:
    """sets: component → the sets of minors that were seen at one moment. latest: the same of the latest look.
    at: when that was, in monotonic seconds; gap: the longest time between two of them."""

    number: int = 0
    at: float = 0.0
    gap: float = 0.0
    broken: list[str] = field(default_factory=list)
    sets: dict[str, set[tuple[int, ...]]] = field(default_factory=dict)
    latest: dict[str, tuple[int, ...]] = field(default_factory=dict)


@contextmanager
def skew_is_kept(
    cluster: TestCluster, *, least: int = 20, gap: float = 20.0, without: Collection[str] = ()
) -> Iterator[Looks]:
    """In each second of the block in which the API answers; at least so often, and never with a longer gap (in seconds)
    between two looks. without: nodes that are off, of which the API says what has run. By one client that stays
    connected: a kubectl for each look would take a processor from what is watched."""
    looks, over = Looks(at=time.monotonic()), threading.Event()
    kubeconfig = cluster.directory / "kubeconfig"
    thread = threading.Thread(target=lambda: asyncio.run(_watch(kubeconfig, looks, over, without)), name="skew")
    thread.start()
    try:
        yield looks
    finally:
        over.set()
        thread.join()
    assert looks.broken == [], looks.broken[:5]
    assert looks.number >= least, looks
    assert max(looks.gap, time.monotonic() - looks.at) <= gap, f"nobody looked for {looks.gap:.0f} s"
    assert looks.sets.keys() >= {SERVERS, *BEHIND}, f"nobody has seen all components: {looks.sets}"


async def _watch(kubeconfig: Path, looks: Looks, over: threading.Event, without: Collection[str]) -> None:
    kube = KubeClient.from_kubeconfig(kubeconfig)
    try:
        while not over.is_set():
            await asyncio.sleep(1)
            try:
                async with asyncio.timeout(5):
                    pods = await kube.list("v1", "Pod", namespace="kube-system")
                    nodes = await kube.list("v1", "Node")
            except (AutarkyError, TimeoutError):
                continue  # no answer
            there = [pod for pod in pods if pod["spec"].get("nodeName") not in without]
            _look(there, [node for node in nodes if node["metadata"]["name"] not in without], looks)
    finally:
        await kube.close()


def _look(pods: Sequence[dict[str, Any]], nodes: Sequence[dict[str, Any]], looks: Looks) -> None:
    minors: dict[str, set[int]] = {"kubelet": {_minor(node) for node in nodes}}
    for name, minor in (found for pod in pods for found in _running(pod)):
        minors.setdefault(name, set()).add(minor)
    looks.latest = {name: tuple(sorted(found)) for name, found in minors.items()}
    for name, found in looks.latest.items():
        looks.sets.setdefault(name, set()).add(found)
    if servers := minors.get(SERVERS):  # a look without them judges nothing
        looks.number += 1
        now = time.monotonic()
        looks.gap, looks.at = max(looks.gap, now - looks.at), now
        looks.broken += _violations(minors, oldest=min(servers), newest=max(servers))


def _violations(minors: dict[str, set[int]], *, oldest: int, newest: int) -> Iterator[str]:
    if newest - oldest > 1:
        yield f"API servers of 1.{oldest} and 1.{newest}"
    for name, behind in BEHIND.items():
        for minor in minors.get(name, ()):
            if not newest - behind <= minor <= oldest:
                yield f"{name} of 1.{minor} beside API servers of 1.{oldest} to 1.{newest}"


def _minor(node: dict[str, Any]) -> int:
    return int(node["status"]["nodeInfo"]["kubeletVersion"].split(".")[1])


def _running(pod: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Component and minor of each of its containers that runs."""
    for status in pod["status"].get("containerStatuses") or ():
        if "running" in status["state"] and (found := _IMAGE.search(status["image"])) is not None:
            yield found[1], int(found[2])
