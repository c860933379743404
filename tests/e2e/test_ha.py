"""Three control nodes and a worker from one file: any one of them may go, come back, or be replaced.

The tests of this module build on each other, in order: each leaves the cluster healthy.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from ha import (
    CONTROL,
    EVERYBODY,
    WORKER,
    cut,
    etcd_leader,
    etcd_members,
    lab_hosts,
    longest_outage,
    start,
    survived,
    three_and_one,
    wait_until_healthy,
)
from harness import AGNHOST, TestCluster, kill_at
from labels import endpoints, is_worker, parts_of_a_control_node, standbys_that_serve, unlabel
from power import Client, Writer
from rollouts import API, rolled_out, set_image
from slots import SYSTEM, hosted_on
from survival import schedules

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

Show = Callable[[str], None]


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-ha", **three_and_one())
    cluster.up()
    return cluster


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Show:
    """Print although nothing failed: times are what these scenarios are read for."""

    def printed(text: str) -> None:
        with capsys.disabled():
            print(f"\n{text}", flush=True)  # noqa: T201

    return printed


def test_one_run_brings_up_three_control_nodes_and_a_worker(cluster: TestCluster) -> None:
    wait_until_healthy(cluster)
    hosted = [row for row in cluster.status()["rows"] if row["slot"] == "hosted"]
    assert {row["node"] for row in hosted if row["component"] == "kube-apiserver"} == set(CONTROL)
    assert etcd_members(cluster, "n1") == set(CONTROL)
    assert "up: unchanged" in cluster.up().stderr


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


@pytest.mark.slow
def test_a_worker_whose_machine_was_replaced_joins_anew_under_its_name(cluster: TestCluster) -> None:
    cluster.kubectl("wait", "--for=condition=Ready", f"node/{WORKER}", "--timeout=60s")
    before = _uid(cluster, WORKER)
    cluster.autarky("lab", "remove", "--lab", cluster.name, WORKER)
    said = cluster.up().stderr
    assert f"the machine that was {WORKER} before is forgotten" in said
    assert _uid(cluster, WORKER) != before
    wait_until_healthy(cluster)


def test_a_worker_is_reported_when_the_file_lacks_it_and_goes_when_it_is_asked_for(cluster: TestCluster) -> None:
    smaller = TestCluster(cluster.name, {"nodes": [n for n in three_and_one()["nodes"] if n["name"] != WORKER]})
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


@pytest.mark.slow
def test_a_control_node_that_is_gone_for_good_leaves_nothing_when_it_is_removed_as_dead(cluster: TestCluster) -> None:
    node = _lease_holder(cluster, "autarky-operator")  # who removes it must not need it
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


def _lease_holder(cluster: TestCluster, name: str) -> str:
    """The node whose process leads: all of ours are on the host network, and name themselves HOST_UUID."""
    path = "jsonpath={.spec.holderIdentity}"
    return cluster.kubectl(*SYSTEM, "get", "lease", name, "-o", path).partition("_")[0]


@pytest.mark.slow
def test_a_removal_that_would_cost_the_quorum_is_refused(cluster: TestCluster) -> None:
    cut(cluster, "n3")
    refused = cluster.autarky("node", "remove", "--cluster", cluster.name, "n2", "--yes", "-o", "plain", check=False)
    assert refused.status == 6, refused.stderr
    assert "etcd keeps its quorum" in refused.stderr
    unsure = cluster.autarky("node", "remove", "--cluster", cluster.name, "n3", "--yes", "-o", "plain", check=False)
    assert "--dead" in unsure.stderr
    start(cluster, "n3")
    wait_until_healthy(cluster)


def _leaders(cluster: TestCluster) -> dict[str, str]:
    """Which node leads what."""
    leases = ("autarky-operator", "kube-controller-manager", "kube-scheduler")
    return {"etcd": etcd_leader(cluster), **{name: _lease_holder(cluster, name) for name in leases}}


def _uid(cluster: TestCluster, node: str) -> str:
    return cluster.kubectl("get", "node", node, "--ignore-not-found", "-o", "jsonpath={.metadata.uid}")


# --- longer ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("node", CONTROL)
def test_a_power_cut_of_each_control_node_in_turn(cluster: TestCluster, show: Show, node: str) -> None:
    other = next(name for name in CONTROL if name != node)
    with cluster.probed(inside=WORKER) as from_worker, cluster.probed(inside=other) as from_control:
        time.sleep(2)
        roles = [role for role, leader in _leaders(cluster).items() if leader == node]
        cut(cluster, node)
        time.sleep(60)
        start(cluster, node)
        back = wait_until_healthy(cluster)
    show(f"{node} led: {', '.join(roles) or 'nothing'}")
    show(f"cut of {node}: from {WORKER}: {from_worker[0]['verdict']}; from {other}: {from_control[0]['verdict']}")
    kinds = Counter((f["stream"], f["kind"]) for report in (*from_worker, *from_control) for f in report["failures"])
    show(f"{node} was back where it belongs {back:.1f} s after its power; what failed: {dict(kinds)}")
    survived(from_worker[0])
    survived(from_control[0])


@pytest.mark.slow
@pytest.mark.parametrize("order", [EVERYBODY, EVERYBODY[::-1], ("n2", "w1", "n3", "n1")])
def test_a_power_cut_of_all_started_in_any_order(cluster: TestCluster, show: Show, order: tuple[str, ...]) -> None:
    writer = Writer(Client(cluster))
    with writer.writing():
        time.sleep(2)
        cut(cluster, *EVERYBODY)
    began = time.monotonic()
    for node in order:
        start(cluster, node)
    cluster.wait("the API answers", cluster.api_answers, seconds=120)
    answered = time.monotonic() - began
    show(f"all four cut, started as {', '.join(order)}: /readyz after {answered:.1f} s")
    wait_until_healthy(cluster)
    assert len(writer.acknowledged) > 20
    assert writer.lost() == set()


@pytest.mark.slow
@pytest.mark.parametrize("missing", CONTROL)
def test_a_power_cut_of_all_with_one_control_node_missing(cluster: TestCluster, show: Show, missing: str) -> None:
    cut(cluster, *EVERYBODY)
    began = time.monotonic()
    start(cluster, *(node for node in EVERYBODY if node != missing))
    cluster.wait("the API answers", cluster.api_answers, seconds=120)
    answered = time.monotonic() - began
    schedules(cluster, f"without-{missing}", AGNHOST)
    show(f"all four cut, {missing} stays off: /readyz after {answered:.1f} s, a pod {time.monotonic() - began:.1f} s")
    start(cluster, missing)
    wait_until_healthy(cluster)


@pytest.mark.slow
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
    assert reports[0]["failed"] == 0, reports[0]
    assert etcd_members(cluster, "n1") == set(CONTROL)
    assert "up: unchanged" in cluster.up().stderr


@pytest.mark.slow
def test_a_rolling_upgrade_of_three_api_servers_fails_no_request(cluster: TestCluster) -> None:
    cluster.autarky("payload", "push", "--cluster", cluster.name, "v1.37.1", timeout=600)
    with cluster.probed(600, inside=WORKER) as from_worker, cluster.probed(600, inside="n2") as from_control:
        set_image(cluster, API, "v1.37.1")
        cluster.wait("the rollout has begun", lambda: "v1.37.1" in cluster.kubectl("get", "pods", "-A", "-o", "yaml"))
        for _ in itertools.repeat(None, 3):  # one node after the other
            rolled_out(cluster, API)
    for reports in (from_worker, from_control):
        assert reports[0]["failed"] == 0, reports[0]


@pytest.mark.slow
def test_a_control_node_that_is_added_later_joins_by_its_label_and_leaves_when_it_is_asked_for(
    cluster: TestCluster,
) -> None:
    add = ("node", "add", "--cluster", cluster.name, "n4", "--host", "lab", "--control-plane", "-o", "plain")
    with cluster.probed(900, inside=WORKER) as reports:
        for seconds in (4, 12):  # a join that is killed is run again
            kill_at(add, seconds)
        cluster.autarky(*add, timeout=400)
        wait_until_healthy(cluster)
        assert etcd_members(cluster, "n1") == {*CONTROL, "n4"}
        cluster.autarky("node", "remove", "--cluster", cluster.name, "n4", "--yes", "-o", "plain", timeout=400)
        assert etcd_members(cluster, "n1") == set(CONTROL)
    assert reports[0]["failed"] == 0, reports[0]
    assert _uid(cluster, "n4") == ""
    cluster.up()
    assert "up: unchanged" in cluster.up().stderr


@pytest.mark.slow
def test_back_by_rollout_undo_while_only_a_standby_serves_on_one_node_fails_no_request(cluster: TestCluster) -> None:
    wait_until_healthy(cluster)
    before = _hosted_servers(cluster, "n3")
    with _hosted_server_killed_again_and_again(cluster, "n3") as let_it_live:
        serves = "kube-apiserver on n3"
        cluster.wait("only the standby serves on n3", lambda: standbys_that_serve(cluster) == [serves], seconds=90)
        with cluster.probed(600, inside=WORKER) as from_worker, cluster.probed(600, inside="n3") as from_there:
            cluster.kubectl(*SYSTEM, "rollout", "undo", API)
            cluster.wait("n3 has its new pod", lambda: _hosted_servers(cluster, "n3") - before, seconds=120)
            let_it_live()
            for _ in itertools.repeat(None, 3):  # one node after the other
                rolled_out(cluster, API)
            wait_until_healthy(cluster)
    for reports in (from_worker, from_there):
        assert reports[0]["failed"] == 0, reports[0]


@contextmanager
def _hosted_server_killed_again_and_again(cluster: TestCluster, node: str) -> Iterator[Callable[[], None]]:
    """Every second, so that it never serves; until what is yielded is called."""
    unit = "kill-the-hosted-server"
    loop = "while :; do pkill -KILL -f -- '[-]-secure-port=7443'; sleep 1; done"

    def stop() -> None:
        cluster.shell(node, f"systemctl stop {unit} 2>/dev/null || true")

    cluster.shell(node, f'systemd-run --quiet --collect --unit={unit} sh -c "{loop}"')
    try:
        yield stop
    finally:
        stop()


def _hosted_servers(cluster: TestCluster, node: str) -> set[str]:
    return set(cluster.kubectl(*SYSTEM, "get", "pods", *hosted_on(node), "-o", "name").split())


@pytest.mark.slow
def test_a_control_node_whose_machine_burnt_down_is_replaced_under_its_name(cluster: TestCluster) -> None:
    wait_until_healthy(cluster)
    cluster.autarky("lab", "remove", "--lab", cluster.name, "n3")
    said = cluster.autarky("up", "--cluster", cluster.name, "-o", "plain", timeout=600).stderr
    assert "the machine that was n3 before is forgotten" in said
    wait_until_healthy(cluster)
    assert etcd_members(cluster, "n1") == set(CONTROL)
    assert "up: unchanged" in cluster.up().stderr
