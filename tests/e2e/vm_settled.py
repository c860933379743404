"""When a cluster on the virtual machine is back, settled and at work, and what a client of it had acknowledged.

Contract: nothing here believes the API alone. After a power cut or a reboot it says what was so before, until a kubelet
or the controllers say otherwise, which takes an emulated machine a minute and more: so the processes are looked at,
those that run now.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from typing import Any

from direct import asked_at
from power import Client, Writer
from slots import standbys
from vm import ClusterOnMachine, VirtualMachine

from autarky import places
from autarky.model import ports

RETURN_SECONDS = 780.0
"""From a booted machine until everything is where it belongs: seven minutes on two cores that had other work, too."""
PATIENCE = 30.0
"""Seconds for which a client waits for one answer: a handshake takes some of them."""
WRITING_SECONDS = 20.0
PAUSE = 3.0
"""Seconds between two small requests: each has a connection of its own, which costs an emulated machine some time."""
SYSTEM_PODS = "/api/v1/namespaces/kube-system/pods"
IDLE_IMAGE = "registry.k8s.io/pause:3.10.2"


def client(cluster: ClusterOnMachine) -> Client:
    return Client(cluster, seconds=PATIENCE)


# --- it is back ------------------------------------------------------------------------------------------


def settles(cluster: ClusterOnMachine) -> float:
    """Seconds until the API answers and everything is hosted and healthy, with nobody's help."""
    return hosted_again(cluster) + waited(
        cluster, "everything is hosted and healthy", lambda: is_settled(cluster), pause=4 * PAUSE
    )


def answers_again(cluster: ClusterOnMachine) -> float:
    """Seconds until the API answers."""
    return waited(cluster, "the API answers", client(cluster).answers, pause=PAUSE)


def hosted_again(cluster: ClusterOnMachine) -> float:
    """Seconds until the hosted API server serves, and not only the standby: that goes a little later (`is_settled`)."""
    return answers_again(cluster) + waited(
        cluster, "its hosted API server serves", lambda: hosted_serves(cluster), pause=4 * PAUSE
    )


def waited(cluster: ClusterOnMachine, what: str, condition: Callable[[], object], *, pause: float) -> float:
    """Seconds until the condition holds."""
    began = time.monotonic()
    cluster.wait(what, condition, RETURN_SECONDS, pause=pause)
    return time.monotonic() - began


def hosted_serves(cluster: ClusterOnMachine) -> bool:
    """What takes longest, asked for in one request: a whole look takes tens of them and a login, for which it would
    wait so much longer. The process itself is asked, by the port that only the hosted one has."""
    return asked_at(cluster, cluster.machine.address, ports.API_HOSTED, "/readyz", seconds=PATIENCE) == "ok"


def is_settled(cluster: ClusterOnMachine) -> bool:
    return not standbys(cluster) and bool(cluster.status()["healthy"]) and what_is_ready_runs(cluster)


def what_is_ready_runs(cluster: ClusterOnMachine) -> bool:
    """The containers of all pods that the API calls Ready: those from before a cut have other ids."""
    answer = client(cluster).send("GET", SYSTEM_PODS)
    if answer is None:
        return False
    ready = containers_of_ready(json.loads(answer)["items"])
    return bool(ready) and ready <= containers(cluster.machine)


def containers_of_ready(pods: Iterable[dict[str, Any]]) -> set[str]:
    """Their ids, as the runtime knows them."""
    statuses = [pod["status"] for pod in pods]
    ready = [
        status
        for status in statuses
        if any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", []))
    ]
    return {
        one.get("containerID", "").removeprefix("containerd://")
        for status in ready
        for one in status.get("containerStatuses", [])
    }


def containers(machine: VirtualMachine) -> set[str]:
    """Of the control plane and what belongs to it: the ids of those that run."""
    listed = machine.shell(f"{places.BIN}/ctr -n k8s.io tasks ls")
    return {line.split()[0] for line in listed.splitlines()[1:] if line.split()[2] == "RUNNING"}


# --- it works --------------------------------------------------------------------------------------------


def runs_pods(cluster: ClusterOnMachine, name: str) -> None:
    """Admission, controllers, scheduler and kubelet work together: a new Deployment has a Ready pod."""
    cluster.kubectl("create", "deployment", name, f"--image={IDLE_IMAGE}")
    seconds = cluster.kubectl_seconds
    cluster.kubectl("rollout", "status", f"deployment/{name}", f"--timeout={seconds - 20:.0f}s")
    cluster.kubectl("delete", "deployment", name)


def cut_while_writing(machine: VirtualMachine, writer: Writer) -> None:
    """The power, so that something may be lost: what was acknowledged just before."""
    before = len(writer.acknowledged)
    with writer.writing():
        time.sleep(WRITING_SECONDS)
        machine.power_cut()
    assert len(writer.acknowledged) > before, "nothing was written that could be lost"


def step_while_writing(machine: VirtualMachine, writer: Writer, seconds: float) -> None:
    """The clock: who writes is served after it, too."""
    with writer.writing():
        machine.step_clock(seconds)
        until_then = len(writer.acknowledged)
        time.sleep(WRITING_SECONDS)
    assert len(writer.acknowledged) > until_then, "nobody was served after the clock was set"


def nothing_is_lost(writer: Writer) -> None:
    """Of all that was acknowledged so far, which is something."""
    assert writer.acknowledged, "nothing was written that could be lost"
    assert writer.lost() == set()


# --- its disk --------------------------------------------------------------------------------------------


def torn(machine: VirtualMachine) -> list[str]:
    """What is not whole, of all that a link or a name says is complete: standbys and manifests."""
    assert machine.shell(f"ls -d {places.STANDBY}/*/current/"), "no standby is there that could be torn"
    finished = f"{places.STANDBY}/*/current/ {places.STANDBY}/*/previous/ {places.MANIFESTS}/*.json"
    empty = machine.shell(f"for one in {finished}; do [ ! -e $one ] || find $one -type f -size 0; done").split()
    pods = machine.shell(f"for one in {places.MANIFESTS}/*.json; do tr -d '\\n' <$one; echo; done").splitlines()
    return [*empty, *(pod for pod in pods if not is_a_pod(pod))]


def is_a_pod(text: str) -> bool:
    try:
        return bool(json.loads(text)["kind"] == "Pod")
    except (ValueError, KeyError):
        return False
