"""An upgrade of three control nodes and a worker to the next minor, and its way back, each with three interruptions at
random moments: a control node loses its power and has it again, all nodes do, and the operator that leads is killed
with the agents of a node. It ends, or has gone back and ends when it is asked for again; nothing that was acknowledged
is lost, and no versions run beside each other that may not.

The moments are fresh ones in each run; AUTARKY_SEED makes the same ones again. The tests of this module build on each
other, in order: there, and back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import pytest
from ha import CONTROL, EVERYBODY, RETURN_SECONDS, cut, start, wait_until_healthy
from harness import Show, TestCluster
from power import Client, Writer
from rollouts import quiet
from skew import skew_is_kept
from steps_of_an_upgrade import (
    END_SECONDS,
    LONGEST_OUTAGE_OF_ALL,
    STEPS,
    Interruptions,
    Moment,
    Stage,
    Upgrade,
    kill_the_agents,
    kill_the_operator_that_leads,
)
from upgrades import everything_is_of, plane_status, version_of

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.chain,
    pytest.mark.shares("three_and_one"),
    pytest.mark.rotation,
    pytest.mark.needs("v1.37.1"),
    pytest.mark.timeout(900),
]

NEXT = "v1.37.1"
LAST = Moment(len(STEPS) - 1, Stage.FOLLOWING)
"""Too short to be drawn."""
MOMENTS = [one for one in (Moment(step, stage) for step in range(len(STEPS)) for stage in Stage) if one != LAST]
LATEST_SECONDS = {Stage.BEGUN: 20.0, Stage.HALF_WAY: 3.0, Stage.PROVING: 10.0, Stage.FOLLOWING: 1.0}
"""After a moment. Most of the time of the nodes' turns lies behind the first."""
SHORTEST_OFF, LONGEST_OFF = 2.0, 15.0
"""Seconds without power. Not for so long that the others go on without it."""
FOLLOW_SECONDS = 120.0


@pytest.fixture(scope="module")
def cluster(three_and_one: TestCluster) -> TestCluster:
    quiet(three_and_one)
    return three_and_one


@pytest.fixture
def random(request: pytest.FixtureRequest, seed: str) -> Random:
    return Random(f"{seed} {request.node.name}")  # noqa: S311 # no secret


@dataclass(frozen=True)
class Drawn:
    moment: Moment
    seconds: float
    what: str
    interrupt: Callable[[], None]


def test_an_upgrade_that_is_interrupted_at_random_moments_ends_or_goes_back(
    cluster: TestCluster, show: Show, seed: str, random: Random
) -> None:
    show(f"AUTARKY_SEED={seed}")
    wait_until_healthy(cluster)
    _interrupted(cluster, show, random, Upgrade(cluster, NEXT), Upgrade.is_asked_for_by_a_command_that_is_killed)


def test_a_rollback_that_is_interrupted_at_random_moments_ends_or_goes_back(
    cluster: TestCluster, show: Show, seed: str, random: Random
) -> None:
    show(f"AUTARKY_SEED={seed}")
    wait_until_healthy(cluster)
    former = str(plane_status(cluster)["formerVersion"])

    def ask(upgrade: Upgrade) -> None:
        upgrade.cluster.autarky("upgrade", "rollback", "--cluster", upgrade.cluster.name, "--yes")

    _interrupted(cluster, show, random, Upgrade(cluster, former, STEPS[::-1]), ask)
    quiet(cluster)


def _interrupted(
    cluster: TestCluster, show: Show, random: Random, upgrade: Upgrade, ask: Callable[[Upgrade], None]
) -> None:
    writer, interruptions = Writer(Client(cluster)), Interruptions(upgrade)
    drawn = _drawn(cluster, random, writer)
    for one in drawn:
        show(f"{one.what}, {one.seconds:.1f} s after {upgrade.named(one.moment)}")
    with skew_is_kept(cluster, gap=LONGEST_OUTAGE_OF_ALL):
        ask(upgrade)
        for one in drawn:
            interruptions.after(one.moment, one.seconds, one.what, one.interrupt)
        went_back = _ends(upgrade, show)
        wait_until_healthy(cluster)
    show(str(interruptions))
    assert interruptions.made, "it was not interrupted at all"
    assert went_back or not interruptions.missed, interruptions
    everything_is_of(cluster, upgrade.wanted, CONTROL, EVERYBODY, follow_within=FOLLOW_SECONDS)
    assert version_of(cluster) == upgrade.wanted
    assert writer.lost() == set()


def _ends(upgrade: Upgrade, show: Show) -> bool:
    """Whether a step has gone back, so that the command had to ask again."""
    end = upgrade.is_over()
    if end.stopped:
        show(f"it has gone back: {end.says}")
        argv = ("upgrade", upgrade.wanted, "--cluster", upgrade.cluster.name, "-o", "plain")
        upgrade.cluster.autarky(*argv, timeout=END_SECONDS)
    return end.stopped


# --- what interrupts it ------------------------------------------------------------------------------------


def _drawn(cluster: TestCluster, random: Random, writer: Writer) -> list[Drawn]:
    """Each interruption once, in any order, each after a moment of its own."""
    node, with_agents, off = random.choice(CONTROL), random.choice(EVERYBODY), random.uniform(SHORTEST_OFF, LONGEST_OFF)

    def kill() -> None:
        kill_the_operator_that_leads(cluster)
        kill_the_agents(cluster, with_agents)

    interruptions: list[tuple[str, Callable[[], None]]] = [
        (f"power cut of {node} for {off:.1f} s", lambda: _lose_their_power(cluster, writer, off, node)),
        ("power cut of all nodes", lambda: _lose_their_power(cluster, writer, 0, *EVERYBODY)),
        (f"SIGKILL of the operator that leads and of the agents of {with_agents}", kill),
    ]
    random.shuffle(interruptions)
    found = []
    for moment, (what, interrupt) in zip(
        sorted(random.sample(MOMENTS, len(interruptions))), interruptions, strict=True
    ):
        found.append(Drawn(moment, random.uniform(0, LATEST_SECONDS[moment.stage]), what, interrupt))
    return found


def _lose_their_power(cluster: TestCluster, writer: Writer, seconds: float, *nodes: str) -> None:
    """Until the API answers, also by the load balancer that the writer asks."""
    before = len(writer.acknowledged)
    with writer.writing():
        time.sleep(1)
        cut(cluster, *nodes)
    assert len(writer.acknowledged) > before, "nothing was written that could be lost"
    time.sleep(seconds)
    start(cluster, *nodes)
    cluster.wait("the API answers", writer.client.answers, seconds=RETURN_SECONDS)
    assert writer.lost() == set()
