"""Three control nodes whose etcd is not hosted (`selfHosted: "4"`): nobody but the command brings its members back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from etcd_versions import up_changes_nothing
from ha import CONTROL
from harness import TestCluster
from power import Client, Writer
from recoveries import SPACE, Keys, backed_up, members_agree, nothing_is_left_over, restored, write, written

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.chain,
    pytest.mark.rotation,
    pytest.mark.timeout(900, func_only=True),
]


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    roles = ["control-plane", "worker"]
    control = [{"name": name, "host": "lab", "roles": roles} for name in CONTROL]
    cluster = make_cluster("t-recovery-static", nodes=control, selfHosted="4")
    cluster.up()
    cluster.kubectl("create", "namespace", SPACE)
    return cluster


def is_as_before(cluster: TestCluster) -> None:
    """Three members, and nothing that `up` would change."""
    members_agree(cluster)
    cluster.wait("all is healthy", lambda: cluster.status()["healthy"], seconds=180)
    for node in CONTROL:
        nothing_is_left_over(cluster, node)
    up_changes_nothing(cluster)


def test_a_restore_ends_with_three_members(cluster: TestCluster, tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    write(cluster, before="1")
    archive = backed_up(cluster, keys, tmp_path / "archive")
    write(cluster, after="1")
    restored(cluster, archive, keys)
    assert written(cluster) == {"before": "1"}
    is_as_before(cluster)


def test_members_that_hang_are_ended_before_another_etcd_begins(cluster: TestCluster) -> None:
    """All hosts answer, and two members do not: they may wake up at any moment."""
    writes = Writer(Client(cluster))
    with writes.writing():
        cluster.wait("it acknowledges", lambda: len(writes.acknowledged) > 20, seconds=60)
        for node in ("n2", "n3"):
            cluster.shell(node, "pkill -x -STOP etcd")
    cluster.autarky("etcd", "recover-quorum", "--cluster", cluster.name, "--yes", "-o", "plain")
    assert writes.lost() == set()
    is_as_before(cluster)
