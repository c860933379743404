"""What the scenarios of restoring and recovering share: a backup to open, what a namespace has in it, who has data."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Collection
from pathlib import Path

from agreement import difference
from documented import page, steps_below
from ha import CONTROL
from harness import Ended, TestCluster, environment, kubectl_of_the_default_version

from autarky.archive import fresh_identity

SPACE = "precious"
_ETCD = "/var/lib/etcd"


class Keys:
    """An identity in a file of that directory, and its recipient; made when it is needed first."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "identity"
        recipient = directory / "recipient"
        if not self.file.exists():
            for path, content in zip((self.file, recipient), fresh_identity(), strict=True):
                path.write_text(content)
        self.recipient = recipient.read_text()


def backed_up(cluster: TestCluster, keys: Keys, target: Path) -> Path:
    cluster.autarky("backup", "create", "--to", str(target), "--recipient", keys.recipient, "--cluster", cluster.name)
    return target


def restore(cluster: TestCluster, *argv: str, check: bool = True) -> Ended:
    return cluster.autarky("restore", *argv, "--cluster", cluster.name, "-o", "plain", check=check)


def restored(cluster: TestCluster, archive: Path, keys: Keys, *argv: str) -> Ended:
    return restore(cluster, str(archive), "--identity", str(keys.file), "--yes", *argv)


def write(cluster: TestCluster, **values: str) -> None:
    """ConfigMaps by name, with one value each."""
    for name, value in values.items():
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value}}
        cluster.kubectl("-n", SPACE, "apply", "--server-side", "-f", "-", stdin=json.dumps(obj))


def written(cluster: TestCluster) -> dict[str, str]:
    """The same, as the API has them."""
    found = json.loads(cluster.kubectl("-n", SPACE, "get", "configmaps", "-o", "json"))["items"]
    return {one["metadata"]["name"]: one["data"]["value"] for one in found if "value" in one.get("data", {})}


def runs_a_new_pod(cluster: TestCluster, name: str, node: str) -> None:
    """Scheduler, kubelet and controllers follow the API as it is now, and a pod runs on that node."""
    image = json.loads(cluster.kubectl("-n", "kube-system", "get", "ds", "kube-proxy", "-o", "json"))
    container = {
        "name": "idle",
        "image": image["spec"]["template"]["spec"]["containers"][0]["image"],
        "command": ["kube-proxy", "--version"],
    }
    pod = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "tolerations": [{"operator": "Exists"}],
        "restartPolicy": "Never",
        "containers": [container],
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {"template": {"spec": pod}},
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(job))
    cluster.kubectl("-n", SPACE, "wait", "--for=condition=Complete", f"job/{name}", "--timeout=120s")
    cluster.kubectl("-n", SPACE, "delete", "job", name)


def members_agree(cluster: TestCluster, nodes: Collection[str] = CONTROL) -> None:
    """All of them are voters of one cluster, with the same keys (`etcdctl endpoint hashkv`)."""

    def voters() -> list[str]:
        found = json.loads(
            cluster.autarky("etcd", "status", "--cluster", cluster.name, "-o", "json", check=False).stdout
        )
        return sorted(one["name"] for one in found["members"] if not one["learner"] and one["error"] is None)

    cluster.wait(f"{sorted(nodes)} vote", lambda: voters() == sorted(nodes), seconds=180, pause=1)
    cluster.wait("their keys are the same", lambda: not difference(cluster, min(nodes)), seconds=30, pause=1)


def data_of(cluster: TestCluster, node: str) -> list[str]:
    """What a control node has below etcd's directory: `member`, and former data."""
    return sorted(cluster.shell(node, f"ls {_ETCD}").split())


def nothing_is_left_over(cluster: TestCluster, node: str) -> None:
    """Of the work: neither a fence, nor half-made data."""
    state = cluster.shell(node, "ls /var/lib/autarky/state /var/lib/autarky/scratch 2>/dev/null || :").split()
    assert not [name for name in state if name.startswith("etcd-fence")], state
    assert not [name for name in data_of(cluster, node) if name.startswith("recovery.")]


# --- as documented ---------------------------------------------------------------------------------------

_DOCUMENT = page("recovery.md")
_WITH_THE_CLUSTER = """\
case "$1 ${2:-}" in
  "recover "* | "payload get" | "backup keygen" | "up -f") ;;
  "kubectl "*) shift; set -- kubectl --cluster NAME "$@" ;;
  "lab "*) of=$2; shift 2; set -- lab "$of" --lab NAME "$@" ;;
  *) set -- "$@" --cluster NAME ;;
esac
"""
"""What makes the cluster of a scenario the only one there is, in a command that may name one."""


def documented(heading: str) -> list[str]:
    """The commands under that heading of docs/recovery.md, block by block."""
    return [step.commands for step in steps_below(_DOCUMENT, heading)]


def typed(cluster: TestCluster, desk: Path, commands: str) -> str:
    """Somebody types them on a terminal, in that directory, and says yes to every question; what they say. `autarky` is
    this one, and the cluster the only one there is."""
    programs = desk / "bin"
    programs.mkdir(exist_ok=True)
    named = _WITH_THE_CLUSTER.replace("NAME", cluster.name)
    of_kubectl = f"--kubeconfig={cluster.directory}/kubeconfig"
    for name, line in {
        "autarky": f'{named}exec {shlex.join(cluster.command)} "$@"',
        "kubectl": f'exec {kubectl_of_the_default_version()} {of_kubectl} "$@"',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    ours, theirs = os.openpty()
    try:
        os.write(ours, b"y\n" * 8)
        done = subprocess.run(
            ["bash", "-eu", "-c", commands],
            cwd=desk,
            env={**environment(cluster.tree), "PATH": f"{programs}:{os.environ['PATH']}"},
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 0, f"{commands}{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout + done.stderr
