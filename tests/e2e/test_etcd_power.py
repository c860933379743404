"""The only node loses its power after single writes of what changes its etcd: what was begun is ended, by the same
command or by the agents, there is one etcd at any time, and nothing is lost but what a restore takes back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from cuts_of_etcd import (
    TIMEOUT,
    Share,
    cut_after_writes_of,
    cut_after_writes_of_agents,
    of_kinds,
    share,
    shown,
)
from etcd_versions import CHANGE_SECONDS, all_changed, wanted
from harness import Show, TestCluster, one_node
from one_etcd import one_etcd_at_a_time
from power import Client, Writer
from recoveries import SPACE, Keys, backed_up, data_of, members_agree, nothing_is_left_over, restored, write, written
from rollouts import patch_plane
from slots import settled

__all__ = ["share"]
pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(TIMEOUT, func_only=True)]

KINDS = {"content": "(create|write|truncate|chmod|fsync) "}
MIB = 2**20


@pytest.fixture(scope="module")
def of_module(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-etcd-power", **one_node())
    cluster.up()
    cluster.kubectl("create", "namespace", SPACE)
    return cluster


@pytest.fixture
def cluster(of_module: TestCluster) -> TestCluster:
    of_module.wait("everything is settled", lambda: settled(of_module), seconds=240)
    return of_module


@pytest.fixture
def writer(cluster: TestCluster) -> Writer:
    return Writer(Client(cluster))


def one_etcd(cluster: TestCluster) -> None:
    members_agree(cluster, ["n1"])
    nothing_is_left_over(cluster, "n1")
    assert [name for name in cluster.static_pods("n1") if "etcd" in name]


@of_kinds(KINDS, one_of=8, most=2)
def test_a_restore_is_ended_by_the_same_command(cluster: TestCluster, share: Share, show: Show, tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    write(cluster, before="1")
    archive = backed_up(cluster, keys, tmp_path / "archive")

    def check() -> None:
        assert written(cluster) == {"before": "1"}
        one_etcd(cluster)

    with one_etcd_at_a_time(cluster, "n1"):
        cuts = cut_after_writes_of(
            cluster,
            ["restore", str(archive), "--identity", str(keys.file), "--yes", "--cluster", cluster.name],
            share,
            prepare=lambda: write(cluster, after=str(time.time())),
            again=lambda: restored(cluster, archive, keys),
            check=check,
        )
    shown(show, "a restore", cuts)


@of_kinds(KINDS, one_of=8, most=2)
def test_a_recovery_of_a_hung_member_is_ended_by_the_same_command(
    cluster: TestCluster, share: Share, show: Show, writer: Writer
) -> None:
    argv = ["etcd", "recover-quorum", "--cluster", cluster.name, "--yes", "-o", "plain"]

    def prepare() -> None:
        with writer.writing():
            time.sleep(3)
            cluster.announce()
            cluster.shell("n1", "pkill -x -STOP etcd")

    def again() -> None:
        """It is refused where nothing was fenced yet: then the member has come back with its machine."""
        ended = cluster.autarky(*argv, check=False)
        if ended.status:
            assert "etcd has a quorum" in ended.stderr, ended.stderr

    def check() -> None:
        cluster.wait("the API answers", Client(cluster).answers, seconds=240)
        assert writer.lost() == set()
        one_etcd(cluster)

    with one_etcd_at_a_time(cluster, "n1"):
        cuts = cut_after_writes_of(cluster, argv, share, prepare=prepare, again=again, check=check)
    assert len(writer.acknowledged) > 20
    shown(show, "a recovery", cuts)


@of_kinds(KINDS, one_of=6, most=1)
def test_a_change_of_the_only_member_is_ended_by_the_agents(
    cluster: TestCluster, share: Share, show: Show, writer: Writer
) -> None:
    """A second member on the same node stands in for it: there and back."""
    quota = 2**31 + int(time.time()) % 1000 * MIB
    before: dict[str, str] = {}

    def begin() -> None:
        nonlocal quota
        quota += MIB
        before.clear()
        before.update(wanted(cluster))
        patch_plane(cluster, etcd={"quotaBytes": quota})

    def over() -> bool:
        with suppress(AssertionError):  # no answer
            return wanted(cluster) != before and all_changed(cluster)
        return False

    def check() -> None:
        cluster.wait("the second one's data is gone", lambda: "second" not in data_of(cluster, "n1"))
        assert writer.lost() == set()
        assert f"--quota-backend-bytes={quota}" in cluster.shell("n1", "tr '\\0' '\\n' </proc/$(pgrep -x etcd)/cmdline")
        one_etcd(cluster)

    cuts = cut_after_writes_of_agents(
        cluster, share, node="n1", begin=begin, over=over, check=check, writer=writer, seconds=CHANGE_SECONDS
    )
    shown(show, "a change", cuts)
