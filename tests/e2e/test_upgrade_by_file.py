"""Another version of Kubernetes by a new one in the cluster file, on one node: a flag that the new version lacks is
refused before anything is touched; then the control plane, and after it the kubelet, have the version; and back.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from harness import TestCluster, one_node
from rollouts import API, quiet, undisturbed, version_wanted
from skew import skew_is_kept

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.chain,
    pytest.mark.rotation,
    pytest.mark.needs("v1.37.1"),
    pytest.mark.timeout(900),
]

NEXT = "1.37.1"
REMOVED = {"kube-controller-manager": {"concurrent-service-syncs": "2"}}
"""A flag of 1.36 that 1.37 does not know."""


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-upgrade-file", **one_node(extraArgs=REMOVED))
    cluster.up()
    return cluster


def kubelets(cluster: TestCluster) -> set[str]:
    return set(cluster.kubectl("get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}").split())


def test_a_flag_that_the_new_version_lacks_is_refused_by_every_way_to_ask_for_it(cluster: TestCluster) -> None:
    before = cluster.kubectl("get", "ds,deploy", "-A", "-o", "jsonpath={.items[*].metadata.generation}")
    former = dict(cluster.spec)
    for asked in (("upgrade", "check", NEXT, "--cluster", cluster.name), ("upgrade", NEXT, "--cluster", cluster.name)):
        refused = cluster.autarky(*asked, check=False)
        assert (refused.status, "--concurrent-service-syncs" in refused.stderr) == (2, True), refused
    cluster.spec = {**former, "kubernetesVersion": NEXT}
    refused = cluster.up(check=False)
    assert (refused.status, "--concurrent-service-syncs" in refused.stderr) == (2, True), refused
    cluster.spec = former
    assert cluster.kubectl("get", "ds,deploy", "-A", "-o", "jsonpath={.items[*].metadata.generation}") == before
    plane = json.loads(cluster.kubectl("get", "controlplane", "cluster", "-o", "json"))
    assert plane["spec"]["version"] == plane["status"]["version"] == version_wanted(cluster, API)


def test_a_new_version_in_the_file_upgrades_the_control_plane_and_then_the_kubelet(cluster: TestCluster) -> None:
    former = kubelets(cluster)
    cluster.spec = {name: value for name, value in cluster.spec.items() if name != "extraArgs"}
    cluster.up()
    quiet(cluster)
    assert kubelets(cluster) == former
    cluster.spec = {**cluster.spec, "kubernetesVersion": NEXT}
    with skew_is_kept(cluster), undisturbed(cluster):
        cluster.autarky("up", "-f", str(cluster.file), "-o", "plain", timeout=600)
    assert version_wanted(cluster, API) == f"v{NEXT}"
    cluster.wait("the kubelet reports its version", lambda: kubelets(cluster) == {f"v{NEXT}"}, seconds=60)
    assert "up: unchanged" in cluster.up().stderr


def test_the_former_version_in_the_file_takes_kubelet_and_control_plane_back(cluster: TestCluster) -> None:
    """The kubelet first: it may not be newer than an API server."""
    former = {name: value for name, value in cluster.spec.items() if name != "kubernetesVersion"}
    before = json.loads(cluster.kubectl("get", "controlplane", "cluster", "-o", "json"))["status"]["formerVersion"]
    quiet(cluster)
    cluster.spec = {**former, "kubernetesVersion": before.removeprefix("v")}
    with skew_is_kept(cluster), undisturbed(cluster):
        cluster.autarky("up", "-f", str(cluster.file), "-o", "plain", timeout=600)
    assert version_wanted(cluster, API) == before
    assert kubelets(cluster) == {before}
    assert "up: unchanged" in cluster.up().stderr
