"""A cluster to the next minor, kubelets included: `autarky upgrade` beside `kubeadm upgrade`, same binaries, same
images, same kind of hosts, in turn, in one run; of one node. `ha_upgrade` is of three control nodes and a worker.

Both clusters are at rest, and their hosts have all images of both versions, and the kubelet of the new one. Both clocks
start with the command, and stop when API servers, controller-managers, schedulers and kube-proxy of the new version are
Ready everywhere, no pod of the former one is left, and each Node is Ready with the new kubelet: the same poll looks at
both, twice a second. autarky's command returns later: by then each revision has been watched for 40 s, each kubelet for
10 s, and the standbys have the new version.

kubeadm does what its documentation says: `upgrade apply` on the first control node, `upgrade node` on the others and on
workers; then each node's kubelet is put in its place and restarted, control nodes first, each command typed the moment
the one before has ended. Neither drains a node: autarky's pools say so. etcd is upgraded by neither, kubeadm is told to
leave it alone, nor is CoreDNS, whose version kubeadm does not know.

The same probe asks both meanwhile, through the server that their kubeconfig names: on new and on kept connections, with
writes and a watch. A ratio of the times of at most 0.6 is wanted, and no failed request.

    ./run bench upgrade [--rounds 3] [--json FILE] [--product DIR]
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from _autarky import AutarkyCluster
from _figures import SECONDS, Figure
from _kubeadm import IGNORED, KUBEADM, kubeadm_cluster, kubeadm_ha_cluster
from _product import THIS_TREE, Product
from _ready import HOSTED, pods_by_app, until_ready
from _rounds import STEADY_SECONDS, main

from autarky.cli.wiring import Silence
from autarky.control.common.pods import is_ready
from autarky.errors import AutarkyError
from autarky.kube import KubeClient
from autarky.lab import Lab
from autarky.model.versions import Version
from autarky.payload import Payload, get_payload, load_release
from autarky.phases.prepare import import_images
from autarky.ports import Host, Object

NEXT = Version(1, 37, 1)
POLL_SECONDS = 0.5
UPGRADE_SECONDS = 1800
WANTED = 0.6
ASKED = 100
"""Writes that the probe must have made for its report to say anything."""
DONE, RETURNED = "everything has the new version, kubelets included", "the last command returned"
PLANE = "the control plane and kube-proxy have the new version"
NEVER_DRAINED = [
    {"name": "workers", "drain": "Never"},
    {"name": "control-nodes", "nodes": {"controlPlane": True}, "drain": "Never"},
]
NEXT_KUBELET = "/usr/bin/kubelet.next"
FAILED, AWAY = "requests that failed", "the longest outage of the API"


@dataclass(frozen=True)
class Measured:
    """Seconds, but for `failed`, which counts requests, and promises that were not kept."""

    done: float
    plane: float
    returned: float
    failed: float
    away: float


@dataclass(frozen=True)
class Shape:
    name: str
    control: tuple[str, ...] = ("n1",)
    workers: tuple[str, ...] = ()

    @property
    def pods(self) -> dict[str, int]:
        return {**dict.fromkeys(HOSTED, len(self.control)), "kube-proxy": len(self.control) + len(self.workers)}

    @property
    def nodes(self) -> tuple[str, ...]:
        return (*self.control, *self.workers)

    @property
    def ours(self) -> AutarkyCluster:
        return AutarkyCluster(f"bench-{self.name}", self.control, self.workers, spec={"pools": NEVER_DRAINED})


ONE, THREE = Shape("upgrade"), Shape("ha-upgrade", ("n1", "n2", "n3"), ("w1",))


async def measure_autarky(shape: Shape, product: Product) -> Measured:
    cluster = shape.ours.of(product)
    cluster.write()
    cluster.up()
    cluster.push(str(NEXT))
    await until_ready(cluster.kubeconfig, shape.pods)

    async def upgrade() -> None:
        await asyncio.to_thread(cluster.timed, "upgrade", str(NEXT))

    found = await _measured(cluster.kubeconfig, shape, upgrade)
    cluster.down()
    return found


async def measure_kubeadm(shape: Shape, payload: Payload) -> Measured:
    lab = Lab.open(f"{shape.ours.name}-kubeadm")
    following = await get_payload(load_release(NEXT), Silence(), groups=("cluster", "test", "bench"))
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        if shape.workers:
            cluster = await kubeadm_ha_cluster(payload, lab, directory, shape.control, shape.workers)
        else:
            cluster = await kubeadm_cluster(payload, lab, directory)
        hosts = {node: cluster.hosts[node] for node in shape.nodes}
        await asyncio.gather(*(_prepare(host, following) for host in hosts.values()))
        await until_ready(directory / "kubeconfig", shape.pods)

        async def upgrade() -> None:
            first, *others = (hosts[node] for node in shape.nodes)
            await _run(first, "apply", str(NEXT), "--yes", *_OF_THE_SAME)
            for host in others:
                await _run(host, "node", *_OF_THE_SAME)
            for host in (first, *others):
                await host.run(["mv", "-T", NEXT_KUBELET, "/usr/bin/kubelet"])
                await host.run(["systemctl", "restart", "kubelet"])

        found = await _measured(directory / "kubeconfig", shape, upgrade)
    await lab.down()
    return found


_OF_THE_SAME = (IGNORED, "--etcd-upgrade=false", "--skip-phases=addon/coredns")


async def _prepare(host: Host, following: Payload) -> None:
    """The images, the kubeadm and the kubelet of the next version."""
    await host.push(following.binaries["kubeadm"].path, KUBEADM, mode=0o755)
    await host.push(following.binaries["kubelet"].path, NEXT_KUBELET, mode=0o755)
    await import_images(host, list(following.images.values()), Silence())


async def _run(host: Host, *words: str) -> None:
    await host.run([KUBEADM, "upgrade", *words], timeout=UPGRADE_SECONDS)


# --- on the clock ------------------------------------------------------------------------------------------


async def _measured(kubeconfig: Path, shape: Shape, upgrade: Callable[[], Awaitable[None]]) -> Measured:
    await asyncio.sleep(STEADY_SECONDS)
    async with _probed(kubeconfig) as report:
        begin = time.monotonic()

        async def seconds_until(end: Awaitable[object]) -> float:
            await end
            return time.monotonic() - begin

        plane, done, returned = await asyncio.gather(
            seconds_until(_until(kubeconfig, partial(_pods_have_it, shape))),
            seconds_until(_until(kubeconfig, partial(_all_have_it, shape))),
            seconds_until(upgrade()),
        )
    if report["writes_acknowledged"] < ASKED:
        raise SystemExit(f"only {report['writes_acknowledged']} writes were acknowledged: the probe has shown nothing")
    away = report["outage"]["seconds"] if report["outage"] else 0.0
    return Measured(done, plane, returned, report["failed"], away)


@asynccontextmanager
async def _probed(kubeconfig: Path) -> AsyncGenerator[dict[str, Any]]:
    """The report is in the mapping afterwards."""
    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        over = Path(directory, "over")
        # The probe runs its command when all its streams run, and ends with it.
        script = f"echo begun; while [ ! -e {over} ]; do sleep 0.2; done"
        argv = [*THIS_TREE.command, "bench", "probe", f"--kubeconfig={kubeconfig}", "-o", "json", "--rate=50"]
        process = await asyncio.create_subprocess_exec(
            *("nice", "-n", "-10", *argv, "--", "sh", "-c", script),
            **THIS_TREE.where,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            assert process.stderr is not None
            said = [line async for line in _until_begun(process.stderr)]
            if said[-1:] != [b"begun\n"]:
                raise SystemExit(f"the probe has not begun: {b''.join(said).decode(errors='replace')}")
            yield report
        finally:
            over.touch()
            written, _ = await process.communicate()
    report.update(json.loads(written))


async def _until_begun(lines: asyncio.StreamReader) -> AsyncGenerator[bytes]:
    async for line in lines:
        yield line
        if line == b"begun\n":
            return


async def _until(kubeconfig: Path, they_have_it: Callable[[KubeClient], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + UPGRADE_SECONDS
    kube = KubeClient.from_kubeconfig(kubeconfig)
    try:
        while time.monotonic() < deadline:
            with suppress(AutarkyError):  # its server may be down
                if await they_have_it(kube):
                    return
            await asyncio.sleep(POLL_SECONDS)
    finally:
        await kube.close()
    raise SystemExit(f"not of {NEXT} within {UPGRADE_SECONDS} s")


async def _all_have_it(shape: Shape, kube: KubeClient) -> bool:
    nodes = [node["status"] for node in await kube.list("v1", "Node")]
    kubelets = [status["nodeInfo"]["kubeletVersion"] for status in nodes if is_ready({"status": status})]
    return kubelets == [str(NEXT)] * len(shape.nodes) and await _pods_have_it(shape, kube)


async def _pods_have_it(shape: Shape, kube: KubeClient) -> bool:
    return _have_it(await pods_by_app(kube), shape.pods)


def _have_it(pods: Mapping[str, Sequence[Object]], wanted: Mapping[str, int]) -> bool:
    """pods: app → those that are Ready, or not gone yet."""
    return all(
        len(found := pods.get(app, [])) == count and all(_image(pod).endswith(f":{NEXT}") for pod in found)
        for app, count in wanted.items()
    )


def _image(pod: Object) -> str:
    return str(pod["spec"]["containers"][0]["image"])


# --- figures -----------------------------------------------------------------------------------------------


async def run(payload: Payload, product: Product, rounds: int) -> list[Figure]:
    return await _compared(ONE, payload, product, rounds)


async def run_ha(payload: Payload, product: Product, rounds: int) -> list[Figure]:
    return await _compared(THREE, payload, product, rounds)


async def _compared(shape: Shape, payload: Payload, product: Product, rounds: int) -> list[Figure]:
    benchmark = shape.name.replace("-", "_")
    a: list[Measured] = []
    k: list[Measured] = []
    for number in range(1, rounds + 1):
        a.append(await measure_autarky(shape, product))
        print(f"{benchmark}: autarky {number}: {a[-1]}", flush=True)
        k.append(await measure_kubeadm(shape, payload))
        print(f"{benchmark}: kubeadm {number}: {k[-1]}", flush=True)
    return [
        Figure(benchmark, DONE, SECONDS, tuple(m.done for m in a), tuple(m.done for m in k), WANTED),
        Figure(benchmark, PLANE, SECONDS, tuple(m.plane for m in a), tuple(m.plane for m in k), WANTED),
        Figure(benchmark, RETURNED, SECONDS, tuple(m.returned for m in a), tuple(m.returned for m in k)),
        Figure(benchmark, FAILED, "", tuple(m.failed for m in a), tuple(m.failed for m in k), most=0.0),
        Figure(benchmark, AWAY, SECONDS, tuple(m.away for m in a), tuple(m.away for m in k), most=0.0),
    ]


if __name__ == "__main__":
    main(__doc__, [run])
