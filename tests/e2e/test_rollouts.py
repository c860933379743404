"""Good rollouts of the control plane on one node: no request fails, and somebody always leads.

Each test leaves the versions as it found them.
"""

from __future__ import annotations

import pytest
from harness import TestCluster
from leases import lease_watched
from rollouts import (
    API,
    CONTROLLER_MANAGER,
    HOSTED,
    SCHEDULER,
    SYSTEM,
    adding_flag,
    component,
    edit,
    explanations,
    quiet,
    rolled_out,
    runs_version,
    set_image,
    template,
    undisturbed,
    version_wanted,
)

pytestmark = [pytest.mark.e2e, pytest.mark.shares("one_node"), pytest.mark.timeout(900)]

NEXT = "v1.37.1"
LONGEST_GAP = 5.0
"""Seconds without a leader of level 3 when the one that leads is stopped in order."""


@pytest.fixture(scope="module")
def cluster(one_node: TestCluster) -> TestCluster:
    quiet(one_node)
    return one_node


def test_an_edited_flag_of_the_only_api_server_fails_no_request(cluster: TestCluster) -> None:
    with undisturbed(cluster):
        edit(cluster, API, adding_flag(API, "--v=1"))
        rolled_out(cluster, API)
    assert "--v=1" in template(cluster, API)["spec"]["containers"][0]["command"]


@pytest.mark.parametrize("workload", [CONTROLLER_MANAGER, SCHEDULER])
def test_an_edited_flag_of_level_3_leaves_hardly_a_moment_without_a_leader(cluster: TestCluster, workload: str) -> None:
    told = explanations(cluster, workload)
    with lease_watched(cluster, workload) as renewals:
        edit(cluster, workload, adding_flag(workload, "--v=1"))
        rolled_out(cluster, workload)
        before = renewals.holders[0]
        cluster.wait("another process leads", lambda: renewals.holders[-1] != before)
    assert renewals.longest_gap < LONGEST_GAP
    assert explanations(cluster, workload) == told


def test_all_pods_of_levels_2_and_3_deleted_at_once_fail_no_request(cluster: TestCluster) -> None:
    names = ",".join([*(component(workload) for workload in HOSTED), "kube-proxy"])
    selected = ("-l", f"k8s-app in ({names})")

    def pods() -> set[str]:
        return set(
            cluster.kubectl(*SYSTEM, "get", "pods", *selected, "-o", "jsonpath={.items[*].metadata.uid}").split()
        )

    before = pods()
    with undisturbed(cluster):
        cluster.kubectl(*SYSTEM, "delete", "pod", "--wait=false", *selected)
        cluster.wait("all of them have gone", lambda: not before & pods(), seconds=120)
        for workload in (*HOSTED, "ds/kube-proxy"):
            rolled_out(cluster, workload)


@pytest.mark.rotation
@pytest.mark.needs("v1.37.1")
def test_the_next_minor_by_set_image_and_back_by_rollout_undo_fails_no_request(cluster: TestCluster) -> None:
    """API servers first on the way up, last on the way down (rule 4)."""
    cluster.autarky("payload", "push", NEXT, "--cluster", cluster.name)
    quiet(cluster)
    former = {workload: version_wanted(cluster, workload) for workload in HOSTED}
    told = [explanations(cluster, workload) for workload in HOSTED]
    with (
        undisturbed(cluster),
        lease_watched(cluster, CONTROLLER_MANAGER) as controller_manager,
        lease_watched(cluster, SCHEDULER) as scheduler,
    ):
        for workload in HOSTED:
            set_image(cluster, workload, NEXT)
            rolled_out(cluster, workload)
            quiet(cluster)
            runs_version(cluster, workload, NEXT, {"n1"})
        for workload in reversed(HOSTED):
            cluster.kubectl(*SYSTEM, "rollout", "undo", workload)
            rolled_out(cluster, workload)
            quiet(cluster)
            runs_version(cluster, workload, former[workload], {"n1"})
    assert controller_manager.longest_gap < LONGEST_GAP
    assert scheduler.longest_gap < LONGEST_GAP
    assert [explanations(cluster, workload) for workload in HOSTED] == told
