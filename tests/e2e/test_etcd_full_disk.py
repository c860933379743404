"""The disk of one of three members is full, and then all three are: the others go on, all come back by themselves, and
nothing that was acknowledged is lost.

How long the return took is printed (`pytest --log-cli-level=INFO`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from etcd_versions import etcd_now
from ha import CONTROL, etcd_leader, member_objects, wait_until_healthy
from harness import TestCluster
from power import Client, Writer
from recoveries import members_agree

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(900)]

LOG = logging.getLogger(__name__)
FULL_SECONDS = 45
BACK_SECONDS = 150.0
"""The kubelet waits ever longer before it starts a member again, up to a minute and a half by then."""
BYTES, MOST_WRITES = 900_000, 200
"""Of one big write: the API takes one MiB. So many are more than etcd keeps for its log beforehand (64 MB, twice)."""
PATH, LABEL = "/api/v1/namespaces/default/configmaps", "filling=yes"
UNIT = "fill-the-disk"


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    roles = ["control-plane", "worker"]
    cluster = make_cluster("t-full-disk", nodes=[{"name": n, "host": "lab", "roles": roles} for n in CONTROL])
    cluster.up()
    wait_until_healthy(cluster)
    cluster.wait("all are known by their ids", lambda: all(ids(cluster).values()), seconds=90)
    return cluster


@contextmanager
def full(cluster: TestCluster, *nodes: str) -> Iterator[None]:
    """The file system of etcd's data, the agents' state and the manifests: of all that there is, a file has everything,
    and what becomes free goes to another."""
    dd = "dd if=/dev/zero of=/var/lib/autarky/rest bs=4k oflag=append conv=notrunc status=none"
    loop = f"while :; do {dd} 2>/dev/null; sleep 0.2; done"
    try:
        for node in nodes:
            cluster.shell(node, "cd /var/lib/autarky; fallocate -l $(df --output=avail -B1 . | tail -1) full || true")
            cluster.shell(node, f"systemd-run --quiet --collect --unit={UNIT} sh -c '{loop}'")
        cluster.wait("the disks are full", lambda: are_full(cluster, *nodes), seconds=30)
        yield
        assert are_full(cluster, *nodes)
    finally:
        for node in nodes:
            cluster.shell(node, f"systemctl stop {UNIT}; rm -f /var/lib/autarky/full /var/lib/autarky/rest")


def are_full(cluster: TestCluster, *nodes: str) -> bool:
    return all(int(cluster.shell(node, "df --output=avail -B1 /var/lib/etcd | tail -1")) == 0 for node in nodes)


def refusals(cluster: TestCluster, node: str) -> int:
    """How often etcd has said that it cannot write."""
    logs = "cat /var/log/pods/kube-system_etcd-*/etcd/*.log"
    return int(cluster.shell(node, f"{logs} | grep -c 'no space left on device' || true"))


def write_until(cluster: TestCluster, met: Callable[[bool], bool]) -> set[str]:
    """Big objects, until `met` (of whether the last one was acknowledged); the names of those that were."""
    acknowledged: set[str] = set()
    client, (label, _, value) = Client(cluster), LABEL.partition("=")
    for _ in range(MOST_WRITES):
        name = f"{label}-{time.time_ns()}"
        big = {"metadata": {"name": name, "labels": {label: value}}, "data": {"big": "x" * BYTES}}
        done = client.send("POST", PATH, big) is not None
        acknowledged |= {name} if done else set()
        if met(done):
            return acknowledged
    raise AssertionError(f"etcd has taken {MOST_WRITES} times {BYTES} bytes on a full disk")


def are_lost(cluster: TestCluster, names: set[str]) -> set[str]:
    found = cluster.kubectl("get", "configmap", "-l", LABEL, "-o", "name").split()
    return names - {name.removeprefix("configmap/") for name in found}


def ids(cluster: TestCluster) -> dict[str, str]:
    return {name: str(obj.get("status", {}).get("memberID", "")) for name, obj in member_objects(cluster).items()}


def doctor(cluster: TestCluster) -> str:
    return cluster.autarky("doctor", "--cluster", cluster.name, check=False).stdout


def comes_back(cluster: TestCluster, what: str, big: set[str]) -> None:
    """big: the names of the big objects that were acknowledged, all of which are there, and then deleted."""
    over = time.monotonic()
    cluster.wait("the API answers", cluster.api_answers, seconds=BACK_SECONDS)
    LOG.info(f"{what}: the API answers {time.monotonic() - over:.1f} s after there is space")
    members_agree(cluster)
    LOG.info(f"{what}: all members serve {time.monotonic() - over:.1f} s after there is space")
    assert are_lost(cluster, big) == set()
    cluster.kubectl("delete", "configmap", "-l", LABEL, "--wait=false")
    wait_until_healthy(cluster)


def test_the_disk_of_etcds_leader_is_full_and_the_others_go_on(cluster: TestCluster) -> None:
    node, before, writer = etcd_leader(cluster), ids(cluster), Writer(Client(cluster))
    cluster.announce()
    with full(cluster, node):
        said = refusals(cluster, node)
        big = write_until(cluster, lambda _: refusals(cluster, node) > said)
        cluster.wait("another member leads", lambda: etcd_leads_elsewhere(cluster, node), seconds=60)
        with writer.writing():
            time.sleep(FULL_SECONDS)  # the trouble itself, not a wait for anything
            assert cluster.api_answers()
            assert f"{node}: its disk is nearly full" in doctor(cluster)
            assert etcd_now(cluster)[node]["error"]
            assert "does not answer" in member_objects(cluster)[node]["status"]["message"]
    assert len(writer.acknowledged) > FULL_SECONDS, "the others went on"
    assert are_lost(cluster, big) == set()
    comes_back(cluster, "one full disk", big)
    assert writer.lost() == set()
    assert ids(cluster) == before, "its data was good: it is the same member"


def etcd_leads_elsewhere(cluster: TestCluster, node: str) -> bool:
    leader = etcd_leader(cluster, [one for one in CONTROL if one != node])
    return leader not in ("", node)


def test_all_disks_are_full_and_all_members_come_back(cluster: TestCluster) -> None:
    before, writer = ids(cluster), Writer(Client(cluster))
    cluster.announce()
    with writer.writing():
        cluster.wait("it acknowledges", lambda: len(writer.acknowledged) > 20, seconds=60)
        with full(cluster, *CONTROL):
            big = write_until(cluster, lambda done: not done)
            cluster.wait("etcd takes no writes", lambda: not acknowledges(writer), seconds=120)
            time.sleep(FULL_SECONDS)  # the trouble itself
            said = doctor(cluster)
            assert [node for node in CONTROL if f"{node}: its disk is nearly full" in said] == list(CONTROL), said
            assert not acknowledges(writer)
        ended = len(writer.acknowledged)
        comes_back(cluster, "all disks full", big)
        cluster.wait("it acknowledges again", lambda: len(writer.acknowledged) > ended + 20, seconds=60)
    assert writer.lost() == set()
    assert ids(cluster) == before


def acknowledges(writer: Writer) -> bool:
    """Within some seconds from now."""
    before = len(writer.acknowledged)
    time.sleep(4)
    return len(writer.acknowledged) > before
