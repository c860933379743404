"""An upgrade to the next minor on one node, and its way back, each once with its operator and agents killed at each of
its steps, and once with a power cut there: it goes on and ends, and no versions run beside each other that may not.

The tests of this module build on each other, in order: there and back, and there and back again.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harness import Show, TestCluster
from power import Client, Writer, comes_back, cut
from rollouts import patch_plane, quiet, undisturbed
from skew import skew_is_kept
from steps_of_an_upgrade import (
    BACK,
    KUBELETS,
    LONGEST_OUTAGE_OF_ALL,
    SERVERS,
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
    upgrade = Upgrade(cluster, NEXT)
    _is_killed_at_every_step(upgrade, upgrade.is_asked_for_by_a_command_that_is_killed, show)


def test_a_power_cut_at_every_step_of_the_way_back_loses_no_write_and_it_ends(cluster: TestCluster, show: Show) -> None:
    _loses_its_power_at_every_step(Upgrade(cluster, _former(cluster), BACK), show)


def test_a_power_cut_at_every_step_of_the_way_there_loses_no_write_and_it_ends(
    cluster: TestCluster, show: Show
) -> None:
    _loses_its_power_at_every_step(Upgrade(cluster, NEXT), show)


def test_operator_and_agents_killed_at_every_step_of_the_way_back_cost_no_request_and_it_ends(
    cluster: TestCluster, show: Show
) -> None:
    upgrade = Upgrade(cluster, _former(cluster), BACK)
    _is_killed_at_every_step(upgrade, lambda: patch_plane(cluster, version=upgrade.wanted), show)


def _former(cluster: TestCluster) -> str:
    return str(plane_status(cluster)["formerVersion"])


def _is_killed_at_every_step(upgrade: Upgrade, ask: Callable[[], object], show: Show) -> None:
    """Agents that are killed while they prove what runs have their standbys follow later: so the operator can be killed
    while it waits for these."""
    cluster, interruptions = upgrade.cluster, Interruptions(upgrade)
    kills = {
        Stage.BEGUN: ("SIGKILL of the operator", lambda: kill_the_operator_that_leads(cluster)),
        Stage.HALF_WAY: ("SIGKILL of the agents", lambda: kill_the_agents(cluster, NODE)),
        Stage.PROVING: ("SIGKILL of the agents", lambda: kill_the_agents(cluster, NODE)),
        Stage.FOLLOWING: ("SIGKILL of the operator", lambda: kill_the_operator_that_leads(cluster)),
    }
    with skew_is_kept(cluster), a_workload_goes_on(cluster, least=60), undisturbed(cluster):
        ask()
        for step in range(len(upgrade.steps)):
            for stage, (what, kill) in kills.items():
                interruptions.at(Moment(step, stage), what, kill)
        end = upgrade.is_over()
        show(str(interruptions))
        assert not end.stopped, f"{end.says}; {interruptions}"
        _is_there(upgrade)
    quiet(cluster)
    standbys_follow = Moment(upgrade.steps.index(SERVERS), Stage.FOLLOWING)
    interruptions.each_was_made_at([*_long_ones(upgrade), standbys_follow])


def _loses_its_power_at_every_step(upgrade: Upgrade, show: Show) -> None:
    cluster, interruptions, writer = upgrade.cluster, Interruptions(upgrade), Writer(Client(upgrade.cluster))
    with skew_is_kept(cluster, gap=LONGEST_OUTAGE_OF_ALL):
        patch_plane(cluster, version=upgrade.wanted)
        for moment in _to_cut(upgrade):
            interruptions.at(moment, "power cut", lambda: _loses_its_power(cluster, writer))
        end = upgrade.is_over()
        show(str(interruptions))
        assert not end.stopped, f"{end.says}; {interruptions}"
        _is_there(upgrade)
    quiet(cluster)
    interruptions.each_was_made_at(_long_ones(upgrade))
    assert writer.lost() == set()


def _to_cut(upgrade: Upgrade) -> list[Moment]:
    """All of them, but of kubelets only as many as one may be interrupted: what a restart has interrupted three times
    waits until somebody asks again."""
    moments = [Moment(step, stage) for step in range(len(upgrade.steps)) for stage in Stage]
    return [one for one in moments if upgrade.steps[one.step] != KUBELETS or one.stage is Stage.PROVING]


def _long_ones(upgrade: Upgrade) -> list[Moment]:
    """Those that nobody can fail to see."""
    moments = [Moment(step, stage) for step in range(len(upgrade.steps)) for stage in (Stage.HALF_WAY, Stage.PROVING)]
    return [one for one in moments if upgrade.steps[one.step] != KUBELETS or one.stage is Stage.PROVING]


def _is_there(upgrade: Upgrade) -> None:
    everything_is_of(upgrade.cluster, upgrade.wanted, follow_within=FOLLOW_SECONDS)
    assert version_of(upgrade.cluster) == upgrade.wanted


def _loses_its_power(cluster: TestCluster, writer: Writer) -> None:
    """And has it again at once; until the API answers, and an operator runs that may go on."""
    before = len(writer.acknowledged)
    with writer.writing():
        cut(cluster)
    comes_back(cluster, lambda: an_operator_runs(cluster, NODE))
    assert len(writer.acknowledged) > before, "nothing was written that could be lost"
    assert writer.lost() == set()
