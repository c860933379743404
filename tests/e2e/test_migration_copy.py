"""An etcd outside is copied into the cluster, with a pause: nothing that was acknowledged is lost, and after a command
that was killed in the pause another one leads on, or back.

The tests build on each other.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from copies import announced_pause, command, gap_of, lost, said
from ha import member_phases
from harness import Show, TestCluster, kill_when
from migrations import dialled, members, moved
from one_etcd import one_etcd_at_a_time
from power import Client, Writer
from slots import settled
from test_migration import INSIDE, OUTSIDE, STORE, outside

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(900, func_only=True)]

_MARK = "/var/lib/autarky/state/etcd-copy.json"


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-migration-copy", **OUTSIDE)
    cluster.up()
    return cluster


def killed_in_the_pause(cluster: TestCluster) -> None:
    """When the etcd outside refuses everybody, and its snapshot is being written."""

    def is_there() -> bool:
        return bool(cluster.shell("n1", "ls -d /var/lib/etcd/copy.*/snapshot.db* 2>/dev/null || true").strip())

    status = kill_when(
        command(cluster, INSIDE), lambda: cluster.wait("a snapshot is begun", is_there, seconds=400, pause=0.02)
    )
    assert status < 0
    assert '"opened": false' in cluster.shell("n1", f"cat {_MARK}")
    assert not cluster.api_answers()


def is_copied(cluster: TestCluster) -> None:
    assert list(members(cluster, "n1")) == ["n1"]
    assert dialled(cluster) == {"https://127.0.0.1:2378"}
    cluster.wait("the member is known", lambda: member_phases(cluster) == {"n1": "Member"}, seconds=60)
    assert cluster.shell("etcd1", "systemctl is-active etcd || true").strip() == "inactive"
    assert not cluster.shell("n1", f"ls -d {_MARK} /var/lib/etcd/copy.* 2>/dev/null || true").strip()
    assert "nothing was changed" in cluster.up().stdout


@pytest.mark.chain("copied")
def test_out_of_the_cluster_nothing_is_copied(cluster: TestCluster) -> None:
    refused = cluster.autarky(*command(cluster, OUTSIDE), check=False)
    assert refused.status == 2
    assert "takes no snapshot" in refused.stderr


@pytest.mark.chain("copied")
def test_killed_in_the_pause_it_goes_back_with_the_former_file(cluster: TestCluster) -> None:
    writer = Writer(Client(cluster))
    with one_etcd_at_a_time(cluster, "n1", *STORE, silent=["n1"]) as reads:
        with writer.writing():
            killed_in_the_pause(cluster)
        cluster.spec = OUTSIDE
        cluster.autarky("etcd", "migrate", "-f", str(cluster.file), "--yes", "-o", "plain")
        assert cluster.api_answers()
    assert {one.host for one in reads} == set(STORE), "a copy that is given up answers nobody"
    assert dialled(cluster) == {outside(cluster)}
    assert not [name for name in cluster.static_pods("n1") if "etcd" in name]
    assert not cluster.shell(
        "n1", f"ls -d {_MARK} /var/lib/etcd/copy.* /var/lib/etcd/member 2>/dev/null || true"
    ).strip()
    assert writer.acknowledged
    assert lost(cluster, writer) == set()
    assert "nothing was changed" in cluster.up().stdout


@pytest.mark.chain("copied")
def test_an_etcd_outside_is_copied_into_the_cluster_under_load(cluster: TestCluster, show: Show) -> None:
    done = moved(cluster, show, INSIDE, "--copy", outside=STORE)
    assert "the pause begins: the API is away for about" in said(done)
    is_copied(cluster)


@pytest.mark.chain("copied")
def test_killed_in_the_pause_it_is_completed_by_the_same_command(cluster: TestCluster, show: Show) -> None:
    """After it has moved out again, as members do."""
    moved(cluster, show, OUTSIDE, outside=STORE)
    writer = Writer(Client(cluster))
    with writer.writing(), one_etcd_at_a_time(cluster, "n1", *STORE):
        killed_in_the_pause(cluster)
        done = cluster.autarky(*command(cluster, INSIDE))
    assert "let the etcd outside of the cluster answer again" in said(done)
    show(f"nothing was acknowledged for {gap_of(writer):.1f} s; by the second command {announced_pause(said(done))}")
    assert lost(cluster, writer) == set()
    cluster.wait("everything is healthy", lambda: settled(cluster), seconds=120)
    is_copied(cluster)
