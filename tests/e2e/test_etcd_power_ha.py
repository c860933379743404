"""One of three control nodes, or all that are on, lose their power at a random moment of what changes etcd (the seed is
printed): it is ended, by the same command or by the agents, there is one etcd at any time, and nothing is lost but what
a restore takes back.

The last one leaves n4 in the place of n3.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from copies import lost
from etcd_versions import CHANGE_SECONDS, all_changed, wanted
from ha import CONTROL, cut, start, wait_until_healthy
from harness import Show, TestCluster, kill_at
from one_etcd import one_etcd_at_a_time
from power import Client, Writer
from recoveries import SPACE, Keys, backed_up, members_agree, nothing_is_left_over, restored, write, written
from rollouts import patch_plane

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

        def over() -> bool:
            with suppress(AssertionError):  # no answer
                return wanted(cluster) != before and all_changed(cluster)
            return False

        cluster.wait("all are changed", over, seconds=CHANGE_SECONDS, pause=1)
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
    with one_etcd_at_a_time(cluster, *CONTROL):
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
    with writer.writing():
        cluster.wait("it acknowledges", lambda: len(writer.acknowledged) > 20, seconds=60)
        cut(cluster, "n2", "n3")
    seconds = random.uniform(16.0, 35.0)
    with one_etcd_at_a_time(cluster, *CONTROL):
        show(f"n1 is cut {seconds:.1f} s after the command, which ended with {kill_at(argv, seconds)}")
        cut(cluster, "n1")
        start(cluster, "n1")
        ended = cluster.autarky(*argv, check=False)
        assert ended.status == 0 or "etcd has a quorum" in ended.stderr, ended.stderr
        cluster.wait("the API answers", cluster.api_answers, seconds=120)
        assert lost(cluster, writer) == set()
        start(cluster, "n2", "n3")
        settled(cluster, *CONTROL)
    assert lost(cluster, writer) == set()


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
