"""The cluster outlives the loss of its parts: agents, objects, etcd's process, level 3, files of the standby.

The tests of this module build on each other, in order. Nothing in here runs `up` again unless it says so.
"""

from __future__ import annotations

import pytest
from ha import longest_outage, nothing_failed, nothing_lost
from harness import AGNHOST, TestCluster
from slots import API, SYSTEM, events_by_name, settled, standbys
from survival import (
    AGENT,
    CONTROLLERS,
    agents,
    decisions,
    one_in_each_slot,
    processes,
    schedules,
    wait_for_checkpoint,
)

pytestmark = [pytest.mark.e2e, pytest.mark.shares("one_node"), pytest.mark.timeout(600)]

HOSTED_API = ("-l", "k8s-app=kube-apiserver,autarky.dev/slot=hosted")
MANIFESTS = "/etc/kubernetes/manifests"
LONGEST_OUTAGE = 30.0
"""Seconds without the only API server when nobody is left who might act but the kubelet."""


@pytest.fixture(scope="module")
def cluster(one_node: TestCluster) -> TestCluster:
    return one_node


def test_the_api_server_goes_while_the_acting_agent_is_killed_and_no_request_fails(cluster: TestCluster) -> None:
    with cluster.probed() as reports:
        cluster.shell("n1", f"kill -KILL {_pid_of_the_acting_agent(cluster)}")
        cluster.kubectl(*SYSTEM, "delete", "pod", *HOSTED_API, "--wait=false")
        cluster.wait("the standby takes over", lambda: standbys(cluster) == ["standby-kube-apiserver"])
        cluster.wait("the standby is dormant again", lambda: settled(cluster), seconds=120)
    nothing_failed(reports[0])


def _pid_of_the_acting_agent(cluster: TestCluster) -> int:
    """The one that holds the lock and has imported more than a bare interpreter: the biggest."""
    sizes = cluster.shell("n1", f"ps -o rss=,pid= -p $(pgrep -d, -f '{AGENT}') | sort -n | tail -1")
    return int(sizes.split()[1])


def test_the_api_server_and_both_agents_killed_at_once_come_back(cluster: TestCluster) -> None:
    cluster.wait("one API server is left", lambda: len(processes(cluster, "kube-apiserver")) == 1)
    cluster.wait("both agents are there", lambda: one_in_each_slot(agents(cluster)), seconds=120)
    killed = _servers_and_agents(cluster)
    with cluster.probed() as reports:
        cluster.shell("n1", f"pkill -KILL -x kube-apiserver && pkill -KILL -f '{AGENT}'")
        cluster.wait("they are dead", lambda: not killed & _servers_and_agents(cluster), seconds=10)
        cluster.wait("the API answers again", cluster.api_answers, seconds=60)
        cluster.wait("the standby is dormant again", lambda: settled(cluster), seconds=120)
        cluster.wait("both agents are back", lambda: one_in_each_slot(agents(cluster)), seconds=120)
        cluster.wait("one API server is left", lambda: len(processes(cluster, "kube-apiserver")) == 1)
    assert not killed & _servers_and_agents(cluster)
    nothing_lost(reports[0], only_server_killed=True)
    assert longest_outage(reports[0]) <= LONGEST_OUTAGE, reports[0]


def _servers_and_agents(cluster: TestCluster) -> frozenset[str]:
    return processes(cluster, "kube-apiserver") | agents(cluster)


def test_with_all_objects_of_ours_deleted_everything_goes_on_and_up_brings_them_back(cluster: TestCluster) -> None:
    """Rule 10. The agent that is left has neither ControlPlane nor rights: it acts by disk and ports."""
    # The standby of the scenario before this one drains after its manifest has gone.
    cluster.wait("one API server is left", lambda: len(processes(cluster, "kube-apiserver")) == 1)
    before = processes(cluster)
    with cluster.probed() as reports:
        cluster.kubectl("delete", "controlplanes", "--all")
        cluster.kubectl("delete", "crd", *_our_crds(cluster))
        cluster.kubectl("delete", "clusterrolebinding,clusterrole", "autarky:node-agent")
        cluster.kubectl(*SYSTEM, "delete", "rolebinding,role", "autarky:node-agent-leases")
        cluster.kubectl(*SYSTEM, "delete", "ds/node-agent", "deploy/autarky-operator")
        cluster.kubectl(*SYSTEM, "wait", "--for=delete", "pod", "-l", "k8s-app=autarky-operator", "--timeout=60s")
        assert processes(cluster) == before
        cluster.kubectl(*SYSTEM, "delete", "pod", *HOSTED_API)
        cluster.wait("the hosted API server is back", lambda: _is_ready(cluster, API), seconds=90)
        cluster.wait("the standby is dormant again", lambda: not standbys(cluster), seconds=90)
        schedules(cluster, "ownerless", AGNHOST)
        cluster.up()
        cluster.wait("everything is healthy", lambda: settled(cluster), seconds=90)
    nothing_failed(reports[0])
    assert cluster.kubectl("get", "controlplane", "cluster", "-o", "jsonpath={.spec.selfHosted}") == "1-4"
    assert {process for process in before if not process.startswith("kube-apiserver")} <= processes(cluster)


def _our_crds(cluster: TestCluster) -> list[str]:
    names = cluster.kubectl("get", "crd", "-o", "jsonpath={.items[*].metadata.name}").split()
    return [name for name in names if name.endswith(".autarky.dev")]


def _is_ready(cluster: TestCluster, workload: str) -> bool:
    return cluster.kubectl(*SYSTEM, "get", workload, "-o", "jsonpath={.status.numberReady}") == "1"


def test_etcd_killed_comes_back_and_nothing_is_torn_down_for_it(cluster: TestCluster) -> None:
    cluster.wait("the operator leads", lambda: cluster.status()["healthy"])
    servers, members = processes(cluster, "kube-apiserver"), processes(cluster, "etcd")
    judged = len(decisions(cluster, "kube-apiserver"))
    with cluster.probed() as reports:
        cluster.shell("n1", "pkill -KILL -x etcd")
        cluster.wait("the API answers again", cluster.api_answers, seconds=60)
        schedules(cluster, "after-etcd", AGNHOST)
        cluster.wait("everything is healthy", lambda: settled(cluster), seconds=90)
    nothing_lost(reports[0])
    [member] = processes(cluster, "etcd")
    assert member not in members
    assert processes(cluster, "kube-apiserver") == servers
    since = decisions(cluster, "kube-apiserver")[judged:]
    assert not [event for event in since if "standby takes over" in event or "withdrawn" in event], since


def test_every_pod_of_level_3_deleted_at_once_is_made_anew(cluster: TestCluster) -> None:
    selector = f"k8s-app in ({','.join(CONTROLLERS)})"
    before = processes(cluster, *CONTROLLERS)
    cluster.kubectl(*SYSTEM, "delete", "pod", "-l", selector)
    schedules(cluster, "after-level-3", AGNHOST)
    cluster.wait("everything is healthy", lambda: settled(cluster), seconds=120)
    assert not before & processes(cluster, *CONTROLLERS)


def test_a_kubelet_that_starts_with_no_api_brings_it_back_and_it_pivots_by_itself(cluster: TestCluster) -> None:
    killed, withdrawn = ("kube-apiserver", "kube-scheduler"), events_by_name(cluster, "StandbyWithdrawn")
    before = processes(cluster, *killed)
    cluster.shell("n1", " && ".join(["systemctl stop kubelet", *(f"pkill -KILL -x {name}" for name in killed)]))
    assert not cluster.api_answers()
    cluster.shell("n1", "systemctl start kubelet")
    cluster.wait("the API answers again", cluster.api_answers, seconds=60)
    schedules(cluster, "after-kubelet", AGNHOST)
    cluster.wait("everything is healthy", lambda: settled(cluster), seconds=120)
    assert not before & processes(cluster, *killed)

    def has_pivoted() -> bool:
        """Of what the kubelet's start puts in place, only the end is an event."""
        events = events_by_name(cluster, "StandbyWithdrawn")
        return any(events[name].startswith("kube-apiserver: ") for name in events.keys() - withdrawn.keys())

    cluster.wait("it is said that the standby went", has_pivoted)


@pytest.mark.rotation
def test_a_torn_checkpoint_and_torn_manifests_do_not_keep_the_api_down(cluster: TestCluster) -> None:
    """What a damaged disk or a hand leaves: the current revision without a pod, a manifest cut in half, garbage."""
    wait_for_checkpoint(cluster, "kube-apiserver")
    previous = cluster.shell("n1", "readlink /var/lib/autarky/standby/kube-apiserver/previous").strip()
    cluster.shell("n1", f"systemctl stop kubelet && pkill -KILL -x kube-apiserver && pkill -KILL -f '{AGENT}'")
    cluster.shell("n1", ": >/var/lib/autarky/standby/kube-apiserver/current/pod.json")
    cluster.shell("n1", f"head -c 300 {MANIFESTS}/etcd-*.json >{MANIFESTS}/standby-kube-apiserver-0badcafe.json")
    cluster.shell("n1", f"head -c 300 /dev/urandom >{MANIFESTS}/garbage.json; systemctl start kubelet")
    cluster.wait("the API answers again", cluster.api_answers, seconds=60)
    [active] = cluster.shell("n1", f"grep -l kube-apiserver {MANIFESTS}/standby-kube-apiserver-*").split()
    assert previous in cluster.shell("n1", f"cat {active}")
    cluster.wait("the standby is dormant again", lambda: settled(cluster), seconds=120)
    cluster.shell("n1", f"rm {MANIFESTS}/garbage.json")
    whole = "test -s /var/lib/autarky/standby/kube-apiserver/current/pod.json && echo whole || true"
    cluster.wait("the checkpoint is made anew", lambda: "whole" in cluster.shell("n1", whole), seconds=120)
