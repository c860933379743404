"""A restore that is killed at any moment: the same command finishes it, and before that there is the old etcd, or none,
and never half of one. `test_etcd_power` cuts the power of its machine.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from harness import Show, TestCluster, kill_at, one_node
from power import rounds
from recoveries import SPACE, Keys, backed_up, data_of, members_agree, nothing_is_left_over, restored, write, written
from slots import settled

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.chain,
    pytest.mark.rotation,
    pytest.mark.timeout(900, func_only=True),
]

ROUNDS = 6
LONGEST = 14.0
"""Seconds after which a restore of one node has brought its etcd back."""


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-restore-cut", **one_node())
    cluster.up()
    cluster.kubectl("create", "namespace", SPACE)
    return cluster


@pytest.fixture(scope="module")
def archive(cluster: TestCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    kept = tmp_path_factory.mktemp("kept")
    write(cluster, before="1")
    return backed_up(cluster, Keys(kept), kept / "archive")


def test_the_same_command_finishes_it(cluster: TestCluster, archive: Path, seed: str, show: Show) -> None:
    random, keys = Random(seed), Keys(archive.parent)  # noqa: S311 # no secret
    argv = ["restore", str(archive), "--identity", str(keys.file), "--yes", "--cluster", cluster.name]
    statuses = set()
    for number in rounds(0, 1, ROUNDS):
        write(cluster, after=str(number))
        seconds = random.uniform(1.0, LONGEST)
        status = kill_at(argv, seconds)
        statuses.add(status)
        show(f"round {number}: killed after {seconds:.1f} s, status {status}")
        left = data_of(cluster, "n1")
        assert "member" in left or any(name.startswith("recovery.") for name in left), left
        if status == -signal.SIGKILL:
            time.sleep(random.uniform(0.0, 3.0))
        restored(cluster, archive, keys)
        assert written(cluster) == {"before": "1"}
        members_agree(cluster, ["n1"])
        nothing_is_left_over(cluster, "n1")
    assert -signal.SIGKILL in statuses, "none of them was killed"
    cluster.wait("everything is settled", lambda: settled(cluster), seconds=240)
