"""Other arguments and another version of etcd reach three members, one after the other, under load.

The cluster stays at the newer version: the tests build on each other.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from etcd_versions import (
    NEWER,
    command_line,
    condition,
    etcd_now,
    up_changes_nothing,
    wait_until_changed,
    wanted,
)
from ha import CONTROL, etcd_leader, nothing_failed
from harness import TestCluster
from judgement import only_writes_under_way_failed
from power import Client, Writer
from recoveries import members_agree
from rollouts import patch_plane

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(900, func_only=True)]

QUOTA = 4 * 2**30


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    roles = ["control-plane", "worker"]
    cluster = make_cluster("t-etcd-version-ha", nodes=[{"name": n, "host": "lab", "roles": roles} for n in CONTROL])
    cluster.up()
    return cluster


@pytest.mark.chain("version")
def test_arguments_reach_one_member_after_the_other_and_the_leader_last(cluster: TestCluster) -> None:
    leader, before = etcd_leader(cluster), wanted(cluster)
    with cluster.probed() as reports:
        patch_plane(cluster, componentArguments={"etcd": {"quota-backend-bytes": str(QUOTA)}})
        wait_until_changed(cluster, before)
    for node in CONTROL:
        assert f"--quota-backend-bytes={QUOTA}" in command_line(cluster, node)
    starts = {node: float(cluster.shell(node, "stat -c %Y /proc/$(pgrep -x etcd)")) for node in CONTROL}
    assert max(starts, key=lambda node: starts[node]) == leader
    only_writes_under_way_failed(reports[0])
    members_agree(cluster)


@pytest.mark.chain("version")
def test_a_mistake_reaches_one_member_which_goes_back(cluster: TestCluster) -> None:
    before, pods = wanted(cluster), {node: static_etcd(cluster, node) for node in CONTROL}
    with cluster.probed() as reports:
        patch_plane(cluster, componentArguments={"etcd": {"nonsense": "1"}})
        cluster.wait(
            "it is rolled back",
            lambda: condition(cluster, "SpecApplied")["reason"] == "EtcdRolledBack",
            seconds=200,
        )
    assert "flag provided but not defined" in condition(cluster, "SpecApplied")["message"]
    nothing_failed(reports[0])
    assert ({node: static_etcd(cluster, node) for node in CONTROL}, wanted(cluster)) == (pods, before)
    members_agree(cluster)


@pytest.mark.chain("version")
def test_a_newer_minor_and_other_arguments_in_one_edit(cluster: TestCluster) -> None:
    """Corrects the mistake as well. The agent of a member is killed while that is changed."""
    cluster.autarky("payload", "etcd", "push", NEWER, "--cluster", cluster.name)
    writer, before = Writer(Client(cluster)), wanted(cluster)
    with cluster.probed() as reports, writer.writing():
        patch_plane(
            cluster,
            etcd={"version": NEWER},
            componentArguments={"etcd": {"nonsense": None, "heartbeat-interval": "150", "election-timeout": "1500"}},
        )
        cluster.wait("a member changes", lambda: changing(cluster), seconds=60, pause=0.1)
        (node,) = changing(cluster) or ["n1"]
        cluster.shell(node, "pkill -KILL -f '[a]utarky.agents.node' || true")
        wait_until_changed(cluster, before)
    assert {one["version"] for one in etcd_now(cluster).values()} == {NEWER}
    for node in CONTROL:
        assert "--heartbeat-interval=150" in command_line(cluster, node)
    only_writes_under_way_failed(reports[0])
    assert len(writer.acknowledged) > 100
    assert writer.lost() == set()
    members_agree(cluster)
    up_changes_nothing(cluster)


def static_etcd(cluster: TestCluster, node: str) -> list[str]:
    return [name for name in cluster.static_pods(node) if name.startswith("etcd-")]


def changing(cluster: TestCluster) -> list[str]:
    return [node for node in CONTROL if cluster.shell(node, "ls /var/lib/autarky/state").find("etcd-change.json") >= 0]
