"""One of three control nodes loses its power at a random moment (the seed is printed) of what changes etcd: that goes
on, by the same command or by the agents; there is one etcd at any time, and nothing is lost but what a restore takes
back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
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
    assert writer.lost() == set()
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
