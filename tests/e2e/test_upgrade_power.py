"""An upgrade to the next minor on one node whose command, operator and agents are killed at each of its steps, and the
way back with a power cut at each of its steps: it goes on and ends, and no versions run beside each other that may not.

The tests of this module build on each other, in order: there, and back.
"""

from __future__ import annotations

import pytest
from harness import Show, TestCluster
from power import Client, Writer, comes_back, cut
from rollouts import patch_plane, quiet, undisturbed
from skew import skew_is_kept
from steps_of_an_upgrade import (
    LONGEST_OUTAGE_OF_ALL,
    STEPS,
    Interruptions,
    Moment,
    Stage,
    Upgrade,
    an_operator_runs,
    kill_the_agents,
    kill_the_operator_that_leads,
)
from upgrades import everything_is_of, plane_status, version_of
from workloads import a_workload_goes_on

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.chain,
    pytest.mark.shares("one_node"),
    pytest.mark.rotation,
    pytest.mark.needs("v1.37.1"),
    pytest.mark.timeout(900),
]

NEXT, NODE = "v1.37.1", "n1"
FOLLOW_SECONDS = 120.0


@pytest.fixture(scope="module")
def cluster(one_node: TestCluster) -> TestCluster:
    quiet(one_node)
    return one_node


def test_command_operator_and_agents_killed_at_every_step_cost_no_request_and_the_upgrade_ends(
    cluster: TestCluster, show: Show
) -> None:
    """Agents that are killed while they prove what runs have their standbys follow later: so the operator can be killed
    while it waits for these."""
    upgrade = Upgrade(cluster, NEXT)
    interruptions = Interruptions(upgrade)
    kills = {
        Stage.BEGUN: ("SIGKILL of the operator", lambda: kill_the_operator_that_leads(cluster)),
        Stage.HALF_WAY: ("SIGKILL of the agents", lambda: kill_the_agents(cluster, NODE)),
        Stage.PROVING: ("SIGKILL of the agents", lambda: kill_the_agents(cluster, NODE)),
        Stage.FOLLOWING: ("SIGKILL of the operator", lambda: kill_the_operator_that_leads(cluster)),
    }
    with skew_is_kept(cluster), a_workload_goes_on(cluster, least=60), undisturbed(cluster):
        upgrade.is_asked_for_by_a_command_that_is_killed()
        for step in range(len(STEPS)):
            for stage, (what, kill) in kills.items():
                interruptions.at(Moment(step, stage), what, kill)
        end = upgrade.is_over()
    show(str(interruptions))
    assert not end.stopped, f"{end.says}; {interruptions}"
    interruptions.every_step_was_interrupted()
    everything_is_of(cluster, NEXT, follow_within=FOLLOW_SECONDS)
    assert version_of(cluster) == NEXT
    quiet(cluster)


def test_a_power_cut_at_every_step_of_the_way_back_loses_no_write_and_it_ends(cluster: TestCluster, show: Show) -> None:
    former = str(plane_status(cluster)["formerVersion"])
    upgrade, writer = Upgrade(cluster, former, STEPS[::-1]), Writer(Client(cluster))
    interruptions = Interruptions(upgrade)
    with skew_is_kept(cluster, gap=LONGEST_OUTAGE_OF_ALL):
        patch_plane(cluster, version=former)
        for step in range(len(STEPS)):
            for stage in Stage:
                interruptions.at(Moment(step, stage), "power cut", lambda: _loses_its_power(cluster, writer))
        end = upgrade.is_over()
    show(str(interruptions))
    assert not end.stopped, f"{end.says}; {interruptions}"
    interruptions.every_step_was_interrupted()
    quiet(cluster)
    everything_is_of(cluster, former, follow_within=FOLLOW_SECONDS)
    assert version_of(cluster) == former
    assert writer.lost() == set()


def _loses_its_power(cluster: TestCluster, writer: Writer) -> None:
    """And has it again at once; until the API answers, and an operator runs that may go on."""
    before = len(writer.acknowledged)
    with writer.writing():
        cut(cluster)
    comes_back(cluster, lambda: an_operator_runs(cluster, NODE))
    assert len(writer.acknowledged) > before, "nothing was written that could be lost"
    assert writer.lost() == set()
