"""Another version of Kubernetes on one node, by `autarky upgrade` and by one edit of the ControlPlane: API servers,
level 3 and kube-proxy follow in their order, no request fails, no pod of a workload nor container of others restarts;
and back the same way.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from harness import TestCluster
from rollouts import HOSTED, patch_plane, quiet, undisturbed, version_wanted
from skew import skew_is_kept
from upgrades import everything_is_of, kubelets_began_before_the_end, unchanged_containers
from workloads import a_workload_goes_on

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.shares("one_node"),
    pytest.mark.rotation,
    pytest.mark.needs("v1.37.1"),
    pytest.mark.timeout(900),
]

NEXT = "v1.37.1"
WORKLOADS = (*HOSTED, "ds/kube-proxy")


@pytest.fixture(scope="module")
def cluster(one_node: TestCluster) -> TestCluster:
    quiet(one_node)
    return one_node


def status_of(cluster: TestCluster) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.kubectl("get", "controlplane", "cluster", "-o", "json"))["status"]
    return found


def reported(cluster: TestCluster) -> dict[str, Any]:
    """What `autarky upgrade status` says."""
    found: dict[str, Any] = json.loads(
        cluster.autarky("upgrade", "status", "-o", "json", "--cluster", cluster.name).stdout
    )
    return found


def versions(cluster: TestCluster) -> set[str]:
    return {version_wanted(cluster, workload) for workload in WORKLOADS}


def test_the_command_upgrades_the_control_plane_and_one_edit_takes_it_back(cluster: TestCluster) -> None:
    """Paused before its first step, where nothing is changed, and resumed. The next `up` keeps the version."""
    former, before = str(status_of(cluster)["version"]), unchanged_containers(cluster)
    command = ("upgrade", NEXT, "--cluster", cluster.name, "-o", "plain")
    planned = cluster.autarky("upgrade", "check", NEXT, "--cluster", cluster.name, "-o", "plain").stdout
    assert f"upgrade the control plane from {former} to {NEXT}" in planned
    assert status_of(cluster)["version"] == former

    cluster.autarky("upgrade", "pause", "--cluster", cluster.name)
    stopped = cluster.autarky(*command, check=False)
    assert stopped.status == 2, stopped
    assert f"the upgrade is paused before kube-apiserver: from {former} to {NEXT}" in stopped.stderr
    assert versions(cluster) == {former}
    assert reported(cluster)["state"] == "Paused"
    began = time.time()
    with skew_is_kept(cluster), a_workload_goes_on(cluster, least=60), undisturbed(cluster):
        cluster.autarky("upgrade", "resume", "--cluster", cluster.name)
        cluster.autarky(*command, timeout=600)
    kubelets_began_before_the_end(cluster, began)
    everything_is_of(cluster, NEXT)
    found = reported(cluster)
    assert (found["version"], found["former"], found["state"]) == (NEXT, former, "Complete")
    followed = cluster.autarky("plan", "--cluster", cluster.name, "-o", "plain").stdout
    assert "install 1 binaries on n1" in followed, "the next `up` brings kubectl, and the kubelet is there"
    assert "apply DaemonSet" not in followed, "the next `up` would take the upgrade back"
    quiet(cluster)

    with skew_is_kept(cluster), a_workload_goes_on(cluster, least=60), undisturbed(cluster):
        patch_plane(cluster, version=former)
        cluster.wait("it is complete", lambda: status_of(cluster)["version"] == former, seconds=420)
    everything_is_of(cluster, former)
    assert "upgrade" not in status_of(cluster)
    quiet(cluster)
    assert unchanged_containers(cluster) == before
