"""Programs of a newer minor of etcd were brought to a node whose member runs the older one, as before each change of
the minor, and after one that went back: a restore, an undo and a recovery bring back the etcd that runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from etcd_versions import NEWER, etcd_now
from harness import TestCluster, one_node
from power import Client, Writer
from recoveries import (
    SPACE,
    Keys,
    backed_up,
    members_agree,
    nothing_is_left_over,
    restore,
    restored,
    write,
    written,
)
from slots import settled

pytestmark = [pytest.mark.e2e, pytest.mark.chain, pytest.mark.rotation, pytest.mark.timeout(900, func_only=True)]


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-newer-programs", **one_node())
    cluster.up()
    cluster.kubectl("create", "namespace", SPACE)
    return cluster


def version(cluster: TestCluster) -> str:
    return str(etcd_now(cluster)["n1"]["version"])


def test_a_restore_and_its_undo_bring_back_the_minor_that_runs(cluster: TestCluster, tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    write(cluster, before="1")
    archive = backed_up(cluster, keys, tmp_path / "archive")
    write(cluster, after="1")
    runs = version(cluster)
    cluster.autarky("payload", "etcd", "push", NEWER, "--cluster", cluster.name)
    assert NEWER in cluster.shell("n1", "/var/lib/autarky/bin/etcd --version")
    assert version(cluster) == runs != NEWER

    restored(cluster, archive, keys)
    assert written(cluster) == {"before": "1"}
    assert version(cluster) == runs
    restore(cluster, "--undo", "--yes")
    assert written(cluster) == {"before": "1", "after": "1"}
    assert version(cluster) == runs
    members_agree(cluster, ["n1"])
    nothing_is_left_over(cluster, "n1")


def test_so_does_a_recovery_of_a_member_that_hangs(cluster: TestCluster) -> None:
    cluster.wait("everything is settled", lambda: settled(cluster), seconds=240)
    runs, writer = version(cluster), Writer(Client(cluster))
    with writer.writing():
        cluster.wait("it acknowledges", lambda: len(writer.acknowledged) > 20, seconds=60)
        cluster.announce()
        cluster.shell("n1", "pkill -x -STOP etcd")
    cluster.autarky("etcd", "recover-quorum", "--cluster", cluster.name, "--yes", "-o", "plain")
    cluster.announcements_end()
    assert writer.lost() == set()
    assert version(cluster) == runs != NEWER
    members_agree(cluster, ["n1"])
    nothing_is_left_over(cluster, "n1")
