"""A machine loses its power after single writes of a recovery, from a backup on a new machine or from the disk that is
left: the same command ends it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cuts_of_etcd import TIMEOUT, Share, cut_after_writes_of, of_kinds, share, shown
from harness import Show, TestCluster, one_node
from power import Client, Writer
from recoveries import SPACE, Keys, backed_up, members_agree, nothing_is_left_over, write, written

__all__ = ["share"]
pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(TIMEOUT, func_only=True)]

KINDS = {"content": "(create|write|truncate|chmod|fsync) "}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("elsewhere")


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster], kept: Path) -> TestCluster:
    """What was backed up. Its machine is gone with each `down`."""
    cluster = make_cluster("t-recover-power", **one_node())
    cluster.up()
    cluster.kubectl("create", "namespace", SPACE)
    write(cluster, before="1")
    backed_up(cluster, Keys(kept), kept / "archive")
    return cluster


@of_kinds(KINDS, one_of=12, most=2)
def test_a_recovery_on_a_new_machine_is_ended_by_the_same_command(
    cluster: TestCluster, kept: Path, share: Share, show: Show
) -> None:
    archive, identity = str(kept / "archive"), str(Keys(kept).file)
    argv = ["recover", "--from", archive, "--identity", identity, "-f", str(cluster.file), "--yes", "-o", "plain"]

    def prepare() -> None:
        cluster.down()
        cluster.autarky("lab", "up", cluster.name)

    def check() -> None:
        assert written(cluster) == {"before": "1"}
        members_agree(cluster, ["n1"])
        nothing_is_left_over(cluster, "n1")
        cluster.wait("all is healthy", lambda: cluster.status()["healthy"], seconds=180)

    cuts = cut_after_writes_of(cluster, argv, share, prepare=prepare, again=lambda: cluster.autarky(*argv), check=check)
    shown(show, "a recovery on a new machine", cuts)


@of_kinds(KINDS, one_of=12, most=2)
def test_a_recovery_from_the_disk_that_is_left_is_ended_by_the_same_command(
    cluster: TestCluster, share: Share, show: Show
) -> None:
    """Its etcd hangs, as one does that waits for members whose machines are gone."""
    argv = ["recover", "--from-data", "n1", "-f", str(cluster.file), "--yes", "-o", "plain"]
    writer = Writer(Client(cluster))

    def prepare() -> None:
        before = len(writer.acknowledged)
        with writer.writing():
            cluster.wait("it acknowledges", lambda: len(writer.acknowledged) > before + 20, seconds=60)
            cluster.announce()
            cluster.shell("n1", "pkill -x -STOP etcd")

    def check() -> None:
        cluster.wait("the API answers", Client(cluster).answers, seconds=240)
        assert writer.lost() == set()
        members_agree(cluster, ["n1"])
        nothing_is_left_over(cluster, "n1")
        cluster.wait("all is healthy", lambda: cluster.status()["healthy"], seconds=180)

    cuts = cut_after_writes_of(cluster, argv, share, prepare=prepare, again=lambda: cluster.autarky(*argv), check=check)
    shown(show, "a recovery from a disk", cuts)
