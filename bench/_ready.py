"""When a cluster is ready, autarky's and kubeadm's by the same look, twice a second.

Asked by one client that stays connected: a kubectl for each look would take a fifth of the machine from what is
measured.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from autarky.errors import AutarkyError
from autarky.hosts import LabHost
from autarky.kube import KubeClient
from autarky.model import ports
from autarky.ports import Object

HOSTED = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
POLL_SECONDS = 0.5
WAIT_SECONDS = 300


async def until_ready(kubeconfig: Path, wanted: dict[str, int], etcd_on: Sequence[LabHost] = ()) -> None:
    """Until that many pods of each app are Ready, and etcd on each of those hosts says that it is."""
    deadline = time.monotonic() + WAIT_SECONDS
    kube = KubeClient.from_kubeconfig(kubeconfig)
    try:
        while time.monotonic() < deadline:
            if _enough(await _pods(kube), wanted) and all(await asyncio.gather(*map(_etcd_is_ready, etcd_on))):
                return
            await asyncio.sleep(POLL_SECONDS)
    finally:
        await kube.close()
    raise SystemExit(f"not ready within {WAIT_SECONDS} s: {wanted}")


async def _pods(kube: KubeClient) -> list[Object]:
    """Empty while the API does not answer within a second."""
    try:
        async with asyncio.timeout(1):
            return await kube.list("v1", "Pod", namespace="kube-system")
    except (AutarkyError, TimeoutError):
        return []


async def pods_by_app(kube: KubeClient) -> dict[str, list[Object]]:
    """Those that are Ready; none of an app that has one which is not. Empty while the API does not answer."""
    found, unready = defaultdict[str, list[Object]](list), set[str]()
    for pod in await _pods(kube):
        found[_app(pod)].append(pod)
        if not _is_ready(pod):
            unready.add(_app(pod))
    return {app: pods for app, pods in found.items() if app not in unready}


def _enough(pods: list[Object], wanted: dict[str, int]) -> bool:
    ready = [_app(pod) for pod in pods if _is_ready(pod)]
    return all(ready.count(app) >= count for app, count in wanted.items())


def _app(pod: Object) -> str:
    """autarky's pods say it by one label, kubeadm's static pods by another. A hosted pod is not its standby."""
    labels = pod["metadata"].get("labels") or {}
    app = labels.get("k8s-app")
    if app is None:
        return str(labels.get("component", ""))
    return "a standby" if app in HOSTED and labels.get("autarky.dev/slot") != "hosted" else app


def _is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


async def _etcd_is_ready(host: LabHost) -> bool:
    """By the port for probes, which both have at the same place."""
    ask = f"exec 3<>/dev/tcp/127.0.0.1/{ports.ETCD_HEALTH}; printf 'GET /readyz HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3"
    said = await host.run(["bash", "-c", ask], check=False)
    return " 200 " in said.text.partition("\n")[0]
