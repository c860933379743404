"""Who owns a field: users edit the control plane with kubectl, and autarky neither fights nor forgets.

The tests of this module build on each other, in order.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ha import nothing_failed
from harness import TestCluster
from rollouts import API, CONTROLLER_MANAGER, SCHEDULER, condition, patch_plane
from slots import SYSTEM, settled

pytestmark = [pytest.mark.e2e, pytest.mark.shares("one_node"), pytest.mark.chain, pytest.mark.timeout(600)]

LEVEL_3 = (CONTROLLER_MANAGER, SCHEDULER)
AGENT_METRICS = 10301
OPERATOR_METRICS = 10300


@pytest.fixture(scope="module")
def cluster(one_node: TestCluster) -> TestCluster:
    one_node.wait("the operator has looked", lambda: condition(one_node, "Drifted").get("status") == "False")
    return one_node


def command(cluster: TestCluster, workload: str) -> list[str]:
    path = "jsonpath={.spec.template.spec.containers[0].command}"
    found: list[str] = json.loads(cluster.kubectl(*SYSTEM, "get", workload, "-o", path))
    return found


def edit_scheduler(cluster: TestCluster, flag: str) -> None:
    patch = [{"op": "add", "path": "/spec/template/spec/containers/0/command/-", "value": flag}]
    cluster.kubectl(*SYSTEM, "patch", SCHEDULER, "--type=json", "-p", json.dumps(patch))
    cluster.kubectl(*SYSTEM, "rollout", "status", SCHEDULER, "--timeout=90s")


def drift(cluster: TestCluster) -> list[dict[str, str]]:
    plan = cluster.autarky("plan", "-f", str(cluster.file), "-o", "json").stdout
    return [event for line in plan.splitlines() if (event := json.loads(line))["kind"] == "drift"]


def test_a_fresh_cluster_has_no_drift_and_nothing_to_do(cluster: TestCluster) -> None:
    assert cluster.autarky("plan", "-f", str(cluster.file)).stdout == "nothing would change\n"
    assert condition(cluster, "SpecApplied")["status"] == "True"


def test_an_edit_stands_and_plan_says_whose_it_is(cluster: TestCluster) -> None:
    edit_scheduler(cluster, "--v=3")
    (found,) = drift(cluster)
    assert found["subject"] == "Deployment kube-system/kube-scheduler"
    assert found["field"] == "spec.template.spec.containers[kube-scheduler].command[--v]"
    assert (found["ours"], found["live"], found["manager"]) == ("(not set)", "3", "kubectl-patch")
    assert "up: unchanged" in cluster.up().stderr
    assert "--v=3" in command(cluster, SCHEDULER)
    cluster.wait("the condition says it", lambda: "[--v] is 3" in condition(cluster, "Drifted").get("message", ""))


def test_an_argument_in_the_control_plane_reaches_the_workload_beside_the_edit(cluster: TestCluster) -> None:
    patch_plane(cluster, componentArguments={"kube-scheduler": {"profiling": "true"}})
    cluster.wait("the argument is there", lambda: "--profiling=true" in command(cluster, SCHEDULER))
    assert "--v=3" in command(cluster, SCHEDULER)
    assert "up: unchanged" in cluster.up().stderr
    assert "--profiling=true" in command(cluster, SCHEDULER)
    patch_plane(cluster, componentArguments={"kube-scheduler": None})
    cluster.wait("our own value is back", lambda: "--profiling=false" in command(cluster, SCHEDULER))
    assert "--v=3" in command(cluster, SCHEDULER)


def test_a_live_cluster_is_rendered_with_its_own_keys_and_the_edits_of_its_control_plane(
    cluster: TestCluster, tmp_path: Path
) -> None:
    patch_plane(cluster, componentArguments={"kube-scheduler": {"profiling": "true"}})
    cluster.wait("the argument is there", lambda: "--profiling=true" in command(cluster, SCHEDULER))
    said = cluster.autarky("render", "--cluster", cluster.name, str(tmp_path / "out")).stdout
    assert f"files in {tmp_path / 'out'}" in said
    [file] = (tmp_path / "out/manifests").glob("*-kube-scheduler.yaml")
    assert "- --profiling=true" in file.read_text()
    assert "- --profiling=false" not in file.read_text()
    # Secrets are named by their content: with other keys they would not be there.
    there = cluster.kubectl("get", "-f", str(file), "-o", "name").split()
    assert "deployment.apps/kube-scheduler" in there
    assert any(name.startswith("secret/kube-scheduler-") for name in there)
    patch_plane(cluster, componentArguments={"kube-scheduler": None})
    cluster.wait("our own value is back", lambda: "--profiling=false" in command(cluster, SCHEDULER))


def test_a_version_in_the_control_plane_is_refused_by_name_and_changes_nothing(cluster: TestCluster) -> None:
    before = json.loads(cluster.kubectl("get", "controlplane", "cluster", "-o", "json"))["spec"]["version"]
    images = _images(cluster)
    patch_plane(cluster, version="v1.99.0")
    cluster.wait("it is refused", lambda: condition(cluster, "SpecApplied").get("reason") == "UpgradeRefused")
    assert (
        f"minors are not skipped (rule 4): from {before} go to a 1.37 first"
        in condition(cluster, "SpecApplied")["message"]
    )
    patch_plane(cluster, version=before)
    cluster.wait("all is applied", lambda: condition(cluster, "SpecApplied").get("status") == "True")
    assert _images(cluster) == images


def _images(cluster: TestCluster) -> str:
    path = "jsonpath={.items[*].spec.template.spec.containers[0].image}"
    return cluster.kubectl(*SYSTEM, "get", API, *LEVEL_3, "-o", path)


def test_ownership_can_be_taken_back(cluster: TestCluster) -> None:
    planned = cluster.autarky("plan", "-f", str(cluster.file), "--take-ownership").stdout
    assert "take back Deployment kube-system/kube-scheduler" in planned
    cluster.up("--take-ownership")
    assert "--v=3" not in command(cluster, SCHEDULER)
    assert drift(cluster) == []
    cluster.wait("nothing has drifted", lambda: condition(cluster, "Drifted").get("status") == "False")


def test_metrics_and_slots_say_what_is(cluster: TestCluster) -> None:
    agent = metrics(cluster, AGENT_METRICS)
    assert 'autarky_agent_standby_active{component="kube-apiserver"} 0.0' in agent
    assert "autarky_agent_api_reachable 1.0" in agent
    assert 'autarky_agent_activations_total{component="kube-apiserver"}' in agent
    assert 'autarky_agent_checkpoint_age_seconds{component="kube-apiserver"}' in agent
    operator = metrics(cluster, OPERATOR_METRICS)
    assert "autarky_operator_leads 1.0" in operator
    assert 'autarky_operator_certificate_decisions_total{verdict="approve"}' in operator
    assert slots(cluster)["kube-apiserver"]["slot"] == "hosted"


def metrics(cluster: TestCluster, port: int) -> str:
    return cluster.shell("n1", f"exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}; {_GET} >&3; cat <&3'")


_GET = 'printf "GET /metrics HTTP/1.0\\r\\n\\r\\n"'


def slots(cluster: TestCluster) -> dict[str, Any]:
    """The status of the only node's slots."""
    (node,) = json.loads(cluster.kubectl("get", "controlplane", "cluster", "-o", "json"))["status"]["nodes"]
    found: dict[str, Any] = node["slots"]
    return found


def test_the_levels_move_by_an_edit_of_the_control_plane_and_no_request_fails(cluster: TestCluster) -> None:
    edit_scheduler(cluster, "--v=2")
    with cluster.probed() as reports:
        patch_plane(cluster, selfHosted="4")
        cluster.wait("nothing is hosted", lambda: hosted(cluster) == "", seconds=150)
        cluster.wait("it is carried out", lambda: condition(cluster, "SpecApplied").get("status") == "True")
        # The node's agent hears of the pods' end after the operator has ended them.
        cluster.wait("its slots say so", lambda: {one["slot"] for one in slots(cluster).values()} == {"standby"})
        patch_plane(cluster, selfHosted="1-4")
        cluster.wait("everything is hosted", lambda: len(hosted(cluster).split()) == 3, seconds=150)
        cluster.wait("the standbys are dormant", lambda: settled(cluster), seconds=150)
    nothing_failed(reports[0])
    assert "--v=2" in command(cluster, SCHEDULER)


def hosted(cluster: TestCluster) -> str:
    return cluster.kubectl(*SYSTEM, "get", API, *LEVEL_3, "--ignore-not-found", "-o", "name")


@pytest.mark.rotation
def test_up_follows_the_levels_of_an_edited_control_plane(cluster: TestCluster) -> None:
    patch_plane(cluster, selfHosted="3-4")
    cluster.wait("the API server is not hosted", lambda: API[3:] not in hosted(cluster), seconds=150)
    cluster.wait("it is carried out", lambda: condition(cluster, "SpecApplied").get("status") == "True")
    assert [found["field"] for found in drift(cluster)] == [
        "spec.selfHosted",
        "spec.template.spec.containers[kube-scheduler].command[--v]",
    ]
    assert "up: unchanged" in cluster.up().stderr
    assert hosted(cluster).split() == ["deployment.apps/kube-controller-manager", "deployment.apps/kube-scheduler"]
    cluster.up("--take-ownership")
    cluster.wait("everything is hosted as the file says", lambda: len(hosted(cluster).split()) == 3)
    assert drift(cluster) == []
