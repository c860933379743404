"""One of three control nodes, or all that are on, lose their power at a random moment of what changes etcd, or after a
random write (the seed is printed): it is ended, by the same command or by the agents, there is one etcd at any time,
and nothing is lost but what a restore takes back.

The last one leaves n4 in the place of n3.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from copies import lost
from cuts_of_etcd import any_write, cut_after_writes_of_agents, shown
from etcd_versions import CHANGE_SECONDS, is_changed, wanted
from ha import CONTROL, cut, start, wait_until_healthy
from harness import Show, TestCluster, kill_at
from one_etcd import one_etcd_at_a_time
from power import Client, Writer
from recoveries import SPACE, Keys, backed_up, members_agree, nothing_is_left_over, restored, write, written
from rollouts import patch_plane
from test_etcd_damaged import REPLACED_SECONDS, database, follower, is_replaced, member_id, no_database
from two_clusters import of_the_last

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.chain,
    pytest.mark.rotation,
    pytest.mark.timeout(900, func_only=True),
]

SOON = {"spec": {"etcd": {"replaceAfterSeconds": 60}}}


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    roles = ["control-plane", "worker"]
    control = [{"name": name, "host": "lab", "roles": roles} for name in CONTROL]
    cluster = make_cluster("t-etcd-power-ha", nodes=[*control, {"name": "n4", "host": "lab", "roles": ["worker"]}])
    cluster.up()
    cluster.kubectl("create", "namespace", SPACE)
    return cluster


@pytest.fixture
def random(seed: str, request: pytest.FixtureRequest) -> Random:
    return Random(f"{seed} {request.node.name}")  # noqa: S311 # no secret


@pytest.fixture
def writer(cluster: TestCluster) -> Writer:
    wait_until_healthy(cluster)
    return Writer(Client(cluster))


def settled(cluster: TestCluster, *members: str) -> None:
    members_agree(cluster, members)
    wait_until_healthy(cluster)
    for node in members:
        nothing_is_left_over(cluster, node)


def test_a_change_of_all_members_goes_on(cluster: TestCluster, writer: Writer, random: Random, show: Show) -> None:
    before, quota = wanted(cluster), 2**31 + random.randrange(1000) * 2**20
    node, seconds = random.choice(CONTROL), random.uniform(1.0, 90.0)
    show(f"{node} is cut {seconds:.1f} s after the edit")
    with writer.writing(), one_etcd_at_a_time(cluster, *CONTROL):
        patch_plane(cluster, etcd={"quotaBytes": quota})
        time.sleep(seconds)
        cut(cluster, node)
        start(cluster, node)
        cluster.wait("all are changed", lambda: is_changed(cluster, before), seconds=CHANGE_SECONDS, pause=1)
    assert len(writer.acknowledged) > 20
    assert lost(cluster, writer) == set()
    settled(cluster, *CONTROL)


def test_a_restore_is_ended_by_the_same_command(
    cluster: TestCluster, random: Random, show: Show, tmp_path: Path
) -> None:
    keys = Keys(tmp_path)
    write(cluster, before="1")
    archive = backed_up(cluster, keys, tmp_path / "archive")
    write(cluster, after="1")
    node, seconds = random.choice(CONTROL), random.uniform(2.0, 25.0)
    argv = ["restore", str(archive), "--identity", str(keys.file), "--yes", "--cluster", cluster.name]
    with one_etcd_at_a_time(cluster, *CONTROL, another=True):
        show(f"{node} is cut {seconds:.1f} s after the command, which ended with {kill_at(argv, seconds)}")
        cut(cluster, node)
        start(cluster, node)
        restored(cluster, archive, keys)
    assert written(cluster) == {"before": "1"}
    settled(cluster, *CONTROL)


def test_a_recovery_of_a_lost_quorum_is_ended_by_the_same_command(
    cluster: TestCluster, writer: Writer, random: Random, show: Show
) -> None:
    argv = ["etcd", "recover-quorum", "--cluster", cluster.name, "--yes", "-o", "plain"]
    seconds = random.uniform(16.0, 35.0)
    with one_etcd_at_a_time(cluster, *CONTROL, another=True) as reads:
        with writer.writing():
            cluster.wait("it acknowledges", lambda: len(writer.acknowledged) > 20, seconds=60)
            cut(cluster, "n2", "n3")
        show(f"n1 is cut {seconds:.1f} s after the command, which ended with {kill_at(argv, seconds)}")
        cut(cluster, "n1")
        start(cluster, "n1")
        ended = cluster.autarky(*argv, check=False)
        assert ended.status == 0 or "etcd has a quorum" in ended.stderr, ended.stderr
        cluster.wait("the API answers", cluster.api_answers, seconds=120)
        assert lost(cluster, writer) == set()
        start(cluster, "n2", "n3")
        settled(cluster, *CONTROL)
    assert of_the_last(reads) == set(CONTROL), "of the others nobody knows of which etcd they are"
    assert lost(cluster, writer) == set()


def test_a_member_with_damaged_data_is_replaced_though_its_node_loses_its_power(
    cluster: TestCluster, writer: Writer, seed: str, show: Show
) -> None:
    """After a write of its node's agent. It becomes another member with no help."""
    node, before = follower(cluster), ""
    cluster.wait("its id is known", lambda: member_id(cluster, node), seconds=90)

    def begin() -> None:
        nonlocal before
        before = member_id(cluster, node)
        cluster.shell(node, "systemctl stop kubelet; pkill -KILL -x etcd; sleep 1")
        no_database(database(cluster, node))
        cluster.shell(node, "systemctl start kubelet")

    def check() -> None:
        settled(cluster, *CONTROL)
        assert lost(cluster, writer) == set()

    with one_etcd_at_a_time(cluster, *CONTROL):
        cuts = cut_after_writes_of_agents(
            cluster,
            any_write(seed, one_of=6),
            node=node,
            begin=begin,
            over=lambda: is_replaced(cluster, node, before),
            check=check,
            writer=writer,
            seconds=REPLACED_SECONDS,
        )
    shown(show, f"a replacement on {node}", cuts)


def test_a_spare_takes_the_place_of_a_machine_that_is_gone(
    cluster: TestCluster, writer: Writer, random: Random, show: Show
) -> None:
    cluster.kubectl("patch", "controlplane", "cluster", "--type=merge", "-p", json.dumps(SOON))
    seconds = random.uniform(1.0, 120.0)
    show(f"n4 is cut {seconds:.1f} s after its label")
    with writer.writing(), one_etcd_at_a_time(cluster, "n1", "n2", "n4"):
        cluster.announce()
        cluster.autarky("lab", "remove", "--lab", cluster.name, "n3")
        cluster.kubectl("label", "node", "n4", "node-role.kubernetes.io/control-plane=")
        time.sleep(seconds)
        cut(cluster, "n4")
        start(cluster, "n4")
        members_agree(cluster, ["n1", "n2", "n4"])
    assert len(writer.acknowledged) > 20
    assert lost(cluster, writer) == set()
