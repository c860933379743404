"""Three control nodes and a worker: autarky `up` against kubeadm, same binaries, same images, same kind of hosts, in
turn, in one run.

kubeadm does what its documentation says: `init`, then two `join --control-plane` and one worker's `join`, one after
another. Both clocks start on booted hosts with their binaries in place, containerd running and all images imported.
They stop when
  autarky: hosted API servers, controller-managers and schedulers of all three nodes, kube-proxy on all four and both
           CoreDNS pods are Ready;
  kubeadm: API servers, controller-managers and schedulers of all three, kube-proxy on all four and both CoreDNS pods
           are Ready (flannel is applied the moment `init` returns);
and etcd says on all three that it is ready. Itself, not its pods in the API: a kubelet that began before there was an
API shows its static pods there only after its next look, up to 90 s later. The same poll looks at both, five times a
second. Prints the ratio; at most 0.6 is wanted.

    ./run bench ha_up [--rounds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from _kubeadm import kubeadm_ha_cluster, lab_host
from up import STATE, enough

from autarky.cli.wiring import Silence
from autarky.errors import AutarkyError
from autarky.hosts import LabHost
from autarky.kube import KubeClient
from autarky.kube.kubeconfig import read_kubeconfig
from autarky.lab import Lab
from autarky.model import ports
from autarky.payload import Payload, default_version, get_payload, load_release

NAME = "bench-ha"
CONTROL, WORKERS = ("n1", "n2", "n3"), ("w1",)
HOSTED = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
WAIT_SECONDS = 300
WANTED = 0.6
BEFORE_THE_CLOCK = (
    "start-control-plane", "forget-replaced", "start-joining", "apply-objects", "join-nodes", "pivot", "retire-hosted",
    "start-agents", "await-workloads", "make-control-nodes",
)  # fmt: skip
AUTARKY = [sys.executable, "-m", "autarky"]
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
EVERYWHERE = {"kube-proxy": len(CONTROL) + len(WORKERS), "kube-dns": 2}


@dataclass(frozen=True)
class Measured:
    """Seconds until everything was Ready, and until the last command returned."""

    ready: float
    returned: float


async def until_ready(kubeconfig: Path, lab: str) -> float:
    """The moment at which that many pods of each app are Ready, and each etcd. Asked by one client that stays
    connected: a kubectl for each look would take a fifth of the machine from what is measured."""
    wanted = {**dict.fromkeys(HOSTED, len(CONTROL)), **EVERYWHERE}
    kube = KubeClient.from_kubeconfig(kubeconfig)
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        pods = enough(_as_ours(await pods_in(kube)), wanted)
        if pods and all(await asyncio.gather(*(etcd_ready(lab_host(lab, name)) for name in CONTROL))):
            await kube.close()
            return time.monotonic()
        await asyncio.sleep(0.2)
    raise SystemExit(f"not ready within {WAIT_SECONDS} s: {wanted}")


async def pods_in(kube: KubeClient) -> list[dict]:
    """None while the API does not answer within a second."""
    try:
        async with asyncio.timeout(1):
            return await kube.list("v1", "Pod", namespace="kube-system")
    except (AutarkyError, TimeoutError):
        return []


async def etcd_ready(host: LabHost) -> bool:
    """By the port for probes, which both have at the same place."""
    ask = f"exec 3<>/dev/tcp/127.0.0.1/{ports.ETCD_HEALTH}; printf 'GET /readyz HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3"
    said = await host.run(["bash", "-c", ask], check=False)
    return " 200 " in said.text.partition("\n")[0]


def _as_ours(pods: list[dict]) -> list[dict]:
    """kubeadm's static pods say who they are by another label, and have no standbys."""
    for pod in pods:
        labels = pod["metadata"].setdefault("labels", {})
        if "k8s-app" not in labels:
            labels |= {"k8s-app": labels.get("component", ""), "autarky.dev/slot": "hosted"}
    return pods


# --- autarky -------------------------------------------------------------------------------------------


async def measure_autarky() -> Measured:
    file = STATE / f"{NAME}.yaml"
    nodes = [{"name": n, "host": "lab", "roles": ["control-plane", "worker"]} for n in CONTROL]
    nodes += [{"name": n, "host": "lab", "roles": ["worker"]} for n in WORKERS]
    document = {
        "apiVersion": "autarky.dev/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": NAME},
        "spec": {"nodes": nodes},
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document))
    subprocess.run([*AUTARKY, "down", "-f", str(file)], check=False, **QUIET)  # what an interrupted run left
    skipped = [f"--skip={phase}" for phase in BEFORE_THE_CLOCK]
    subprocess.run([*AUTARKY, "up", "-f", str(file), *skipped], check=True, **QUIET)
    kubeconfig = STATE / f"autarky/clusters/{NAME}/kubeconfig"
    begin = time.monotonic()
    up = await asyncio.create_subprocess_exec(*AUTARKY, "up", "-f", str(file), **QUIET)
    ready = await until_ready(kubeconfig, NAME) - begin
    if await up.wait() != 0:
        raise SystemExit("autarky up failed; run it by hand to see why")
    returned = time.monotonic() - begin
    assert read_kubeconfig(kubeconfig).others, "a kubeconfig of three control nodes has three servers"
    subprocess.run([*AUTARKY, "down", "-f", str(file)], check=True, **QUIET)
    return Measured(ready, returned)


# --- kubeadm -------------------------------------------------------------------------------------------


async def measure_kubeadm(payload: Payload) -> Measured:
    lab = Lab.open(f"{NAME}-kubeadm")
    with tempfile.TemporaryDirectory() as directory:
        cluster = await kubeadm_ha_cluster(payload, lab, Path(directory), CONTROL, WORKERS)
        ready = await until_ready(Path(directory) / "kubeconfig", lab.name) - cluster.begin
    await lab.down()
    return Measured(ready, cluster.returned - cluster.begin)


# --- main ------------------------------------------------------------------------------------------------


async def run(rounds: int) -> None:
    payload = await get_payload(load_release(default_version()), Silence(), groups=("cluster", "test", "bench"))
    ours, theirs = [], []
    for number in range(rounds):
        ours.append(await measure_autarky())
        print(f"autarky: {ours[-1].ready:.1f} s (up returned at {ours[-1].returned:.1f} s)", flush=True)
        theirs.append(await measure_kubeadm(payload))
        print(
            f"round {number + 1}: autarky {ours[-1].ready:.1f} s, "
            f"kubeadm {theirs[-1].ready:.1f} s (the last join returned at {theirs[-1].returned:.1f} s), "
            f"ratio {ours[-1].ready / theirs[-1].ready:.2f}",
            flush=True,
        )
    a, k = (statistics.median(m.ready for m in results) for results in (ours, theirs))
    print(f"median: autarky {a:.1f} s, kubeadm {k:.1f} s, ratio {a / k:.2f} (at most {WANTED} is wanted)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    os.environ["XDG_STATE_HOME"] = str(STATE)
    asyncio.run(run(parser.parse_args().rounds))


if __name__ == "__main__":
    main()
