"""Other arguments and another version of etcd reach three members, one after the other, under load.

The cluster stays at the newer version: the tests build on each other.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from etcd_versions import (
    NEVER_WORKS,
    NEWER,
    a_newer_image_that_never_works,
    command_line,
    condition,
    etcd_now,
    up_changes_nothing,
    wait_until_changed,
    wanted,
)
from ha import CONTROL, etcd_leader, nothing_failed
from harness import Show, TestCluster
from judgement import Report, figures, only_writes_under_way_failed
from kills import kill
from power import Client, Writer
from recoveries import members_agree
from rollouts import patch_plane

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(900, func_only=True)]

QUOTA = 4 * 2**30
TIMES = {"heartbeat-interval": "150", "election-timeout": "1500"}
"""Other arguments."""


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    roles = ["control-plane", "worker"]
    cluster = make_cluster("t-etcd-version-ha", nodes=[{"name": n, "host": "lab", "roles": roles} for n in CONTROL])
    cluster.up()
    return cluster


def goes_on(report: Report, show: Show) -> None:
    """For clients, with how many requests had no answer: a write may have none, of each writer."""
    show(figures(report))
    only_writes_under_way_failed(report)


def was_last(cluster: TestCluster, leader: str) -> None:
    """Whose leadership had to move first."""
    starts = {node: float(cluster.shell(node, "stat -c %Y /proc/$(pgrep -x etcd)")) for node in CONTROL}
    assert max(starts, key=lambda node: starts[node]) == leader, starts


@pytest.mark.chain("version")
def test_arguments_reach_one_member_after_the_other_and_the_leader_last(cluster: TestCluster, show: Show) -> None:
    leader, before = etcd_leader(cluster), wanted(cluster)
    with cluster.probed() as reports:
        patch_plane(cluster, componentArguments={"etcd": {"quota-backend-bytes": str(QUOTA)}})
        wait_until_changed(cluster, before)
    for node in CONTROL:
        assert f"--quota-backend-bytes={QUOTA}" in command_line(cluster, node)
    was_last(cluster, leader)
    goes_on(reports[0], show)
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
def test_a_newer_minor_that_does_not_work_reaches_one_member_which_goes_back(cluster: TestCluster) -> None:
    """On the node whose member is changed first. Then the former one is asked for; the next test asks for the same one
    again, with an image that works."""
    leader, before = etcd_leader(cluster), wanted(cluster)
    first = min(node for node in CONTROL if node != leader)
    pods = {node: static_etcd(cluster, node) for node in CONTROL}
    others = {node: etcd_process(cluster, node) for node in CONTROL if node != first}
    with a_newer_image_that_never_works(cluster, first):
        cluster.autarky("payload", "etcd", "push", NEWER, "--cluster", cluster.name)
        with cluster.probed() as reports:
            patch_plane(cluster, etcd={"version": NEWER}, componentArguments={"etcd": {"nonsense": None, **TIMES}})
            cluster.wait(
                "it is rolled back", lambda: NEVER_WORKS in condition(cluster, "SpecApplied")["message"], seconds=200
            )
            said = condition(cluster, "SpecApplied")
            cluster.wait("all should be as before", lambda: wanted(cluster) == before)
        assert said["reason"] == "EtcdRolledBack"
        assert f"the member of {first}: " in said["message"]
        nothing_failed(reports[0])
        assert {node: static_etcd(cluster, node) for node in CONTROL} == pods
        assert {node: etcd_process(cluster, node) for node in others} == others
        members_agree(cluster)
    patch_plane(cluster, etcd={"version": None}, componentArguments={"etcd": dict.fromkeys(TIMES)})
    cluster.wait("nothing is left to say", lambda: condition(cluster, "SpecApplied")["status"] == "True")


@pytest.mark.chain("version")
def test_a_newer_minor_and_other_arguments_in_one_edit(cluster: TestCluster, show: Show) -> None:
    """The agent of a member is killed while that is changed."""
    cluster.autarky("payload", "etcd", "push", NEWER, "--cluster", cluster.name)
    writer, before = Writer(Client(cluster)), wanted(cluster)
    with cluster.probed() as reports, writer.writing():
        patch_plane(cluster, etcd={"version": NEWER}, componentArguments={"etcd": TIMES})
        node = first_to_change(cluster)
        kill(cluster, node, "pgrep -f '[a]utarky.agents.node'")
        assert changing(cluster) == [node], "its change had ended before"
        wait_until_changed(cluster, before)
    assert {one["version"] for one in etcd_now(cluster).values()} == {NEWER}
    for node in CONTROL:
        assert "--heartbeat-interval=150" in command_line(cluster, node)
    goes_on(reports[0], show)
    assert len(writer.acknowledged) > 100
    assert writer.lost() == set()
    members_agree(cluster)
    up_changes_nothing(cluster)


def static_etcd(cluster: TestCluster, node: str) -> list[str]:
    return [name for name in cluster.static_pods(node) if name.startswith("etcd-")]


def etcd_process(cluster: TestCluster, node: str) -> str:
    return cluster.shell(node, "pgrep -x etcd").strip()


def changing(cluster: TestCluster) -> list[str]:
    return [node for node in CONTROL if cluster.shell(node, "ls /var/lib/autarky/state").find("etcd-change.json") >= 0]


def first_to_change(cluster: TestCluster) -> str:
    seen: list[str] = []

    def looked() -> bool:
        seen[:] = changing(cluster)
        return bool(seen)

    cluster.wait("a member changes", looked, seconds=60, pause=0.1)
    (node,) = seen
    return node
