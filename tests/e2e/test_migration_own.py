"""An etcd of somebody else, with a CA of its own, moves into the cluster under load: the control node joins it with a
certificate of that CA. And out again, to a member that somebody starts as the page says.

The tests build on each other.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from ha import member_phases
from harness import Show, TestCluster
from migrations import dialled, members, moved
from somebodys_etcd import (
    INSIDE,
    STORE,
    Authority,
    address_of,
    admitted,
    has_ended,
    member_on,
    outside,
    peer_options,
    start_etcd,
    starts_over,
)

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(900, func_only=True)]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster], authority: Authority) -> TestCluster:
    cluster = make_cluster("t-migration-own", **INSIDE)
    cluster.autarky("payload", "get")
    cluster.autarky("lab", "up", cluster.name, "--hosts", "2")
    member = member_on(cluster)
    authority.issue(member.name, member.address, "127.0.0.1")
    authority.issue("apiserver")
    authority.issue("peer", address_of(cluster, "n1"))
    start_etcd(cluster, authority, member)
    cluster.spec = outside(authority, member)
    cluster.up()
    return cluster


@pytest.mark.chain("own")
def test_without_a_certificate_of_its_ca_nobody_joins_and_nothing_is_touched(cluster: TestCluster) -> None:
    outside = cluster.spec
    cluster.spec = INSIDE
    before = dialled(cluster)
    refused = cluster.autarky("etcd", "migrate", "-f", str(cluster.file), "--yes", "-o", "plain", check=False)
    assert refused.status == 6
    assert "do not trust each other's certificates" in refused.stderr
    assert "--peer-cert" in refused.stderr
    assert dialled(cluster) == before
    assert not [name for name in cluster.static_pods("n1") if "etcd" in name]
    cluster.spec = outside
    cluster.autarky("etcd", "migrate", "-f", str(cluster.file), "--yes", "-o", "plain")
    assert dialled(cluster) == before
    assert "nothing was changed" in cluster.up().stdout


@pytest.mark.chain("own")
def test_with_one_it_moves_into_the_cluster_under_load(cluster: TestCluster, authority: Authority, show: Show) -> None:
    member = member_on(cluster)
    moved(cluster, show, INSIDE, *peer_options(authority), outside={STORE: member.etcdctl})
    has_ended(cluster, member)
    assert list(members(cluster, "n1")) == ["n1"]
    assert dialled(cluster) == {"https://127.0.0.1:2378"}
    cluster.wait("its agent has said so", lambda: member_phases(cluster) == {"n1": "Member"})
    assert "nothing was changed" in cluster.up().stdout


@pytest.mark.chain("own")
def test_its_certificates_are_the_clusters_own_at_the_end(cluster: TestCluster) -> None:
    pki = "/etc/kubernetes/pki/etcd"
    issuer = cluster.shell("n1", f"openssl x509 -noout -issuer -in {pki}/peer.crt || cat {pki}/peer.crt")
    assert "somebody" not in issuer
    trusted = cluster.shell("n1", "cat /var/lib/etcd/member/peer-ca.crt")
    assert trusted.count("BEGIN CERTIFICATE") == 1
    assert trusted == cluster.shell("n1", f"cat {pki}/ca.crt")
    assert not cluster.shell("n1", f"ls {pki} | grep peers-ca || true").strip()


@pytest.mark.chain("own")
def test_it_moves_out_again_to_a_member_that_was_started_as_the_page_says(
    cluster: TestCluster, tmp_path: Path, show: Show
) -> None:
    member = member_on(cluster)
    starts_over(cluster, member)
    initial = admitted(cluster, member)
    same = Authority(tmp_path, cluster.directory / "pki/etcd")
    same.issue(member.name, member.address, "127.0.0.1")
    same.issue("apiserver")
    start_etcd(cluster, same, member, initial=initial, state="existing")
    moved(cluster, show, outside(same, member), outside={STORE: member.etcdctl})
    assert dialled(cluster) == {member.client}
    assert not cluster.shell("n1", "pgrep -x etcd || true").strip()
    assert "nothing was changed" in cluster.up().stdout
