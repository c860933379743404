"""Bad rollouts of the control plane go back by themselves, and the API of the only node never stops answering.

The tests of this module build on each other, in order.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from harness import TestCluster, one_node

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SYSTEM = ("-n", "kube-system")
API = "ds/kube-apiserver"
SCHEDULER = "deploy/kube-scheduler"
BAD_IMAGE = "registry.k8s.io/kube-apiserver:v1.36.99"


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-operator", **one_node(rollback={"limitSeconds": 20}))
    cluster.up()
    for workload in (API, SCHEDULER):
        cluster.wait(f"{workload} has a last good revision", lambda w=workload: _last_good(cluster, w))
    return cluster


def _last_good(cluster: TestCluster, workload: str) -> bool:
    name = f"autarky-last-good-{workload.partition('/')[2]}"
    return bool(cluster.kubectl(*SYSTEM, "get", "secret", name, "--ignore-not-found", "-o", "name"))


def template(cluster: TestCluster, workload: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.kubectl(*SYSTEM, "get", workload, "-o", "json"))["spec"]["template"]
    return found


def rolled_back(cluster: TestCluster, workload: str) -> str:
    """The messages of the events that say so."""
    kept = ("--field-selector", f"reason=RolledBack,involvedObject.name={workload.partition('/')[2]}")
    return cluster.kubectl(*SYSTEM, "get", "events", *kept, "-o", "jsonpath={.items[*].message}")


def test_a_bad_image_of_the_only_api_server_goes_back_and_fails_no_request(cluster: TestCluster) -> None:
    good = template(cluster, API)
    with cluster.probed() as reports:
        cluster.kubectl(*SYSTEM, "set", "image", API, f"kube-apiserver={BAD_IMAGE}")
        cluster.wait("the good template is back", lambda: template(cluster, API) == good, seconds=120)
        cluster.kubectl(*SYSTEM, "rollout", "status", API, "--timeout=90s")
        cluster.wait("everything is healthy", lambda: cluster.status()["healthy"])
    assert reports[0]["failed"] == 0, reports[0]
    assert "v1.36.99" in rolled_back(cluster, API)


def test_a_bad_flag_of_the_scheduler_goes_back_and_the_standby_schedules_meanwhile(cluster: TestCluster) -> None:
    good = template(cluster, SCHEDULER)
    bad = json.loads(json.dumps(good))
    bad["spec"]["containers"][0]["command"].append("--no-such-flag=1")
    cluster.kubectl(*SYSTEM, "patch", SCHEDULER, "--type=merge", "-p", json.dumps({"spec": {"template": bad}}))
    cluster.wait("the good template is back", lambda: template(cluster, SCHEDULER) == good, seconds=120)
    cluster.kubectl(*SYSTEM, "rollout", "status", SCHEDULER, "--timeout=90s")
    assert "unknown flag: --no-such-flag" in rolled_back(cluster, SCHEDULER)


def test_the_control_plane_says_what_went_back(cluster: TestCluster) -> None:
    status = json.loads(cluster.kubectl("get", "controlplane", "cluster", "-o", "json"))["status"]
    conditions = {condition["type"]: condition for condition in status["conditions"]}
    assert conditions["RolledBack"]["status"] == "True"
    assert "kube-scheduler" in conditions["RolledBack"]["message"]


def test_doctor_finds_nothing_wrong_afterwards_and_names_a_kubelet_that_is_stopped(cluster: TestCluster) -> None:
    cluster.wait("nothing is wrong", lambda: "nothing is wrong" in _doctor(cluster))
    cluster.shell("n1", "systemctl stop kubelet")
    assert "n1: kubelet does not run" in _doctor(cluster).splitlines()[0]
    cluster.shell("n1", "systemctl start kubelet")


def _doctor(cluster: TestCluster) -> str:
    return cluster.autarky("doctor", "--cluster", cluster.name, check=False).stdout
