"""etcd's members come and go by their EtcdMembers, under load, on three control nodes.

Each test begins with three members, and leaves them; those that need one which joined later build on
the one before them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from etcd_versions import up_changes_nothing
from ha import DRAIN_GUARDS, etcd_leader, etcd_members, member_objects, member_phases, nothing_failed
from harness import TestCluster
from judgement import only_writes_under_way_failed
from kills import kill
from rollouts import patch_plane

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(900, func_only=True)]

NODES = ("n1", "n2", "n3")
SYSTEM = ("-n", "kube-system")
CHANGE_SECONDS = 180


@pytest.fixture(scope="module")
def of_module(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    roles = ["control-plane", "worker"]
    cluster = make_cluster("t-etcd-members", nodes=[{"name": n, "host": "lab", "roles": roles} for n in NODES])
    cluster.up()
    return cluster


@pytest.fixture
def cluster(of_module: TestCluster) -> TestCluster:
    all_members = dict.fromkeys(NODES, "Member")
    of_module.wait("all are members", lambda: member_phases(of_module) == all_members, seconds=CHANGE_SECONDS)
    return of_module


def phase(cluster: TestCluster, node: str) -> str:
    return member_phases(cluster)[node]


def set_state(cluster: TestCluster, node: str, state: str) -> None:
    cluster.kubectl("patch", "etcdmember", node, "--type=merge", "-p", json.dumps({"spec": {"state": state}}))


def own_id(cluster: TestCluster, node: str) -> str:
    return str(member_objects(cluster)[node]["status"]["memberID"])


def listed_on(cluster: TestCluster, node: str) -> list[str]:
    """The members that the node's load balancer may use."""
    found = json.loads(cluster.shell(node, "cat /var/lib/autarky/state/etcd-members.json"))
    return sorted(entry["name"] for entry in found if not entry["learner"])


def static_etcd(cluster: TestCluster, node: str) -> list[str]:
    return [name for name in cluster.static_pods(node) if name.startswith("etcd-")]


def leaves(cluster: TestCluster, node: str) -> None:
    set_state(cluster, node, "Removed")
    cluster.wait(f"{node} has left", lambda: phase(cluster, node) == "Removed", seconds=CHANGE_SECONDS)
    cluster.wait("its static pod is gone", lambda: not static_etcd(cluster, node), seconds=CHANGE_SECONDS)
    cluster.wait(
        "its data is moved aside",
        lambda: "member" not in cluster.shell(node, "ls /var/lib/etcd").split(),
        seconds=CHANGE_SECONDS,
    )


def joins(cluster: TestCluster, node: str) -> None:
    set_state(cluster, node, "Member")
    cluster.wait(f"{node} is a member", lambda: phase(cluster, node) == "Member", seconds=CHANGE_SECONDS)


def test_every_control_node_has_a_member_and_every_agent_knows_them(cluster: TestCluster) -> None:
    for node in NODES:
        cluster.wait("its agent knows all members", lambda node=node: listed_on(cluster, node) == list(NODES))


def test_a_member_leaves_and_joins_anew_though_its_agent_is_killed_in_between(cluster: TestCluster) -> None:
    node = next(name for name in ("n3", "n2") if name != etcd_leader(cluster))
    others = {name: static_etcd(cluster, name) for name in NODES if name != node}
    before = own_id(cluster, node)
    with cluster.probed() as reports:
        leaves(cluster, node)
        set_state(cluster, node, "Member")
        cluster.wait("etcd has admitted it", lambda: own_id(cluster, node), seconds=CHANGE_SECONDS)
        kill(cluster, node, "pgrep -f '[a]utarky.agents.node'")  # hosted and parked
        joins(cluster, node)
    assert own_id(cluster, node) != before
    assert {name: static_etcd(cluster, name) for name in others} == others
    assert cluster.shell(node, "ls -d /var/lib/etcd/kept.*/member").strip()
    nothing_failed(reports[0])


def test_a_mistake_in_etcds_arguments_meets_one_member_which_is_put_back(cluster: TestCluster) -> None:
    before = {name: static_etcd(cluster, name) for name in NODES}
    leader = etcd_leader(cluster)
    bad = TestCluster(cluster.name, {**cluster.spec, "extraArgs": {"etcd": {"nonsense": "1"}}})
    with cluster.probed() as reports:
        refused = bad.up(check=False)
    assert refused.status == 2
    said = re.search(r"etcd was rolled back, and runs as before: the member of (\S+): it was started", refused.stderr)
    assert said is not None, refused.stderr
    assert said[1] != leader
    assert "flag provided but not defined" in refused.stderr
    assert "correct spec.extraArgs.etcd" in refused.stderr
    assert {name: static_etcd(cluster, name) for name in NODES} == before
    assert etcd_members(cluster, leader) == set(NODES)
    nothing_failed(reports[0])
    cluster.up()
    assert {name: static_etcd(cluster, name) for name in NODES} == before


@pytest.mark.chain("joined later")
def test_the_leader_hands_over_before_it_leaves(cluster: TestCluster) -> None:
    """etcd drops what is proposed while the leadership moves: a write that is under way just then gets no answer in
    time. Nothing else fails, and nothing that was acknowledged is lost."""
    node = etcd_leader(cluster)
    with cluster.probed() as reports:
        leaves(cluster, node)
        agents = cluster.kubectl(*SYSTEM, "logs", "-l", "k8s-app=node-agent", "--prefix", "--since=5m", "--tail=-1")
        assert "gets the leadership first" in agents, "it was removed while it led, which costs an election"
        joins(cluster, node)
    only_writes_under_way_failed(reports[0])


@pytest.mark.chain("joined later")
def test_up_leaves_members_alone_that_joined_later(cluster: TestCluster) -> None:
    before = {name: static_etcd(cluster, name) for name in NODES}
    cluster.up()
    assert {name: static_etcd(cluster, name) for name in NODES} == before
    assert member_phases(cluster) == dict.fromkeys(NODES, "Member")


@pytest.mark.chain("joined later")
def test_etcds_arguments_reach_one_member_after_the_other(cluster: TestCluster) -> None:
    """Those that a node agent has started, too. Where the leader ends, a write that is under way may get no answer."""
    cluster.spec = {**cluster.spec, "extraArgs": {"etcd": {"quota-backend-bytes": "4294967296"}}}
    with cluster.probed() as reports:
        cluster.up()
    for node in NODES:
        assert "--quota-backend-bytes=4294967296" in cluster.shell(node, "tr '\\0' ' ' </proc/$(pgrep -x etcd)/cmdline")
    cluster.wait("all are members", lambda: member_phases(cluster) == dict.fromkeys(NODES, "Member"))
    only_writes_under_way_failed(reports[0])
    up_changes_nothing(cluster)


def test_the_control_plane_says_which_nodes_have_a_member(cluster: TestCluster) -> None:
    """By their names; without the names every control node has one again."""
    node = next(name for name in NODES if name != etcd_leader(cluster))
    others = [name for name in NODES if name != node]

    with cluster.probed() as reports:
        patch_plane(cluster, etcd={"members": others})
        cluster.wait("it has left", lambda: phase(cluster, node) == "Removed", seconds=CHANGE_SECONDS)
        assert etcd_members(cluster, others[0]) == set(others)
        patch_plane(cluster, etcd={"members": None})
        cluster.wait("it is a member again", lambda: phase(cluster, node) == "Member", seconds=CHANGE_SECONDS)
    assert etcd_members(cluster, others[0]) == set(NODES)
    nothing_failed(reports[0])


def test_a_drain_that_would_cost_the_quorum_is_refused(cluster: TestCluster) -> None:
    guard = ("deploy/etcd-quorum-guard", "--timeout=120s")
    cluster.kubectl(*SYSTEM, "rollout", "status", *guard)
    cluster.kubectl("drain", "n2", *DRAIN_GUARDS, "--timeout=100s")
    try:
        refused = cluster.kubectl_error("drain", "n3", *DRAIN_GUARDS, "--timeout=6s")
        assert "etcd-quorum-guard" in refused
        assert "disruption budget" in refused or "timeout" in refused
    finally:
        cluster.kubectl("uncordon", "n2")
        cluster.kubectl("uncordon", "n3")
    cluster.kubectl(*SYSTEM, "rollout", "status", *guard)


def test_a_member_whose_data_is_gone_is_removed_and_joins_anew(cluster: TestCluster) -> None:
    """It is never started with an empty directory under its old id."""
    before = own_id(cluster, "n3")
    lose = "systemctl stop kubelet; pkill -KILL -x etcd; sleep 1; rm -rf /var/lib/etcd/member; systemctl start kubelet"
    cluster.shell("n3", lose)
    cluster.wait(
        "it is a member under a new id",
        lambda: own_id(cluster, "n3") not in ("", before) and phase(cluster, "n3") == "Member",
        seconds=300,
    )
    ids = cluster.shell("n3", "grep -h autarky.dev/etcd-member /etc/kubernetes/manifests/etcd-*.json")
    assert own_id(cluster, "n3") in ids


def test_the_last_member_is_never_removed_and_an_even_count_is_warned_of(cluster: TestCluster) -> None:
    leaves(cluster, "n3")
    conditions = json.loads(cluster.kubectl("get", "controlplane", "cluster", "-o", "json"))["status"]["conditions"]
    assert {c["type"]: c["status"] for c in conditions}["EtcdEvenCount"] == "True"
    leaves(cluster, "n2")
    set_state(cluster, "n1", "Removed")
    cluster.wait("it is refused", lambda: phase(cluster, "n1") == "Blocked")
    assert "last member" in member_objects(cluster)["n1"]["status"]["message"]
    set_state(cluster, "n1", "Member")
    set_state(cluster, "n2", "Member")
    joins(cluster, "n3")
    cluster.wait(
        "both joined", lambda: member_phases(cluster) == dict.fromkeys(NODES, "Member"), seconds=CHANGE_SECONDS
    )
