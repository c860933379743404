"""A workload that watches what is done to the control plane, as somebody's own would: pods that ask every second, and
say when that fails (`watching`).

Each asks the API, by a client that keeps its connection to the Service `kubernetes`. And each opens a connection to a
pod behind a Service, a new one every time, which is led there by what kube-proxy has written. That is cluster DNS, by
the address that the pod's resolver has: nothing of it has to be started before.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from harness import AGNHOST, TestCluster
from rollouts import patch_plane
from watching import ANSWERED, CALL, new_connections_were_answered, the_api_answered

NAME = "asks-the-api"
_ASKS, _CONNECTS = "asks", "connects"
_ASK = ["/usr/local/bin/agnhost", "inclusterclient", "--poll-interval=1"]
_CONNECT = f"""\
import socket, struct, time

resolver = next(line.split()[1] for line in open("/etc/resolv.conf") if line.startswith("nameserver"))
name = b"".join(bytes([len(part)]) + part for part in b"kubernetes default svc cluster local".split())
question = struct.pack(">6H", 1, 0x0100, 1, 0, 0, 0) + name + bytes(1) + struct.pack(">2H", 1, 1)


def ask():
    # A packet that is lost is sent again after a second, and then after two more.
    with socket.create_connection((resolver, 53), timeout=2.5) as connection:
        connection.settimeout(5)
        connection.sendall(struct.pack(">H", len(question)) + question)
        with connection.makefile("rb") as answer:
            flags, answers = struct.unpack(">4xH2xH4x", answer.read(14))
    return "{ANSWERED}" if answers and flags % 16 == 0 else f"{{answers}} answers, code {{flags % 16}}"


while True:
    began = time.time()
    try:
        said = ask()
    except (OSError, struct.error) as error:
        said = repr(error)
    print(f"{{began:.3f}} {{said}}", flush=True)
    time.sleep(max(0.0, began + 1 - time.time()))
"""


@contextmanager
def a_workload_goes_on(cluster: TestCluster, *, least: int = 30, sets_drain: bool = True) -> Iterator[None]:
    """During the block each of its two pods has asked at least so often, either way, was always answered, and was left
    alone: the same pods, with no restart. No node is drained for another kubelet meanwhile; sets_drain: False where
    the caller has seen to that."""
    with never_drained(cluster) if sets_drain else nullcontext():
        cluster.kubectl("create", "-f", "-", stdin=json.dumps(_deployment(cluster)))
        try:
            cluster.kubectl("rollout", "status", f"deploy/{NAME}", "--timeout=90s")
            before = _pods(cluster)
            for pod in before:
                cluster.wait(f"{pod} asks", lambda pod=pod: CALL in _log(cluster, pod, _ASKS))
                cluster.wait(f"{pod} is answered", lambda pod=pod: ANSWERED in _log(cluster, pod, _CONNECTS))
            began = time.time()
            yield
            ended = time.time()
            assert _pods(cluster) == before, "the workload was disturbed"
            for pod in before:
                the_api_answered(_log(cluster, pod, _ASKS), least=least, ended=ended, read=time.time())
                new_connections_were_answered(_log(cluster, pod, _CONNECTS), least=least, began=began, ended=ended)
        finally:
            cluster.kubectl("delete", "deployment", NAME, "--ignore-not-found", "--cascade=foreground")


@contextmanager
def never_drained(cluster: TestCluster) -> Iterator[None]:
    """No node is drained for another kubelet during the block. How a node is drained belongs to what is asked of its
    kubelet: at the end of the block what has failed is tried again."""
    _drain(cluster, "Never")
    try:
        yield
    finally:
        _drain(cluster, None)


def _drain(cluster: TestCluster, when: str | None) -> None:
    """None: as by default."""
    control = {"name": "control-nodes", "nodes": {"controlPlane": True}, "drain": when}
    patch_plane(cluster, pools=None if when is None else [{"name": "workers", "drain": when}, control])


def _log(cluster: TestCluster, pod: str, container: str) -> str:
    return cluster.kubectl("logs", f"pod/{pod}", f"--container={container}", "--tail=-1")


def _deployment(cluster: TestCluster) -> dict[str, Any]:
    labels = {"app": NAME}
    containers = [
        {"name": _ASKS, "image": AGNHOST, "command": _ASK},
        {"name": _CONNECTS, "image": _image_with_python(cluster), "command": ["python3", "-c", _CONNECT]},
    ]
    # Python as the first process of a container does not hear that it should end.
    pod = {"terminationGracePeriodSeconds": 1, "containers": containers}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "labels": labels},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _image_with_python(cluster: TestCluster) -> str:
    """The node agents': it is on every node."""
    path = "jsonpath={.spec.template.spec.containers[?(@.name=='node-agent')].image}"
    return cluster.kubectl("-n", "kube-system", "get", "ds/node-agent", "-o", path)


def _pods(cluster: TestCluster) -> dict[str, tuple[str, int]]:
    """Name → uid and restarts."""
    found = json.loads(cluster.kubectl("get", "pods", "-l", f"app={NAME}", "-o", "json"))["items"]
    return {pod["metadata"]["name"]: (pod["metadata"]["uid"], _restarts(pod)) for pod in found}


def _restarts(pod: dict[str, Any]) -> int:
    return sum(int(one["restartCount"]) for one in pod["status"]["containerStatuses"])
