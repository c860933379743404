"""Backups of three control nodes: not all on one disk, and made although a node dies or has no room."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from ha import CONTROL, cut, start, wait_until_healthy
from harness import TestCluster

from autarky.archive import fresh_identity

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(900, func_only=True)]

DIRECTORY = "/var/lib/autarky/backups"
RECIPIENT = fresh_identity()[1]
"""Nothing here is opened."""


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    roles = ["control-plane", "worker"]
    cluster = make_cluster("t-backup-ha", nodes=[{"name": n, "host": "lab", "roles": roles} for n in CONTROL])
    cluster.up()
    return cluster


def status_of(cluster: TestCluster, name: str) -> dict[str, Any]:
    found = json.loads(cluster.kubectl("get", "backup", name, "-o", "json"))
    status: dict[str, Any] = found.get("status") or {}
    return status


def created(cluster: TestCluster, name: str, *argv: str) -> None:
    cluster.autarky("backup", "create", name, "--recipient", RECIPIENT, "--cluster", cluster.name, *argv)


def ended(cluster: TestCluster, name: str, seconds: float = 120) -> dict[str, Any]:
    phases = ("Complete", "Failed")
    cluster.wait(f"{name} has ended", lambda: status_of(cluster, name).get("phase") in phases, seconds=seconds, pause=1)
    return status_of(cluster, name)


def test_each_is_made_on_another_node(cluster: TestCluster) -> None:
    names = [f"spread-{number}" for number in range(len(CONTROL))]
    for name in names:
        created(cluster, name, "--no-wait")
    found = [ended(cluster, name) for name in names]
    assert [one["phase"] for one in found] == ["Complete"] * len(CONTROL)
    assert sorted(one["node"] for one in found) == sorted(CONTROL)
    for one in found:
        assert one["file"] in cluster.shell(one["node"], f"ls {DIRECTORY}").split()


def test_when_its_node_dies_another_one_makes_it(cluster: TestCluster) -> None:
    """Held still first, so that the power goes in the middle."""
    created(cluster, "cut", "--no-wait")
    cluster.wait("a pod makes it", lambda: _held_still(cluster, status_of(cluster, "cut").get("node")), seconds=60)
    node = status_of(cluster, "cut")["node"]
    cut(cluster, node)
    try:
        found = ended(cluster, "cut", seconds=300)
        assert found["phase"] == "Complete"
        assert found["node"] != node
        assert found["attempt"] == 2
    finally:
        start(cluster, node)
        wait_until_healthy(cluster)
    files = cluster.shell(node, f"ls -A {DIRECTORY} 2>/dev/null || :")
    assert "-cut-" not in files
    leftover = ("-n", "kube-system", "get", "pods", "-l", "autarky.dev/backup=cut", "-o", "name")
    cluster.wait("its pods are gone", lambda: cluster.kubectl(*leftover) == "", seconds=120, pause=1)


def _held_still(cluster: TestCluster, node: str | None) -> bool:
    """Whether the program was there and is stopped now."""
    if node is None:
        return False
    return cluster.shell(node, "pkill -STOP -f '[a]utarky.agents.backup' && echo yes || :").strip() == "yes"


FILL = """\
free=$(df --output=avail -B1 /var/lib/autarky | tail -n 1)
[ "$free" -lt 80000000 ] || fallocate -l $((free - 50000000)) /var/lib/autarky/ballast.$(date +%s%N)
[ "$free" -lt 80000000 ] && echo full || :
"""


def test_without_room_it_says_so_and_etcd_goes_on(cluster: TestCluster) -> None:
    """etcd frees 64 MB now and then, for the next file of its log: what is full is to stay full for a while."""
    node = CONTROL[0]
    full_for = 0

    def stays_full() -> bool:
        nonlocal full_for
        full_for = full_for + 1 if "full" in cluster.shell(node, FILL) else 0
        return full_for >= 10

    try:
        cluster.wait("the disk stays full", stays_full, seconds=120, pause=1)
        created(cluster, "full", "--node", node, "--no-wait")
        found = ended(cluster, "full")
        assert found["phase"] == "Failed", cluster.shell(node, "df -B1 /var/lib/etcd; ls -l /var/lib/etcd/member/wal")
        assert "free some space on the node" in found["message"]
    finally:
        cluster.shell(node, "rm -f /var/lib/autarky/ballast.*")
    time.sleep(1)
    created(cluster, "roomy", "--node", node)
    assert status_of(cluster, "roomy")["phase"] == "Complete"
