"""Of three control nodes only the disk of one is left: `autarky recover --from-data` makes the cluster of it, with two
new machines, and loses nothing that was acknowledged."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ha import CONTROL, cut, start, wait_until_healthy
from harness import TestCluster
from power import Client, Writer
from recoveries import SPACE, data_of, members_agree, nothing_is_left_over, runs_a_new_pod, typed, write, written

pytestmark = [pytest.mark.e2e, pytest.mark.chain, pytest.mark.rotation, pytest.mark.timeout(900, func_only=True)]

LEFT = "n1"
LINE = "autarky recover -f cluster.yaml --from-data n1"
DOCUMENT = (Path(__file__).parents[2] / "docs/recovery.md").read_text()


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    roles = ["control-plane", "worker"]
    cluster = make_cluster("t-from-data", nodes=[{"name": n, "host": "lab", "roles": roles} for n in CONTROL])
    cluster.up()
    cluster.kubectl("create", "namespace", SPACE)
    return cluster


def recover(cluster: TestCluster, desk: Path, *argv: str) -> str:
    shutil.copy(cluster.file, desk / "cluster.yaml")
    return typed(cluster, desk, f"{LINE} {' '.join(argv)}")


def uids(cluster: TestCluster) -> dict[str, str]:
    found = json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]
    return {node["metadata"]["name"]: node["metadata"]["uid"] for node in found}


def test_the_one_disk_that_is_left_makes_the_cluster_again(cluster: TestCluster, tmp_path: Path) -> None:
    """Under load one goes, and then all power: so the one that is left has all that was acknowledged. The others are
    gone for good."""
    assert f"`{LINE}`" in DOCUMENT
    before = uids(cluster)
    write(cluster, before="1")
    writer = Writer(Client(cluster))
    with writer.writing():
        cluster.wait("it acknowledges", lambda: len(writer.acknowledged) > 100, seconds=60)
        cut(cluster, "n2")
        alone = len(writer.acknowledged)
        cluster.wait("it goes on without one", lambda: len(writer.acknowledged) > alone + 20, seconds=60)
        cut(cluster, LEFT, "n3")
    cluster.autarky("lab", "remove", "--lab", cluster.name, *(node for node in CONTROL if node != LEFT))
    start(cluster, LEFT)
    data = data_of(cluster, LEFT)

    planned = recover(cluster, tmp_path, "--dry-run")
    assert "n2" in planned
    assert data_of(cluster, LEFT) == data
    assert not cluster.has_host("n2")

    began = time.monotonic()
    recover(cluster, tmp_path)
    assert writer.lost() == set(), f"after {time.monotonic() - began:.0f} s"
    assert written(cluster) == {"before": "1"}
    members_agree(cluster)
    wait_until_healthy(cluster)
    nothing_is_left_over(cluster, LEFT)
    after = uids(cluster)
    assert sorted(after) == list(CONTROL)
    assert after[LEFT] == before[LEFT]
    assert not {before["n2"], before["n3"]} & set(after.values()), "the machines that are gone are forgotten"
    for node in CONTROL:
        runs_a_new_pod(cluster, f"after-{node}", node)


def test_again_it_changes_nothing(cluster: TestCluster, tmp_path: Path) -> None:
    before = {node: data_of(cluster, node) for node in CONTROL}
    assert "etcd has a quorum already" in recover(cluster, tmp_path)
    assert {node: data_of(cluster, node) for node in CONTROL} == before
    assert written(cluster) == {"before": "1"}
