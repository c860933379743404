"""What the scenarios of several control nodes share: who leads etcd, probes from inside of a node, power, health."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from harness import STATE, TestCluster
from judgement import (  # noqa: F401 # the scenarios have them from here
    LONGEST_OUTAGE,
    longest_outage,
    nothing_failed,
    nothing_lost,
    survived,
)

CONTROL = ("n1", "n2", "n3")
WORKER = "w1"
EVERYBODY = (*CONTROL, WORKER)
RETURN_SECONDS = 240.0
TAIL_SECONDS = 2.0
"""After the outage of a cut: for requests that waited through it."""
DRAIN_GUARDS = (
    "--ignore-daemonsets",
    "--delete-emptydir-data",
    "--force",
    "--pod-selector=k8s-app=etcd-quorum-guard",
)
"""Of `kubectl drain`: nothing but the quorum guard of that node."""
ETCDCTL = (
    "/var/lib/autarky/bin/etcdctl --endpoints=https://127.0.0.1:2379 --cacert=/etc/kubernetes/pki/etcd/ca.crt"
    " --cert=/etc/kubernetes/pki/etcd/server.crt --key=/etc/kubernetes/pki/etcd/server.key"
)


def three_and_one() -> dict[str, Any]:
    """examples/lab-3.yaml."""
    nodes = [{"name": name, "host": "lab", "roles": ["control-plane", "worker"]} for name in CONTROL]
    return {"nodes": [*nodes, {"name": WORKER, "host": "lab", "roles": ["worker"]}]}


# --- looking ---------------------------------------------------------------------------------------------


def etcd_leader(cluster: TestCluster, nodes: Sequence[str] = CONTROL) -> str:
    """The node whose member leads; "" while none does."""
    for node in nodes:
        [said] = json.loads(cluster.shell(node, f"{ETCDCTL} endpoint status -w json"))
        if said["Status"].get("leader") == said["Status"]["header"]["member_id"]:  # left out while nobody leads
            return node
    return ""


def etcd_members(cluster: TestCluster, node: str) -> set[str]:
    """The names of all members, as the one of this node has them."""
    said = json.loads(cluster.shell(node, f"{ETCDCTL} member list -w json"))
    return {member["name"] for member in said["members"]}


def member_objects(cluster: TestCluster) -> dict[str, Any]:
    """Node → its EtcdMember."""
    found = json.loads(cluster.kubectl("get", "etcdmembers", "-o", "json"))["items"]
    return {obj["metadata"]["name"]: obj for obj in found}


def member_phases(cluster: TestCluster) -> dict[str, str]:
    """Node → the phase of its EtcdMember; "" while nothing was said of it."""
    return {name: obj.get("status", {}).get("phase", "") for name, obj in member_objects(cluster).items()}


def out_of_place(cluster: TestCluster) -> list[str]:
    """What is not as it should be: not ready, a standby that is active, a host that is missing, no API."""
    found = cluster.status()
    rows = [
        f"{row['component']} on {row['node']} ({row['slot']}) is {row['health']} {row['detail']}".rstrip()
        for row in found["rows"]
        if row["health"] not in _IN_PLACE.get((row["slot"], row["component"] == "node-agent"), {"ready"})
    ]
    api = [] if found["api"] == "ready" else [f"API: {found['api']}"]
    return [*api, *found["absent"], *rows]


_IN_PLACE = {("standby", False): {"dormant"}}


def wait_until_healthy(cluster: TestCluster) -> float:
    """Seconds until all is where it belongs, with nobody's help."""
    began = looked = time.monotonic()
    while left := out_of_place(cluster):
        now = time.monotonic()
        assert now < began + RETURN_SECONDS, f"after {RETURN_SECONDS:.0f} s: {left}"
        time.sleep(max(0.5, now - looked))  # as long as the look took, as in `wait`
        looked = time.monotonic()
    cluster.announcements_end()
    return time.monotonic() - began


def lab_hosts(cluster: TestCluster) -> set[str]:
    lab = json.loads((STATE / "autarky/labs" / cluster.name / "lab.json").read_text())
    return set(lab["hosts"])


# --- API servers ---------------------------------------------------------------------------------------


@contextmanager
def api_servers_cut_off(cluster: TestCluster, *nodes: str) -> Iterator[None]:
    """Nobody reaches the API servers of these nodes, in any slot, from anywhere."""
    with _refused(cluster, ["--dport 7443:7445 -j REJECT --reject-with tcp-reset"], *nodes):
        yield


@contextmanager
def member_cut_off(cluster: TestCluster, node: str) -> Iterator[None]:
    """etcd runs there, and nobody reaches it: neither the other members nor the node itself, which
    reaches the others as a client only."""
    refused = "--dport 2379:2381 -j REJECT --reject-with tcp-reset"
    with _refused(cluster, [refused, "--sport 2380 -j DROP"], node):
        yield


@contextmanager
def _refused(cluster: TestCluster, rules: Sequence[str], *nodes: str) -> Iterator[None]:
    """What these rules of iptables say of TCP that comes in."""

    def write(verb: str) -> None:
        for node in nodes:
            cluster.shell(node, "; ".join(f"iptables -{verb} INPUT -p tcp {rule}" for rule in rules))

    write("I")
    try:
        yield
    finally:
        write("D")


def uses_its_own_servers(cluster: TestCluster, node: str) -> bool:
    """Whether its load balancer goes to an API server of its own."""
    ask = "curl -s -o /dev/null -w '%{http_code} ' http://127.0.0.1:6444/"
    slots = ("hosted", "standby", "spare")
    return "200" in cluster.shell(node, "; ".join(f"{ask}{node}-{slot}" for slot in slots))


def node_ready(cluster: TestCluster, node: str) -> str:
    path = "{.status.conditions[?(@.type=='Ready')].status}"
    return cluster.kubectl("get", "node", node, "-o", f"jsonpath={path}")


@contextmanager
def hosted_server_killed_again_and_again(cluster: TestCluster, node: str) -> Iterator[Callable[[], None]]:
    """Every second, so that it never serves; until what is yielded is called."""
    unit = "kill-the-hosted-server"
    loop = "while :; do pkill -KILL -f -- '[-]-secure-port=7443'; sleep 1; done"

    def stop() -> None:
        cluster.shell(node, f"systemctl stop {unit} 2>/dev/null || true")

    cluster.shell(node, f'systemd-run --quiet --collect --unit={unit} sh -c "{loop}"')
    try:
        yield stop
    finally:
        stop()


# --- a worker that lies -------------------------------------------------------------------------------------


@contextmanager
def a_static_pod_that_passes_for_an_api_server(cluster: TestCluster, node: str, version: str) -> Iterator[None]:
    """Ready, with the label and the image of one: its kubelet says whatever it likes, but that it is hosted."""
    image, ours = f"registry.k8s.io/kube-apiserver:{version}", "registry.k8s.io/pause:3.10.2"
    container = {"name": "kube-apiserver", "image": image}
    labels = {"k8s-app": "kube-apiserver"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "forged", "namespace": "kube-system", "labels": labels},
        "spec": {"hostNetwork": True, "terminationGracePeriodSeconds": 0, "containers": [container]},
    }
    path = "/etc/kubernetes/manifests/forged.json"
    cluster.shell(node, f"/var/lib/autarky/bin/ctr -n k8s.io images tag --force {ours} {image}")
    cluster.shell(node, f"echo '{json.dumps(pod)}' > {path}")
    try:
        ready = ("wait", "--for=condition=Ready", f"pod/forged-{node}", "--timeout=5s")
        cluster.wait("the forged pod is Ready", lambda: cluster.kubectl("-n", "kube-system", *ready, check=False))
        yield
    finally:
        cluster.shell(node, f"rm -f {path}")


# --- power -----------------------------------------------------------------------------------------------


def cut(cluster: TestCluster, *nodes: str) -> None:
    with cluster.announced(LONGEST_OUTAGE + TAIL_SECONDS):
        cluster.autarky("lab", "cut", "--lab", cluster.name, *nodes)


def start(cluster: TestCluster, *nodes: str) -> None:
    """Until `wait_until_healthy`, clients may wait: what starts takes the processors."""
    cluster.announce()
    cluster.autarky("lab", "start", "--lab", cluster.name, *nodes, "-o", "plain")
