"""What the survival scenarios look at on a one-node cluster: processes, what the agent said."""

from __future__ import annotations

import json

from harness import TestCluster

CONTROLLERS = ("kube-controller-manager", "kube-scheduler")
CONTROL_PLANE = ("etcd", "haproxy", "kube-apiserver", *CONTROLLERS)
AGENT = "python3 -m autarky[.]agents[.]node"
"""The pattern of node agents' command lines, which finds no shell that looks for it."""


def processes(cluster: TestCluster, *names: str) -> frozenset[str]:
    """Those of the control plane (or only the named ones) that run now: name, pid and start, as the host sees them.
    The API would tell late, and of static pods only what their mirrors say."""
    look = f"for c in {' '.join(name[:15] for name in names or CONTROL_PLANE)}; do for p in $(pgrep -x $c); do"
    start = "echo $c $p $(sed 's/.*) //' /proc/$p/stat | cut -d' ' -f20); done; done"
    return frozenset(cluster.shell("n1", f"{look} {start}").splitlines())


def agents(cluster: TestCluster) -> frozenset[str]:
    """The node agents that run now: slot, pid and start."""
    slot = "$(tr '\\0' '\\n' </proc/$p/environ | sed -n 's/^AUTARKY_SLOT=//p')"
    start = "$(sed 's/.*) //' /proc/$p/stat | cut -d' ' -f20)"
    found = cluster.shell("n1", f"for p in $(pgrep -f '{AGENT}'); do echo {slot} $p {start}; done").splitlines()
    return frozenset(line for line in found if len(line.split()) == 3)  # of one that has ended, less is known


def one_in_each_slot(found: frozenset[str]) -> bool:
    return sorted(agent.split()[0] for agent in found) == ["hosted", "standby"]


def decisions(cluster: TestCluster, component: str) -> list[str]:
    """What the node's agents said about the component's slots, oldest first."""
    lines = cluster.shell("n1", "cat /var/log/pods/kube-system_node-agent-*/node-agent/*.log").splitlines()
    said = [json.loads(line.split(" ", 3)[3]) for line in sorted(lines)]
    return [entry["event"] for entry in said if entry.get("component") == component]


def schedules(cluster: TestCluster, name: str, image: str) -> None:
    """A new Deployment's pod is created, placed and started: level 3 acts."""
    cluster.kubectl("create", "deployment", name, f"--image={image}", "--", "/usr/local/bin/agnhost", "pause")
    cluster.kubectl("wait", "--for=condition=Available", f"deploy/{name}", "--timeout=90s")


def _is_a_checkpoint(current: str = "", previous: str = "") -> bool:
    return current.startswith("checkpoint-") and bool(previous)


def wait_for_checkpoint(cluster: TestCluster, component: str) -> None:
    """Until the standby is a copy of what runs, and the revision before it is kept."""
    links = f"cd /var/lib/autarky/standby/{component}; readlink current previous || true"
    cluster.wait(
        f"{component} has a checkpoint",
        lambda: _is_a_checkpoint(*cluster.shell("n1", links).split()),
        seconds=150,
    )
