"""Power cut of the only node: autarky against kubeadm, same binaries, same kind of host, one after the other.

Both clusters are there all the time and their power is cut in turn, so that whatever else the machine does
meanwhile disturbs both alike.

The clock starts when the host is powered on again. Two figures:
  /readyz: the API answers "ok" through the node's address;
  pod runs: a Deployment that is created the moment the API answers has its pod running.
Both are polled five times a second.

    ./run bench reboot [--rounds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from _kubeadm import kubeadm_cluster

from autarky.cli.wiring import Silence
from autarky.lab import Lab
from autarky.payload import Payload, default_version, get_payload, load_release

STATE = Path.home() / ".local/state/autarky-bench"
NAME = "bench-reboot"
AUTARKY = [sys.executable, "-m", "autarky"]
WAIT_SECONDS = 180
STEADY_SECONDS = 75
"""Before the first cut, so that both clusters are at rest and the first checkpoint is made."""
PAUSE_SECONDS = 30
"""After a return: everything is where it belongs again, and rests while the other cluster is measured."""
IMAGE = "registry.k8s.io/e2e-test-images/agnhost:2.63.0"


@dataclass(frozen=True)
class Measured:
    ready: float
    pod: float


def until(what: str, begin: float, holds: Callable[[], object]) -> float:
    """Seconds from `begin` until the condition holds."""
    while time.monotonic() < begin + WAIT_SECONDS:
        if holds():
            return time.monotonic() - begin
        time.sleep(0.2)
    raise SystemExit(f"not within {WAIT_SECONDS} s: {what}")


async def cut_and_return(lab: Lab, kubectl: list[str], name: str) -> Measured:
    """`name` of the Deployment: one that the cluster has not had."""
    await lab.cut("n1")
    begin = time.monotonic()
    await lab.start("n1", progress=Silence())
    ready = until("/readyz", begin, lambda: say(kubectl, "get", "--raw", "/readyz") == "ok")
    create = ("create", "deployment", name, f"--image={IMAGE}", "--", "/usr/local/bin/agnhost", "pause")
    # A request that took too long may have been carried out all the same.
    until("a Deployment is created", begin, lambda: re.search("created|AlreadyExists", say(kubectl, *create)))
    pod = until("its pod runs", begin, lambda: "Running" in say(kubectl, "get", "pods", "-l", f"app={name}"))
    return Measured(ready, pod)


def say(kubectl: list[str], *argv: str) -> str:
    command = [*kubectl, *argv, "--request-timeout=2s"]
    if "--" in argv:
        command = [*kubectl, "--request-timeout=2s", *argv]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout


async def autarky_cluster(payload: Payload) -> list[str]:
    file = STATE / f"{NAME}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    spec = {"nodes": [{"name": "n1"}]}
    document = {"apiVersion": "autarky.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": NAME}, "spec": spec}
    file.write_text(json.dumps(document))
    down()  # what an interrupted run left
    subprocess.run([*AUTARKY, "up", "-f", str(file)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    kubeconfig = STATE / f"autarky/clusters/{NAME}/kubeconfig"
    return [str(payload.binaries["kubectl"].path), f"--kubeconfig={kubeconfig}"]


def down() -> None:
    argv = [*AUTARKY, "down", "-f", str(STATE / f"{NAME}.yaml")]
    subprocess.run(argv, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


async def run(rounds: int) -> None:
    payload = await get_payload(load_release(default_version()), Silence(), groups=("cluster", "test", "bench"))
    lab = Lab.open(f"{NAME}-kubeadm")
    with tempfile.TemporaryDirectory() as directory:
        kubectl = await autarky_cluster(payload)
        theirs = await kubeadm_cluster(payload, lab, Path(directory))
        await asyncio.sleep(STEADY_SECONDS)
        clusters = {"autarky": (Lab.open(NAME), kubectl), "kubeadm": (lab, theirs.kubectl)}
        measured = await in_turn(clusters, rounds)
    down()
    await lab.down()
    ours, kubeadms = measured["autarky"], measured["kubeadm"]
    report("power on → /readyz", [m.ready for m in ours], [m.ready for m in kubeadms], 1.25)
    report("power on → a new Deployment's pod runs", [m.pod for m in ours], [m.pod for m in kubeadms], 0.6)


async def in_turn(clusters: dict[str, tuple[Lab, list[str]]], rounds: int) -> dict[str, list[Measured]]:
    measured: dict[str, list[Measured]] = {name: [] for name in clusters}
    for number in range(1, rounds + 1):
        for name, (lab, kubectl) in clusters.items():
            found = await cut_and_return(lab, kubectl, f"after-{number}")
            measured[name].append(found)
            print(f"{name} {number}: /readyz {found.ready:.1f} s, pod runs {found.pod:.1f} s", flush=True)
            await asyncio.sleep(PAUSE_SECONDS)
    return measured


def report(what: str, ours: list[float], theirs: list[float], wanted: float) -> None:
    a, k = statistics.median(ours), statistics.median(theirs)
    print(f"{what}: autarky {a:.1f} s, kubeadm {k:.1f} s, ratio {a / k:.2f} (at most {wanted} is wanted)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    os.environ["XDG_STATE_HOME"] = str(STATE)
    asyncio.run(run(parser.parse_args().rounds))


if __name__ == "__main__":
    main()
