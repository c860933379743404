"""autarky `up` against kubeadm `init`: same binaries, same images, same kind of host, in turn, in one run.

Both clocks start on a booted host with its binaries in place, containerd running and all images imported.
They stop when
  autarky: hosted API server, controller-manager and scheduler, kube-proxy and both CoreDNS pods are Ready;
  kubeadm: kube-proxy and both CoreDNS pods are Ready (flannel is applied the moment `init` returns).
The same poll looks at both, five times a second. Prints the ratio, and the memory of the control plane.

    ./run bench up [--rounds 3]
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

from _kubeadm import kubeadm_cluster, lab_host

from autarky.cli.wiring import Silence
from autarky.lab import Lab
from autarky.payload import Payload, default_version, get_payload, load_release
from autarky.ports import Host

STATE = Path.home() / ".local/state/autarky-bench"
NAME = "bench-up"
WAIT_SECONDS = 180
HOSTED = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
PROCESSES = (*HOSTED, "etcd", "haproxy", "kubelet", "kube-proxy", "containerd", "flanneld", "coredns")
BEFORE_THE_CLOCK = ("start-control-plane", "start-joining", "apply-objects", "join-nodes", "pivot")


@dataclass(frozen=True)
class Measured:
    seconds: float
    returned: float
    memory: dict[str, float]


# --- what both have in common ------------------------------------------------------------------------


async def until_ready(kubectl: list[str], wanted: dict[str, int]) -> None:
    """Until that many pods of each app are Ready."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        process = await asyncio.create_subprocess_exec(
            *kubectl, "-n", "kube-system", "get", "pods", "-o", "json", "--request-timeout=1s",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        stdout, _ = await process.communicate()
        if process.returncode == 0 and enough(json.loads(stdout)["items"], wanted):
            return
        await asyncio.sleep(0.2)
    raise SystemExit(f"not ready within {WAIT_SECONDS} s: {wanted}")


def enough(pods: list[dict], wanted: dict[str, int]) -> bool:
    ready = [p["metadata"]["labels"] for p in pods if is_ready(p)]
    return all(sum(1 for labels in ready if matches(labels, app)) >= count for app, count in wanted.items())


def matches(labels: dict, app: str) -> bool:
    """A hosted control plane pod is not its standby."""
    if labels.get("k8s-app") != app:
        return False
    return app not in HOSTED or labels.get("autarky.dev/slot") == "hosted"


def is_ready(pod: dict) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


async def memory(host: Host) -> dict[str, float]:
    """Resident memory by process name, in MB."""
    lines = (await host.run(["ps", "-eo", "rss=,comm="])).text.splitlines()
    total: dict[str, float] = {}
    for line in lines:
        rss, name = line.split(None, 1)
        for known in PROCESSES:
            if known.startswith(name[:15]) or name == known:
                total[known] = total.get(known, 0) + int(rss) / 1024
    return total


# --- autarky -------------------------------------------------------------------------------------------


async def measure_autarky(payload: Payload) -> Measured:
    file = STATE / f"{NAME}.yaml"
    document = {
        "apiVersion": "autarky.dev/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": NAME},
        "spec": {"nodes": [{"name": "n1"}]},
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document))
    command = [sys.executable, "-m", "autarky"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    skipped = [f"--skip={phase}" for phase in (*BEFORE_THE_CLOCK, "await-workloads")]
    subprocess.run([*command, "up", "-f", str(file), *skipped], check=True, **quiet)
    kubeconfig = STATE / f"autarky/clusters/{NAME}/kubeconfig"
    kubectl = [str(payload.binaries["kubectl"].path), f"--kubeconfig={kubeconfig}"]
    wanted = {**dict.fromkeys(HOSTED, 1), "kube-proxy": 1, "kube-dns": 2}
    begin = time.monotonic()
    up = await asyncio.create_subprocess_exec(
        *command, "up", "-f", str(file), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    await until_ready(kubectl, wanted)
    ready = time.monotonic() - begin
    if await up.wait() != 0:
        raise SystemExit("autarky up failed; run it by hand to see why")
    returned = time.monotonic() - begin
    used = await memory(lab_host(NAME))
    subprocess.run([*command, "down", "-f", str(file)], check=True, **quiet)
    return Measured(ready, returned, used)


# --- kubeadm -------------------------------------------------------------------------------------------


async def measure_kubeadm(payload: Payload) -> Measured:
    lab = Lab.open(f"{NAME}-kubeadm")
    with tempfile.TemporaryDirectory() as directory:
        cluster = await kubeadm_cluster(payload, lab, Path(directory))
        await until_ready(cluster.kubectl, {"kube-proxy": 1, "kube-dns": 2})
        ready = time.monotonic() - cluster.begin
    used = await memory(cluster.host)
    await lab.down()
    return Measured(ready, cluster.returned - cluster.begin, used)


# --- main ------------------------------------------------------------------------------------------------


async def run(rounds: int) -> None:
    payload = await get_payload(load_release(default_version()), Silence(), groups=("cluster", "test", "bench"))
    ours, theirs = [], []
    for number in range(rounds):
        ours.append(await measure_autarky(payload))
        theirs.append(await measure_kubeadm(payload))
        print(
            f"round {number + 1}: autarky {ours[-1].seconds:.1f} s (up returned at {ours[-1].returned:.1f} s), "
            f"kubeadm {theirs[-1].seconds:.1f} s (init returned at {theirs[-1].returned:.1f} s), "
            f"ratio {ours[-1].seconds / theirs[-1].seconds:.2f}",
            flush=True,
        )
    a, k = (statistics.median(m.seconds for m in results) for results in (ours, theirs))
    print(f"median: autarky {a:.1f} s, kubeadm {k:.1f} s, ratio {a / k:.2f} (at most 1.0 is wanted)")
    print_memory(ours[-1].memory, theirs[-1].memory)


def print_memory(ours: dict[str, float], theirs: dict[str, float]) -> None:
    print(f"\n{'resident memory, MB':28}{'autarky':>10}{'kubeadm':>10}")
    for name in sorted({*ours, *theirs}):
        print(f"{name:28}{ours.get(name, 0):>10.0f}{theirs.get(name, 0):>10.0f}")
    print(f"{'together':28}{sum(ours.values()):>10.0f}{sum(theirs.values()):>10.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    os.environ["XDG_STATE_HOME"] = str(STATE)
    asyncio.run(run(parser.parse_args().rounds))


if __name__ == "__main__":
    main()
