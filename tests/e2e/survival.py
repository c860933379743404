"""What the survival scenarios look at on a one-node cluster: standbys, containers, what the agent said."""

from __future__ import annotations

import json
from collections.abc import Mapping

from harness import TestCluster
from slots import SYSTEM

CONTROLLERS = ("kube-controller-manager", "kube-scheduler")
CONTROL_PLANE = ("etcd", "node-load-balancer", "kube-apiserver", *CONTROLLERS)


def containers(cluster: TestCluster, components: tuple[str, ...] = CONTROL_PLANE) -> Mapping[str, str]:
    """Pod/container → the id of the container that runs now: another one after every restart."""
    found = json.loads(
        cluster.kubectl(*SYSTEM, "get", "pods", "-l", f"k8s-app in ({','.join(components)})", "-o", "json")
    )
    return {
        f"{pod['metadata']['name']}/{status['name']}": status.get("containerID", "")
        for pod in found["items"]
        for status in pod["status"].get("containerStatuses", [])
    }


def decisions(cluster: TestCluster, component: str) -> list[str]:
    """What the node's agents said about the component's slots, oldest first."""
    lines = cluster.shell("n1", "cat /var/log/pods/kube-system_node-agent-*/node-agent/*.log").splitlines()
    said = [json.loads(line.split(" ", 3)[3]) for line in sorted(lines)]
    return [entry["event"] for entry in said if entry.get("component") == component]


def schedules(cluster: TestCluster, name: str, image: str) -> None:
    """A new Deployment's pod is created, placed and started: level 3 acts."""
    cluster.kubectl("create", "deployment", name, f"--image={image}", "--", "/usr/local/bin/agnhost", "pause")
    cluster.kubectl("wait", "--for=condition=Available", f"deploy/{name}", "--timeout=90s")


def wait_for_checkpoint(cluster: TestCluster, component: str) -> None:
    """Until the standby is a copy of what runs, and the revision before it is kept."""
    links = f"cd /var/lib/autarky/standby/{component}; readlink current previous || true"
    cluster.wait(
        f"{component} has a checkpoint",
        lambda: [name.startswith("checkpoint-") for name in cluster.shell("n1", links).split()] == [True, False],
        seconds=150,
    )
