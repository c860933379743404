"""Three members of somebody's etcd, which has a CA of its own, give way to three control nodes under load: these join
with certificates of that CA. And out again, to three members whose clients have another CA than the cluster's etcd.

Out of the cluster nothing is copied, and members of one etcd accept each other's certificates: so those outside have
one of the cluster's CA for their peers, as the page says.

The tests build on each other.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agreement import difference
from balancers import holds
from etcd_versions import up_changes_nothing
from ha import CONTROL, member_phases, nothing_failed
from harness import Show, TestCluster
from migrations import dialled, members, moved
from one_etcd import one_etcd_at_a_time
from recoveries import data_of, members_agree
from somebodys_etcd import (
    Authority,
    Member,
    address_of,
    admitted,
    gets_its_vote,
    has_ended,
    member_on,
    outside,
    peer_options,
    start_etcd,
    starts_over,
)

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.chain,
    pytest.mark.rotation,
    pytest.mark.timeout(900, func_only=True),
]

INSIDE: dict[str, Any] = {
    "selfHosted": "1-4",
    "nodes": [{"name": name, "host": "lab", "roles": ["control-plane", "worker"]} for name in CONTROL],
}
STORES = {"n4": "db1", "n5": "db2", "n6": "db3"}
"""Host that is no node → the name of the member there."""


def stores(cluster: TestCluster) -> list[Member]:
    return [member_on(cluster, host, name) for host, name in STORES.items()]


def asked_there(cluster: TestCluster) -> dict[str, str]:
    return {one.host: one.etcdctl for one in stores(cluster)}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster], authority: Authority) -> TestCluster:
    cluster = make_cluster("t-migration-ha", **INSIDE)
    cluster.autarky("payload", "get")
    cluster.autarky("lab", "up", cluster.name, "--hosts", str(len(CONTROL) + len(STORES)))
    there = stores(cluster)
    authority.issue("apiserver")
    authority.issue("peer", *(address_of(cluster, node) for node in CONTROL))
    for one in there:
        authority.issue(one.name, one.address, "127.0.0.1")
        start_etcd(cluster, authority, one, initial=",".join(other.initial for other in there))
    cluster.spec = outside(authority, *there, inside=INSIDE)
    cluster.up()
    return cluster


def test_three_members_outside_move_into_the_cluster_under_load(
    cluster: TestCluster, authority: Authority, show: Show
) -> None:
    there = stores(cluster)
    assert dialled(cluster) == {one.client for one in there}
    moved(cluster, show, INSIDE, *peer_options(authority), outside=asked_there(cluster))
    for node in CONTROL:
        assert set(members(cluster, node)) == set(CONTROL)
        assert dialled(cluster, node) == {"https://127.0.0.1:2378"}
        assert holds(cluster, node, f"etcd/{node}"), "its load balancer leads to the node's own member first"
    assert member_phases(cluster) == dict.fromkeys(CONTROL, "Member")
    members_agree(cluster)
    for one in there:
        has_ended(cluster, one)
    up_changes_nothing(cluster)


def test_three_members_with_another_ca_for_their_clients_join_as_the_page_says(
    cluster: TestCluster, authority: Authority, tmp_path: Path
) -> None:
    """One after the other, under load. The last one has no vote yet: that is left to the move."""
    there, peers = stores(cluster), Authority(tmp_path, cluster.directory / "pki/etcd")
    last = there[-1]
    watch = one_etcd_at_a_time(cluster, *CONTROL, others=asked_there(cluster), silent=[last.host], pause=1.5)
    with cluster.probed() as reports, watch:
        for one in there:
            starts_over(cluster, one)
            initial = admitted(cluster, one)
            peers.issue(one.name, one.address)
            start_etcd(cluster, authority, one, peers=peers, initial=initial, state="existing")
            if one is not last:
                gets_its_vote(cluster, one)
    nothing_failed(reports[0])
    cluster.wait(f"{last.name} has started", lambda: last.name in members(cluster, "n1"), seconds=60)
    listed = members(cluster, "n1")
    assert set(listed) == {*CONTROL, *STORES.values()}
    assert {name for name, one in listed.items() if one.get("isLearner")} == {last.name}
    assert dialled(cluster) == {"https://127.0.0.1:2378"}


def test_etcd_moves_out_to_them_under_load(cluster: TestCluster, authority: Authority, show: Show) -> None:
    there = stores(cluster)
    moved(cluster, show, outside(authority, *there, inside=INSIDE), outside=asked_there(cluster))
    for one in there:
        assert set(members(cluster, one.host, one.etcdctl)) == set(STORES.values())
    assert difference(cluster, there[0].host, etcdctl=there[0].etcdctl) == ""
    for node in CONTROL:
        assert dialled(cluster, node) == {one.client for one in there}
        assert not [name for name in cluster.static_pods(node) if "etcd" in name]
        assert not cluster.shell(node, "pgrep -x etcd || true").strip()
        assert "member" not in data_of(cluster, node)
        assert "2379" not in cluster.shell(node, "cat /var/lib/autarky/nllb/haproxy.cfg")
    assert not cluster.kubectl("get", "etcdmembers", "-o", "name").split()
    up_changes_nothing(cluster)
