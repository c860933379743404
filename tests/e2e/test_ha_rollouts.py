"""Rollouts over three control nodes: with one of them off, with one whose standby serves alone, to the next minor.

The tests of this module build on each other, in order: each leaves the cluster healthy.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from ha import (
    CONTROL,
    EVERYBODY,
    WORKER,
    cut,
    etcd_members,
    hosted_server_killed_again_and_again,
    node_ready,
    nothing_failed,
    start,
    three_and_one,
    wait_until_healthy,
)
from harness import AGNHOST, Show, TestCluster
from intruder import REFUSED, Attempt, Worker, orders
from labels import standbys_that_serve
from leases import everything_is_led
from rollouts import (
    API,
    PROXY,
    condition,
    live,
    nothing_goes_back,
    rolled_out,
    rolls_out_one_after_the_other,
    runs_version,
    set_image,
    updated_on,
    version_wanted,
)
from slots import SYSTEM, hosted_on

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(900)]

NEXT = "v1.37.1"


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-ha-rollouts", **three_and_one())
    cluster.up()
    return cluster


@pytest.mark.chain("undo")
def test_rollouts_of_daemon_sets_go_on_while_a_control_node_is_off(cluster: TestCluster, show: Show) -> None:
    off, restarted = "n3", (API, PROXY)
    left = {node for node in CONTROL if node != off}
    wait_until_healthy(cluster)
    cut(cluster, off)
    cluster.kubectl("wait", "--for=condition=Ready=Unknown", f"node/{off}", "--timeout=120s")
    with cluster.probed(900, inside=WORKER) as from_worker, cluster.probed(900, inside="n1") as from_control:
        began = time.monotonic()
        cluster.kubectl(*SYSTEM, "rollout", "restart", *restarted)
        for workload, nodes in ((API, left), (PROXY, {*left, WORKER})):
            rolls_out_one_after_the_other(cluster, workload, nodes)
            show(
                f"{off} is off: {workload} has the new revision everywhere else after {time.monotonic() - began:.0f} s"
            )
        start(cluster, off)
        wait_until_healthy(cluster)
        assert updated_on(cluster, API) == set(CONTROL)
    for reports in (from_worker, from_control):
        nothing_failed(reports[0])
    for workload in restarted:
        assert live(cluster, workload)["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == 1
    assert condition(cluster, "Drifted")["status"] == "False"
    assert etcd_members(cluster, "n1") == set(CONTROL)
    everything_is_led(cluster)
    assert "up: unchanged" in cluster.up().stderr


@pytest.mark.chain("undo")
def test_back_by_rollout_undo_while_only_a_standby_serves_on_one_node_fails_no_request(cluster: TestCluster) -> None:
    wait_until_healthy(cluster)
    before = _hosted_servers(cluster, "n3")
    with hosted_server_killed_again_and_again(cluster, "n3") as let_it_live:
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
        nothing_failed(reports[0])


def _hosted_servers(cluster: TestCluster, node: str) -> set[str]:
    return set(cluster.kubectl(*SYSTEM, "get", "pods", *hosted_on(node), "-o", "name").split())


@pytest.mark.chain("next-minor")
@pytest.mark.needs("v1.37.1")
def test_a_rolling_upgrade_of_three_api_servers_fails_no_request(cluster: TestCluster) -> None:
    """And it stays: what goes back is rolled out as well, and as smoothly."""
    cluster.autarky("payload", "push", "--cluster", cluster.name, NEXT, timeout=600)
    former = version_wanted(cluster, API)
    runs_version(cluster, API, former, set(CONTROL))
    with (
        cluster.probed(850, inside=WORKER) as from_worker,
        cluster.probed(850, inside="n2") as from_control,
        nothing_goes_back(cluster, API),
    ):
        set_image(cluster, API, NEXT)
        cluster.wait("the rollout has begun", lambda: NEXT in cluster.kubectl("get", "pods", "-A", "-o", "yaml"))
        for _ in itertools.repeat(None, 3):  # one node after the other
            rolled_out(cluster, API)
    runs_version(cluster, API, NEXT, set(CONTROL))
    for reports in (from_worker, from_control):
        nothing_failed(reports[0])
        assert _versions_met(reports[0]) == {former, NEXT}


def _versions_met(report: Mapping[str, Any]) -> set[str]:
    """Of the API servers that answered the probe."""
    return {found["server"].partition(" ")[0] for found in report["servers"]}


@pytest.mark.chain("next-minor")
@pytest.mark.needs("v1.37.1")
def test_the_policies_hold_with_the_next_minors_api_servers(cluster: TestCluster) -> None:
    """Heartbeats and addresses go on, and what a worker may not order, or a tenant not take, is refused."""
    runs_version(cluster, API, NEXT, set(CONTROL))
    worker = Worker(cluster, WORKER)
    worker.collect()
    for name in ("kube-flannel", "kubelet-client"):
        answers = worker.tries(worker.credential(name), [*orders(WORKER), *orders("n1")])
        assert {what: one for what, one in answers.items() if one.status != REFUSED} == {}, name
    report = Attempt("says", "PATCH", f"/api/v1/nodes/{WORKER}/status", {"metadata": {"annotations": {"x": "y"}}})
    assert worker.tries(worker.credential("kubelet-client"), [report])["says"].status == 200
    assert {node_ready(cluster, node) for node in EVERYBODY} == {"True"}
    _a_tenant_takes_nothing_of_the_control_plane(cluster)


def _a_tenant_takes_nothing_of_the_control_plane(cluster: TestCluster) -> None:
    tenant = "--as=system:serviceaccount:default:tenant"
    important = {"apiVersion": "v1", "spec": {"priorityClassName": "system-node-critical"}}
    cluster.kubectl("create", "rolebinding", "tenant", "--clusterrole=edit", "--serviceaccount=default:tenant")
    cluster.kubectl("create", "service", "clusterip", "tenants", "--tcp=6443")
    try:
        patch = ("patch", "service", "tenants", tenant, "-p")
        cluster.kubectl(*patch, '{"metadata": {"labels": {"tenants": "own"}}}')
        refused = cluster.kubectl_error(*patch, '{"spec": {"externalIPs": ["10.0.0.9"]}}')
        assert "autarky-external-addresses" in refused
        run = ("run", "tenants", tenant, f"--image={AGNHOST}", "--overrides")
        refused = cluster.kubectl_error(*run, json.dumps(important))
        assert "autarky-priorities" in refused
        assert "autarky-api-service" in cluster.kubectl_error("delete", "service", "kubernetes", tenant)
    finally:
        cluster.kubectl("delete", "service/tenants", "rolebinding/tenant")
