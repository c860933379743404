"""Three control nodes and a worker from one file: any one of them may go, come back, or be replaced.

The tests of this module build on each other, in order: each leaves the cluster healthy.
"""

from __future__ import annotations

import json
import signal
import time
from functools import partial

import pytest
from ha import (
    CONTROL,
    WORKER,
    a_static_pod_that_passes_for_an_api_server,
    cut,
    etcd_leader,
    etcd_members,
    lab_hosts,
    longest_outage,
    member_phases,
    nothing_failed,
    start,
    survived,
    wait_until_healthy,
)
from harness import Show, TestCluster, kill_at
from intruder import Worker, are_judged, ask_in_its_own_name, requests_named
from labels import (
    WISH,
    all_vote,
    endpoints,
    is_worker,
    label,
    nothing_has_left,
    parts_of_a_control_node,
    unlabel,
)
from leases import everything_is_led, leader
from leaves import restarts
from rollouts import (
    SCHEDULER,
    condition,
    explanations,
    last_good,
    patch_plane,
)
from slots import SYSTEM

pytestmark = [pytest.mark.e2e, pytest.mark.shares("three_and_one"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster(three_and_one: TestCluster) -> TestCluster:
    return three_and_one


def test_one_run_brings_up_three_control_nodes_and_a_worker(cluster: TestCluster) -> None:
    wait_until_healthy(cluster)
    hosted = [row for row in cluster.status()["rows"] if row["slot"] == "hosted"]
    assert {row["node"] for row in hosted if row["component"] == "kube-apiserver"} == set(CONTROL)
    assert etcd_members(cluster, "n1") == set(CONTROL)
    assert "up: unchanged" in cluster.up().stderr


def test_labels_that_go_from_all_control_nodes_at_once_cost_neither_a_control_node_nor_a_member(
    cluster: TestCluster,
) -> None:
    all_vote(cluster)
    everything_is_led(cluster)
    with cluster.probed() as reports:
        cluster.kubectl("label", "node", "--all", f"{WISH}-")
        try:
            said = "no control node would be left"
            for node in CONTROL:
                cluster.wait(f"{node} stays", lambda: said in condition(cluster, "NodesAsLabelled")["message"])
                cluster.wait("it is said", lambda: said in cluster.kubectl("describe", "node", node))  # noqa: B023
            time.sleep(20)  # several rounds of the operator, and more than a member needs to go
            nothing_has_left(cluster)
        finally:
            label(cluster, *CONTROL)
    nothing_has_left(cluster)
    everything_is_led(cluster)
    nothing_failed(reports[0])


def test_a_typo_in_the_list_of_members_is_refused_and_all_deleted_etcdmembers_come_back(cluster: TestCluster) -> None:
    everything_is_led(cluster)
    with cluster.probed() as reports:
        patch_plane(cluster, etcd={"members": ["n1", "n9"]})
        try:
            said = "n9 is no control node (did you mean"
            cluster.wait("it is refused", lambda: said in condition(cluster, "SpecApplied")["message"])
            time.sleep(20)  # as above: the list is in place for longer than a member needs to be asked to go
            nothing_has_left(cluster)
            cluster.kubectl("delete", "etcdmembers", "--all")
            cluster.wait("they are written anew", lambda: set(member_phases(cluster)) == set(CONTROL))
            time.sleep(20)
            nothing_has_left(cluster)
        finally:
            patch_plane(cluster, etcd={"members": None})
        cluster.wait("it is applied", lambda: condition(cluster, "SpecApplied")["status"] == "True")
        all_vote(cluster)
        nothing_has_left(cluster)
    everything_is_led(cluster)
    nothing_failed(reports[0])


def test_a_power_cut_of_etcds_leader_is_hardly_noticed_from_the_worker(cluster: TestCluster, show: Show) -> None:
    leader = etcd_leader(cluster)
    left = [node for node in CONTROL if node != leader]
    with cluster.probed(inside=WORKER) as reports:
        time.sleep(2)
        cut(cluster, leader)
        cluster.wait("another member leads", lambda: etcd_leader(cluster, left))
        time.sleep(10)
    show(f"cut of {leader}, etcd's leader: {reports[0]['verdict']}; outage {longest_outage(reports[0]):.1f} s")
    survived(reports[0])
    _is_named_while_it_is_gone(cluster, leader)
    start(cluster, leader)
    show(f"{leader} is back where it belongs after {wait_until_healthy(cluster):.1f} s")
    assert "up: unchanged" in cluster.up().stderr


def _is_named_while_it_is_gone(cluster: TestCluster, node: str) -> None:
    """Every command works through the nodes that are left, and says which one is not there."""
    status = cluster.status()
    assert status["api"] == "ready", status
    assert list(status["absent"]) == [node]
    findings = json.loads(cluster.autarky("doctor", "--cluster", cluster.name, "-o", "json", check=False).stdout)
    assert findings[0]["subject"] == node, findings
    assert any("stops if one more member fails" in finding["what"] for finding in findings), findings
    plan = cluster.autarky("plan", "-f", str(cluster.file), "-o", "plain")
    assert f"create or power on lab host {node}" in plan.stdout
    assert "Start the temporary control plane" not in plan.stdout
    assert f"node {node}: its machine does not run" in plan.stderr
    without = cluster.up("--skip", "create-hosts", check=False)
    assert without.status == 3, without.stderr
    assert f"node {node}: its machine does not run" in without.stderr
    assert cluster.kubectl("get", "--raw", "/readyz") == "ok"


def test_a_workers_static_pod_that_passes_for_an_old_api_server_vetoes_no_rollout(cluster: TestCluster) -> None:
    """Beside an API server of 1.30 no scheduler of today could run: its rollout would go back at once."""
    good, told = last_good(cluster, SCHEDULER), explanations(cluster, SCHEDULER)
    with a_static_pod_that_passes_for_an_api_server(cluster, WORKER, "v1.30.0"):
        cluster.kubectl(*SYSTEM, "rollout", "restart", SCHEDULER)
        cluster.wait("it is good", lambda: last_good(cluster, SCHEDULER) not in {"", good}, seconds=100)
        rows = cluster.status()["rows"]
    assert explanations(cluster, SCHEDULER) == told
    assert {row["node"] for row in rows if row["component"] == "kube-apiserver"} == set(CONTROL)


@pytest.mark.rotation
def test_a_workers_agent_that_stands_still_is_ended_by_its_kubelet(cluster: TestCluster) -> None:
    """No other one waits there."""
    there = ("-l", "k8s-app=node-agent", f"--field-selector=spec.nodeName={WORKER}")
    [pod] = cluster.kubectl(*SYSTEM, "get", "pods", *there, "-o", "jsonpath={.items[*].metadata.name}").split()
    before = restarts(cluster)[pod]
    cluster.shell(WORKER, "pkill -STOP -f '[a]utarky.agents.node$'")
    cluster.wait("it is started again", lambda: restarts(cluster).get(pod, 0) > before, seconds=300)
    wait_until_healthy(cluster)


@pytest.mark.rotation
def test_a_worker_whose_machine_was_replaced_joins_anew_under_its_name(cluster: TestCluster) -> None:
    cluster.kubectl("wait", "--for=condition=Ready", f"node/{WORKER}", "--timeout=60s")
    before = _uid(cluster, WORKER)
    former = cluster.shell(WORKER, f"base64 -w0 {BOOTSTRAP}")
    cluster.autarky("lab", "remove", "--lab", cluster.name, WORKER)
    said = cluster.up().stderr
    assert f"the machine that was {WORKER} before is forgotten" in said
    assert _uid(cluster, WORKER) != before
    wait_until_healthy(cluster)
    _comes_back_with_its_own_credential_only(cluster, former)


BOOTSTRAP = "/etc/kubernetes/bootstrap-kubelet.conf"


def _comes_back_with_its_own_credential_only(cluster: TestCluster, former: str) -> None:
    """What the machine before had for that, which was of the same name, is denied."""
    worker = Worker(cluster, WORKER)
    cluster.shell(WORKER, f"mkdir -p /run/former && echo {former} | base64 -d > /run/former/former.conf")
    for path, expected in (("/run/former/former.conf", "Denied"), (BOOTSTRAP, "Approved")):
        name = f"asks-{expected.lower()}"
        answer = ask_in_its_own_name(worker, worker.take(path), name)
        assert answer.status == 201, answer
        cluster.wait("it is judged", partial(are_judged, cluster, [name]))
        [csr] = requests_named(cluster, [name])
        assert [one["type"] for one in csr["status"]["conditions"]] == [expected], csr
        cluster.kubectl("delete", "csr", name)


def test_a_worker_is_reported_when_the_file_lacks_it_and_goes_when_it_is_asked_for(cluster: TestCluster) -> None:
    smaller = TestCluster(cluster.name, {"nodes": [n for n in cluster.spec["nodes"] if n["name"] != WORKER]})
    assert f"node {WORKER}: membership is kept" in smaller.up().stderr
    assert _uid(cluster, WORKER)
    smaller.autarky("node", "remove", "-f", str(smaller.file), WORKER, "--drain", "--yes", "-o", "plain")
    assert _traces(cluster, WORKER) == []
    assert WORKER not in cluster.kubectl("-n", "kube-system", "get", "cm", "autarky-join-inventory", "-o", "yaml")
    assert WORKER not in lab_hosts(cluster)
    assert "up: unchanged" in smaller.up().stderr
    cluster.autarky("node", "add", "--cluster", cluster.name, WORKER, "--host", "lab", "-o", "plain")
    wait_until_healthy(cluster)
    assert "up: unchanged" in cluster.up().stderr


@pytest.mark.rotation
def test_a_control_node_that_is_gone_for_good_leaves_nothing_when_it_is_removed_as_dead(cluster: TestCluster) -> None:
    node = leader(cluster, "deploy/autarky-operator")  # who removes it must not need it
    left = {name for name in CONTROL if name != node}
    one = min(left)
    with cluster.probed(600, inside=WORKER) as reports:
        cut(cluster, node)
        cluster.autarky(
            "node", "remove", "--cluster", cluster.name, node, "--dead", "--yes", "-o", "plain", timeout=400
        )
        assert etcd_members(cluster, one) == left
        cluster.wait("nothing of it is left", lambda: not _traces(cluster, node))
    survived(reports[0])
    cluster.autarky("lab", "remove", "--lab", cluster.name, node, check=False)
    cluster.autarky(
        "node", "add", "--cluster", cluster.name, node, "--host", "lab", "--control-plane", "-o", "plain", timeout=600
    )
    wait_until_healthy(cluster)
    assert etcd_members(cluster, one) == set(CONTROL)


def _traces(cluster: TestCluster, node: str) -> list[str]:
    """What the API still has of a node that is gone."""
    kinds = ("nodes", "etcdmembers", "csinodes")
    named = {kind: cluster.kubectl("get", kind, "-o", "name").split() for kind in kinds}
    found = [name for names in named.values() for name in names if name.endswith(f"/{node}")]
    pods = cluster.kubectl("get", "pods", "-A", f"--field-selector=spec.nodeName={node}", "-o", "name").split()
    leases = cluster.kubectl("-n", "kube-node-lease", "get", "leases", "-o", "name").split()
    found += [*pods, *(lease for lease in leases if lease.endswith(f"/{node}"))]
    if node in endpoints(cluster):
        found.append("default/kubernetes")
    listed = cluster.autarky("node", "list", "--cluster", cluster.name).stdout.splitlines()
    return [*found, *(line for line in listed if line.split()[0] == node)]


@pytest.mark.rotation
def test_a_removal_that_would_cost_the_quorum_is_refused(cluster: TestCluster) -> None:
    cut(cluster, "n3")
    refused = cluster.autarky("node", "remove", "--cluster", cluster.name, "n2", "--yes", "-o", "plain", check=False)
    assert refused.status == 6, refused.stderr
    assert "etcd keeps its quorum" in refused.stderr
    unsure = cluster.autarky("node", "remove", "--cluster", cluster.name, "n3", "--yes", "-o", "plain", check=False)
    assert "--dead" in unsure.stderr
    start(cluster, "n3")
    wait_until_healthy(cluster)


def _uid(cluster: TestCluster, node: str) -> str:
    return cluster.kubectl("get", "node", node, "--ignore-not-found", "-o", "jsonpath={.metadata.uid}")


@pytest.mark.rotation
def test_a_control_node_that_up_has_made_loses_all_its_keys_with_its_label_and_up_makes_it_one_again(
    cluster: TestCluster,
) -> None:
    with cluster.probed(600, inside=WORKER) as reports:
        unlabel(cluster, "n3")
        cluster.wait("n3 is a worker", lambda: is_worker(cluster, "n3"), seconds=180)
        assert not parts_of_a_control_node(cluster, "n3")
        assert etcd_members(cluster, "n1") == {"n1", "n2"}
        cluster.up()  # whose file has it as a control node
        wait_until_healthy(cluster)
    nothing_failed(reports[0])
    assert etcd_members(cluster, "n1") == set(CONTROL)
    assert "up: unchanged" in cluster.up().stderr


@pytest.mark.rotation
def test_a_control_node_that_is_added_later_joins_by_its_label_and_leaves_when_it_is_asked_for(
    cluster: TestCluster,
) -> None:
    add = ("node", "add", "--cluster", cluster.name, "n4", "--host", "lab", "--control-plane", "-o", "plain")
    with cluster.probed(900, inside=WORKER) as reports:
        for seconds in (4, 12):  # a join that is killed is run again
            assert kill_at(add, seconds) == -signal.SIGKILL, f"it has ended within {seconds} s"
        cluster.autarky(*add, timeout=400)
        wait_until_healthy(cluster)
        assert etcd_members(cluster, "n1") == {*CONTROL, "n4"}
        cluster.autarky("node", "remove", "--cluster", cluster.name, "n4", "--yes", "-o", "plain", timeout=400)
        assert etcd_members(cluster, "n1") == set(CONTROL)
    nothing_failed(reports[0])
    assert _uid(cluster, "n4") == ""
    cluster.up()
    assert "up: unchanged" in cluster.up().stderr


@pytest.mark.rotation
def test_a_control_node_whose_machine_burnt_down_is_replaced_under_its_name(cluster: TestCluster) -> None:
    wait_until_healthy(cluster)
    cluster.autarky("lab", "remove", "--lab", cluster.name, "n3")
    said = cluster.autarky("up", "--cluster", cluster.name, "-o", "plain", timeout=600).stderr
    assert "the machine that was n3 before is forgotten" in said
    wait_until_healthy(cluster)
    assert etcd_members(cluster, "n1") == set(CONTROL)
    assert "up: unchanged" in cluster.up().stderr
