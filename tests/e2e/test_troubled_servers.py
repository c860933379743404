"""Three control nodes and a worker: servers that hang, drain, lose power, network, disk or time.

What clients of every node's load balancer meet is measured: new connections ten times a second, on each node. The tests
build on each other, in order. Times are printed with `pytest --log-cli-level=INFO`.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from balancers import Connections, configuration, connecting, has_left, holds
from ha import etcd_leader, nothing_failed, nothing_lost
from harness import STATE, TestCluster
from labels import address_of
from slots import SYSTEM, hosted_on

from autarky.kube.kubeconfig import read_kubeconfig
from autarky.lab.network import LabNetwork
from autarky.model import ports
from autarky.net.tls import client_context
from autarky.render.values import WITHDRAWN

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(900)]

LOG = logging.getLogger(__name__)
CONTROL = ("n1", "n2", "n3")
NODES = (*CONTROL, "n4")
LEAVES_SECONDS = 2.0
"""A check begins at most 0.8 s after the one before it, and has 0.8 s."""
LOOK_SECONDS = 0.3
"""What a look at four load balancers costs, on a busy machine."""
OUTAGE_SECONDS = 3.0
SLOW_SYNC_SECONDS = 0.05
"""A few ms are usual."""


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    nodes = [{"name": name, "host": "lab", "roles": ["control-plane", "worker"]} for name in CONTROL]
    cluster = make_cluster("t-nllb3", nodes=[*nodes, {"name": "n4", "host": "lab"}])
    cluster.up()
    _healthy(cluster)
    return cluster


@pytest.fixture(autouse=True)
def _begins_healthy(cluster: TestCluster) -> None:
    """Also after a test that failed in the middle of its trouble."""
    _healthy(cluster)


def _healthy(cluster: TestCluster) -> None:
    cluster.wait("everything is healthy", lambda: cluster.status()["healthy"], seconds=300)


def _findings(cluster: TestCluster) -> dict[str, str]:
    """What `doctor` says, by subject and sentence."""
    said = cluster.autarky("doctor", "--cluster", cluster.name, "-o", "json", check=False).stdout
    return {f"{finding['subject']}: {finding['what']}": finding["evidence"] for finding in json.loads(said)}


def _is_named(cluster: TestCluster, what: str) -> None:
    def named() -> bool:
        return any(finding.startswith(what) for finding in _findings(cluster))

    cluster.wait(f"doctor says «{what}»", named, seconds=90)


def _outages(met: dict[str, Connections], what: str) -> None:
    for seen in met.values():
        LOG.info(f"{what}: new connections on {seen}")
    assert not [str(seen) for seen in met.values() if seen.outage > OUTAGE_SECONDS]


def _is_held(cluster: TestCluster, server: str, hosts: Sequence[str]) -> None:
    """By each of these load balancers: else it would have left before any trouble."""
    cluster.wait(f"{server} is in use", lambda: all(holds(cluster, host, server) for host in hosts))


def _leaves(cluster: TestCluster, server: str, hosts: Sequence[str]) -> float:
    """Seconds until no load balancer holds the server for ready, as each of them answers."""
    began = time.monotonic()
    while not all(has_left(cluster, host, server) for host in hosts):
        assert time.monotonic() - began < 30, f"{server} is still in use"
    return time.monotonic() - began


def _held_for(cluster: TestCluster, server: str, hosts: Sequence[str]) -> float:
    """Seconds until the last look began in which a load balancer held the server. How long a look takes is a matter of
    this machine."""
    began = held = time.monotonic()
    while True:
        look = time.monotonic()
        if all(has_left(cluster, host, server) for host in hosts):
            return held - began
        held = look
        assert held - began < 30, f"{server} is still in use"


# --- a server that hangs, and one that drains -----------------------------------------------------------------


def test_a_hung_server_leaves_within_two_seconds_and_is_named(cluster: TestCluster) -> None:
    """SIGSTOP: it accepts, and never answers. Others serve meanwhile, and in the end it comes back."""
    _is_held(cluster, "n2-hosted", NODES)
    with cluster.probed(inside="n4") as reports, connecting(cluster, NODES) as met:
        time.sleep(2)  # so that there is a before
        cluster.shell("n2", "pkill -STOP -x kube-apiserver")
        took = _held_for(cluster, "n2-hosted", NODES)
        LOG.info(f"a hung server left all load balancers after {took:.2f} s")
        _is_named(cluster, "n2: an API server hangs")
        time.sleep(5)  # for what was cut, and comes again
    cluster.shell("n2", "pkill -CONT -x kube-apiserver")
    assert took <= LEAVES_SECONDS + LOOK_SECONDS
    _outages(met, "a hung server")
    nothing_lost(reports[0])
    _healthy(cluster)


def test_a_request_in_flight_on_a_draining_server_ends_well(cluster: TestCluster) -> None:
    found = read_kubeconfig(cluster.directory / "kubeconfig")
    context = client_context(found.ca_pem, found.client_cert_pem, found.client_key_pem)
    address = cluster.kubectl("get", "node", "n1", "-o", "jsonpath={.status.addresses[0].address}")
    body = json.dumps({"metadata": {"name": "slowly-written"}}).encode()
    shown = _certificates(cluster)
    _is_held(cluster, "n1-hosted", NODES)
    with socket.create_connection((address, 6443)) as raw, context.wrap_socket(raw, server_hostname=address) as request:
        met = ssl.DER_cert_to_PEM_cert(request.getpeercert(binary_form=True) or b"")
        assert [node for node, pem in shown.items() if pem == met] == ["n1"], "another server has the request"
        head = "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        request.sendall(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body[:5])
        cluster.kubectl(*SYSTEM, "delete", "pod", "--wait=false", *hosted_on("n1"))
        cluster.wait("it drains", lambda: all(has_left(cluster, host, "n1-hosted") for host in NODES), seconds=60)
        time.sleep(8)  # it is at its end: no load balancer has sent it anything for that long
        request.sendall(body[5:])
        assert _answer(request).startswith(b"HTTP/1.1 201 ")
    _healthy(cluster)


def _certificates(cluster: TestCluster) -> dict[str, str]:
    """Control node → what its hosted API server shows on its own port: each has one of its own."""
    return {node: ssl.get_server_certificate((address_of(cluster, node), ports.API_HOSTED)) for node in CONTROL}


def _answer(request: ssl.SSLSocket) -> bytes:
    return b"".join(iter(lambda: request.recv(65536), b""))


# --- power and network ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("node", CONTROL)
def test_a_power_cut_of_a_control_node_fails_new_connections_for_three_seconds_at_most(
    cluster: TestCluster, node: str
) -> None:
    others = [name for name in NODES if name != node]
    _is_held(cluster, f"{node}-hosted", others)
    with connecting(cluster, others) as met:
        time.sleep(2)
        cluster.autarky("lab", "cut", "--lab", cluster.name, node)
        took = _leaves(cluster, f"{node}-hosted", others)
        time.sleep(15)
    cluster.autarky("lab", "start", "--lab", cluster.name, node, "-o", "plain")
    assert took <= LEAVES_SECONDS + LOOK_SECONDS
    _outages(met, f"power cut of {node}")
    _healthy(cluster)


@contextmanager
def _unplugged(cluster: TestCluster, node: str) -> Iterator[None]:
    """The node's cable is out: its link is down, at the switch's end."""
    directory = STATE / "autarky/labs" / cluster.name
    subnet = json.loads((directory / "lab.json").read_text())["subnet"]
    network = LabNetwork(str(directory), ipaddress.IPv4Network(subnet))
    port = ["ip", "-n", network.switch, "link", "set", network.outer_interface(node)]
    subprocess.run([*port, "down"], check=True)
    try:
        yield
    finally:
        subprocess.run([*port, "up"], check=True)


@pytest.mark.parametrize("node", ["n3", "n4"])
def test_a_node_without_network_is_named_and_survived(cluster: TestCluster, node: str) -> None:
    others = [name for name in NODES if name != node]
    with (
        cluster.probed(inside=others[-1]) as reports,
        connecting(cluster, others) as met,
        _unplugged(cluster, node),
    ):
        time.sleep(10)
        _is_named(cluster, f"{node}: it and the other nodes do not reach each other")
    _outages(met, f"{node} without network")
    nothing_lost(reports[0])
    _healthy(cluster)


def test_of_two_operators_on_both_sides_of_a_split_never_two_lead(cluster: TestCluster) -> None:
    """The fence: the leader that is cut off has stopped before another may lead, by no clock but its own."""
    placed = cluster.kubectl(*SYSTEM, "get", "pods", "-l", "k8s-app=autarky-operator", "-o", "jsonpath={..nodeName}")
    [leader] = [node for node in placed.split() if _operator_leads(cluster, node)]
    [other] = [node for node in placed.split() if node != leader]
    seen: list[tuple[bool, bool]] = []
    with cluster.probed(inside="n4") as reports, _unplugged(cluster, leader):
        deadline = time.monotonic() + 60
        while not seen or not seen[-1][0] or time.monotonic() < deadline - 30:
            # In this order: whoever leads when it is asked second led while the first one did.
            seen.append((_operator_leads(cluster, other), _operator_leads(cluster, leader)))
            assert time.monotonic() < deadline, "nobody leads on the side that has the quorum"
    assert (False, True) in seen, "the cut came after the term"
    assert (True, True) not in seen
    nothing_lost(reports[0])
    _healthy(cluster)
    assert [_operator_leads(cluster, node) for node in (other, leader)] == [True, False]


def _operator_leads(cluster: TestCluster, node: str) -> bool:
    """As its own metric says, asked on its own node: no network is needed."""
    ask = f"exec 3<>/dev/tcp/127.0.0.1/{ports.OPERATOR}; printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3"
    said = cluster.shell(node, f'bash -c "{ask}"')
    return "\nautarky_operator_leads 1.0" in said


# --- disk and clock -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["follower", "leader"])
def test_a_slow_disk_under_one_etcd_is_named_and_survived(cluster: TestCluster, role: str) -> None:
    """Below a follower it fails no request; below the leader requests are slow, some fail, and nothing is lost."""
    leader = etcd_leader(cluster)
    node = leader if role == "leader" else next(name for name in CONTROL if name != leader)
    with cluster.probed() as reports, connecting(cluster, NODES) as met:
        with _writes_a_second(cluster, node, 10):
            before = _syncs(cluster, node)
            _is_named(cluster, f"{node}: etcd's disk is slow")
            time.sleep(10)
            took = _syncs(cluster, node).since(before)
        time.sleep(10)  # for what still waits
    LOG.info(f"a slow disk below etcd's {role}, {1000 * took:.0f} ms for a sync: {reports[0]['verdict']}")
    assert took > SLOW_SYNC_SECONDS, "the disk was not slow"
    _outages(met, f"a slow disk below etcd's {role}")
    nothing_lost(reports[0])
    if role == "follower":
        nothing_failed(reports[0])
    _healthy(cluster)


@contextmanager
def _writes_a_second(cluster: TestCluster, node: str, number: int) -> Iterator[None]:
    """No more than so many by etcd's control group to the disk below its data, so says the kernel."""
    limit, disk = cluster.shell(node, _FIND_LIMIT).split()
    in_effect = f"{disk} {number}"
    try:
        cluster.shell(node, f"echo '{in_effect}' >{limit}")
        assert in_effect in cluster.shell(node, f"cat {limit}").splitlines()
        yield
        assert in_effect in cluster.shell(node, f"cat {limit}").splitlines(), "etcd was started anew, without the limit"
    finally:
        cluster.shell(node, f"[ ! -e {limit} ] || echo '{disk} 0' >{limit}")


_FIND_LIMIT = """\
limit=/sys/fs/cgroup/blkio$(sed -n 's/.*:blkio://p' /proc/$(pgrep -x etcd)/cgroup)/blkio.throttle.write_iops_device
[ -e $limit ] || { echo "there is no $limit: only control groups of version 1 have it" >&2; exit 1; }
echo $limit $(findmnt -no MAJ:MIN -T /var/lib/etcd)
"""


@dataclass(frozen=True)
class _Syncs:
    """How often etcd has synced its log since its start, and how many seconds that took."""

    number: float
    seconds: float

    def since(self, before: _Syncs) -> float:
        """Seconds that one took on average."""
        assert self.number > before.number, "etcd has synced nothing"
        return (self.seconds - before.seconds) / (self.number - before.number)


def _syncs(cluster: TestCluster, node: str) -> _Syncs:
    metric = "etcd_disk_wal_fsync_duration_seconds"
    said = cluster.shell(node, f"curl -s http://127.0.0.1:{ports.ETCD_HEALTH}/metrics | grep ^{metric}_")
    found = {name: float(value) for name, value in (line.rsplit(" ", 1) for line in said.splitlines())}
    return _Syncs(found[f"{metric}_count"], found[f"{metric}_sum"])


def test_a_clock_that_is_off_is_named(cluster: TestCluster) -> None:
    """All test hosts have this machine's clock: what the host says when it is asked for the time is another one."""
    ahead = "/usr/local/bin/date"
    cluster.shell("n2", f'printf \'#!/bin/sh\\nexec /bin/date -d "90 seconds" "$@"\\n\' >{ahead}; chmod 755 {ahead}')
    try:
        said = [finding for finding in _findings(cluster) if "its clock is" in finding]
    finally:
        cluster.shell("n2", f"rm {ahead}")
    assert said == ["n2: its clock is +90 s off the others'"]


def test_a_withdrawn_server_gets_no_new_connections_until_its_agent_takes_that_back(cluster: TestCluster) -> None:
    """As with a clock that is ahead; the test hosts share one, so somebody else says so. The agent knows better."""
    cluster.kubectl("annotate", "node", "n2", f"{WITHDRAWN}=the clock is 93 s ahead of those of n1, n3")
    cluster.wait("n2 is withdrawn everywhere", lambda: all(_withdrawn(cluster, host) == ["n2"] for host in NODES))
    slices = (
        "-n",
        "default",
        "get",
        "endpointslice",
        "kubernetes",
        "-o",
        "jsonpath={.endpoints[*].conditions.serving}",
    )
    assert cluster.kubectl(*slices) == "false"
    cluster.wait("n2 is in use again", lambda: not any(_withdrawn(cluster, host) for host in NODES), seconds=120)
    _healthy(cluster)


def _withdrawn(cluster: TestCluster, host: str) -> list[str]:
    found = configuration(cluster, host)
    return [node.name for node in found.servers if node.withdrawn] if found is not None else []


# --- spread -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("app", ["kube-controller-manager", "kube-scheduler", "autarky-operator", "kube-dns"])
def test_no_deployment_of_ours_lives_on_one_node_only(cluster: TestCluster, app: str) -> None:
    pods = json.loads(cluster.kubectl(*SYSTEM, "get", "pods", "-l", f"k8s-app={app}", "-o", "json"))["items"]
    hosted = [pod for pod in pods if pod["metadata"]["labels"].get("autarky.dev/slot") != "standby"]
    assert len({pod["spec"]["nodeName"] for pod in hosted}) >= 2
