"""An upgrade of one node, interrupted while its kubelet is on trial on the way up: by a power cut, and by SIGKILL of
operator and agents. It is tried again, or its trial goes on, and the upgrade ends; no versions run beside each
other that may not. What interrupts the other steps, and the way back, is in `test_upgrade_power`.

The tests of this module build on each other, in order: each goes there, and back.
"""

from __future__ import annotations

import pytest
from harness import Show, TestCluster
from kubelets import report_of, trial, trial_began
from power import comes_back, cut
from rollouts import patch_plane, quiet, undisturbed
from skew import skew_is_kept
from steps_of_an_upgrade import (
    BACK,
    LONGEST_OUTAGE_OF_ALL,
    MOMENT_SECONDS,
    Upgrade,
    an_operator_runs,
    kill_the_agents,
    kill_the_operator_that_leads,
)
from upgrades import everything_is_of, plane_status
from workloads import a_workload_goes_on

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.chain,
    pytest.mark.shares("one_node"),
    pytest.mark.rotation,
    pytest.mark.needs("v1.37.1"),
    pytest.mark.timeout(600),
]

NEXT, NODE = "v1.37.1", "n1"
FOLLOW_SECONDS = 180.0
"""A second attempt is among them."""


@pytest.fixture(scope="module")
def cluster(one_node: TestCluster) -> TestCluster:
    one_node.autarky("payload", "push", NEXT, "--cluster", one_node.name, timeout=300)
    quiet(one_node)
    return one_node


def test_a_power_cut_in_its_trial_is_followed_by_another_one(cluster: TestCluster, show: Show) -> None:
    upgrade = Upgrade(cluster, NEXT)
    with skew_is_kept(cluster, gap=LONGEST_OUTAGE_OF_ALL):
        patch_plane(cluster, version=NEXT)
        first = _on_trial(cluster)
        cut(cluster)
        back = comes_back(cluster, lambda: an_operator_runs(cluster, NODE))
        _ends(upgrade)
    said = report_of(cluster)
    assert (said["state"], said["attempt"], said["order"] != first) == ("Done", 2, True), said
    show(f"answers {back.answers:.1f} s after the power cut")
    _goes_back(cluster)


def test_operator_and_agents_killed_in_its_trial_end_no_trial_and_cost_no_request(cluster: TestCluster) -> None:
    upgrade = Upgrade(cluster, NEXT)
    with skew_is_kept(cluster), a_workload_goes_on(cluster, least=60), undisturbed(cluster):
        patch_plane(cluster, version=NEXT)
        first = _on_trial(cluster)
        kill_the_operator_that_leads(cluster)
        kill_the_agents(cluster, NODE)
        assert trial(cluster) is not None, "it was over before they were killed"
        _ends(upgrade)
    said = report_of(cluster)
    assert (said["state"], said["attempt"], said["order"]) == ("Done", 1, first), said
    _goes_back(cluster)


def _on_trial(cluster: TestCluster) -> str:
    """The order."""
    trial_began(cluster, seconds=MOMENT_SECONDS)
    found = trial(cluster)
    assert found is not None, "it was over at once"
    return found[0]


def _ends(upgrade: Upgrade) -> None:
    end = upgrade.is_over()
    assert not end.stopped, end.says
    everything_is_of(upgrade.cluster, upgrade.wanted, follow_within=FOLLOW_SECONDS)


def _goes_back(cluster: TestCluster) -> None:
    upgrade = Upgrade(cluster, str(plane_status(cluster)["formerVersion"]), BACK)
    cluster.autarky("upgrade", "rollback", "--cluster", cluster.name, "--yes")
    _ends(upgrade)
    quiet(cluster)
