"""Level 0: both kubelets of a node change with their settings, and with the control plane."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harness import TestCluster
from kubelets import report_of
from level_0 import (
    a_hosted_kubelet,
    comes_into_force,
    host_pid,
    hosted_pid,
    nodes_stay_ready,
    nothing_is_felt,
)
from rollouts import HOSTED, PROXY, component, patch_plane, undisturbed
from skew import skew_is_kept
from upgrades import unchanged_containers
from workloads import a_workload_goes_on

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.rotation,
    pytest.mark.needs("v1.37.1"),
    pytest.mark.timeout(600),
]

FORMER, NEXT = "v1.36.4", "v1.37.1"
MOVED = {component(workload) for workload in (*HOSTED, PROXY)}
"""What an upgrade replaces."""


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    return a_hosted_kubelet(make_cluster, "t-level-0-up", NEXT)


def test_other_arguments_come_to_both_kubelets(cluster: TestCluster) -> None:
    """The host's is switched and proven itself, and the hosted one comes back with what it has then."""
    with nothing_is_felt(cluster):
        patch_plane(cluster, componentArguments={"kubelet": {"v": "3"}})
        cluster.wait("the host's has them", lambda: report_of(cluster).get("state") == "Done", seconds=120)
        comes_into_force(cluster, NEXT)
    for pid in (hosted_pid(cluster), host_pid(cluster)):
        assert "--v=3" in cluster.shell("n1", f"tr '\\0' '\\n' </proc/{pid}/cmdline")
    patch_plane(cluster, componentArguments={"kubelet": None})
    cluster.wait("the host's has none", lambda: "--v=3" not in _arguments(cluster), seconds=120)
    comes_into_force(cluster, NEXT)


def _arguments(cluster: TestCluster) -> str:
    return cluster.shell("n1", "cat /var/lib/autarky/kubelet/current/arguments")


def test_kubelets_of_both_slots_go_down_and_up_with_the_control_plane(cluster: TestCluster) -> None:
    """Neither is ever newer than an API server, nor two of them in force, nor the node without one."""
    left_alone = unchanged_containers(cluster)
    for version in (FORMER, NEXT):
        with (
            a_workload_goes_on(cluster, least=60),
            undisturbed(cluster),
            skew_is_kept(cluster),
            nodes_stay_ready(cluster, moves=MOVED),
        ):
            cluster.autarky("upgrade", version, "--cluster", cluster.name, "-o", "plain", timeout=600)
            comes_into_force(cluster, version, seconds=180)
        assert unchanged_containers(cluster) == left_alone
        assert report_of(cluster)["version"] == version, "the host's"
