"""Serving is what was seen to serve, and etcd is its quorum: what a node's own labels, ports and member do not say.

Three control nodes and a worker; each test leaves the cluster healthy.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from ha import (
    CONTROL,
    ETCDCTL,
    WORKER,
    api_servers_cut_off,
    etcd_leader,
    etcd_members,
    hosted_server_killed_again_and_again,
    member_cut_off,
    member_phases,
    node_ready,
    nothing_failed,
    three_and_one,
    uses_its_own_servers,
    wait_until_healthy,
)
from harness import TestCluster
from labels import label, nothing_has_left, standbys_that_serve, unlabel
from leases import everything_is_led
from rollouts import condition

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(900)]

JUDGED_SECONDS = 40
"""While there is a quorum, a standby is active within seconds after its API server was killed."""


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-serving", **three_and_one())
    cluster.up()
    return cluster


def test_the_last_control_node_whose_api_server_serves_stays_though_the_others_nodes_are_ready(
    cluster: TestCluster,
) -> None:
    """Their API servers do not answer, behind load balancers that go elsewhere: by label and by `node remove`."""
    wait_until_healthy(cluster)
    last, others = "n3", ("n1", "n2")
    with api_servers_cut_off(cluster, *others):
        for node in others:
            cluster.wait(f"{node} uses others", lambda: not uses_its_own_servers(cluster, node), seconds=90)  # noqa: B023
        with cluster.probed(inside=WORKER) as from_worker, cluster.probed(inside=last) as from_there:
            removal = ("node", "remove", "--cluster", cluster.name, last, "--yes", "-o", "plain")
            refused = cluster.autarky(*removal, check=False)
            assert refused.status == 6, refused.stderr
            assert "the last control node that serves stays" in refused.stderr
            assert "n1: https://" in refused.stderr
            unlabel(cluster, last)
            try:
                said = "no other control node has been seen to serve"
                cluster.wait("it waits", lambda: said in condition(cluster, "NodesAsLabelled")["message"])
                time.sleep(20)  # longer than any look takes
                assert {node_ready(cluster, node) for node in others} == {"True"}
                nothing_has_left(cluster)
            finally:
                label(cluster, last)
        for reports in (from_worker, from_there):
            nothing_failed(reports[0])
    wait_until_healthy(cluster)
    assert etcd_members(cluster, "n1") == set(CONTROL)
    everything_is_led(cluster)


def test_a_node_whose_member_of_etcd_is_down_goes_on_judging_its_api_server(cluster: TestCluster) -> None:
    """The quorum is elsewhere: etcd is not down."""
    wait_until_healthy(cluster)
    assert _member_serves(cluster, "n3")
    with member_cut_off(cluster, "n3"), hosted_server_killed_again_and_again(cluster, "n3"):
        assert not _member_serves(cluster, "n3")
        serves = "kube-apiserver on n3"
        cluster.wait("the standby serves on n3", lambda: standbys_that_serve(cluster) == [serves], seconds=120)
        assert not _member_serves(cluster, "n3"), "it came back before"
        assert etcd_leader(cluster, ("n1", "n2")), "the quorum is not elsewhere"
    wait_until_healthy(cluster)


def _member_serves(cluster: TestCluster, node: str) -> bool:
    """As a client on the node itself sees it, which takes up to 5 s."""
    return cluster.shell(node, f"{ETCDCTL} endpoint health >/dev/null 2>&1 && echo yes || true").strip() == "yes"


def test_a_node_without_a_member_of_etcd_sees_that_the_quorum_is_gone_and_judges_nothing(cluster: TestCluster) -> None:
    """Its API server is killed: without a quorum none gets ready, and no standby would either."""
    wait_until_healthy(cluster)
    patch = ("patch", "etcdmember", "n3", "--type=merge", "-p")
    cluster.kubectl(*patch, '{"spec":{"state":"Removed"}}')
    try:
        cluster.wait("it has left", lambda: member_phases(cluster)["n3"] == "Removed", seconds=180)
        wait_until_healthy(cluster)
        seen_before, in_place = _etcd_seen_down(cluster, "n3"), _in_place(cluster)
        with member_cut_off(cluster, "n2"):
            cluster.wait("n3 sees it", lambda: _etcd_seen_down(cluster, "n3") > seen_before, seconds=60)
            cluster.shell("n3", "pkill -KILL -f -- '[-]-secure-port=7443'")
            deadline = time.monotonic() + JUDGED_SECONDS
            while time.monotonic() < deadline:
                assert _hosted_server_serves(cluster, "n3") is False
                assert _in_place(cluster) == in_place, "something was activated, or taken away"
        cluster.wait("the API answers again", cluster.api_answers, seconds=90)
    finally:
        cluster.kubectl(*patch, '{"spec":{"state":"Member"}}')
    cluster.wait("it is a member again", lambda: member_phases(cluster)["n3"] == "Member", seconds=180)
    wait_until_healthy(cluster)


def _in_place(cluster: TestCluster) -> dict[str, list[str]]:
    """The static pods of each control node: a standby that is active is one more."""
    return {node: cluster.static_pods(node) for node in CONTROL}


def _hosted_server_serves(cluster: TestCluster, node: str) -> bool:
    ask = "curl -sk -m 5 -o /dev/null -w '%{http_code}' 'https://127.0.0.1:7443/readyz?exclude=etcd&exclude=etcd-readiness'"
    return cluster.shell(node, f"{ask} || true").strip() == "200"


def _etcd_seen_down(cluster: TestCluster, node: str) -> int:
    """How often the node's agents have said so."""
    logs = "/var/log/pods/kube-system_node-agent-*/node-agent/*.log"
    return int(cluster.shell(node, f"cat {logs} | grep -c 'etcd is down' || true"))
