"""While nothing happens only the API server's own port is looked at; whatever happens is looked into at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from autarky.agents.node.agent import REST_SECONDS, NodeAgent
from autarky.control.base.decision_log import DecisionLog
from autarky.control.slots.decide.pivot import Health
from autarky.control.slots.node.hand_over import HandOver
from fakes.clock import HandClock


class Port:
    health = Health.READY

    async def hosted_api_server(self) -> Health:
        return self.health


class CountedRounds(NodeAgent):
    """The real looks; of a complete reconcile, only that it was made and what it found."""

    rounds = 0
    calm = True
    during = staticmethod(lambda: None)

    async def _pass(self, hosted_api_server: Health) -> bool:
        self.rounds += 1
        self.during()
        return self.calm


@pytest.fixture
def node_agent():
    clock = HandClock(1000.0)
    reported = DecisionLog(lambda *_sentence, **_values: None)
    stand_ins: Any = (
        None,
        SimpleNamespace(),
        Port(),
        clock,
        reported,
        None,
        None,
        True,
        HandOver(cast(Any, clock)),
        None,
        None,
    )
    return CountedRounds("n1", *stand_ins)


async def looks(node_agent: CountedRounds, *, seconds: float, every: float = 0.5) -> int:
    """How many rounds were made within that time."""
    before = node_agent.rounds
    for _ in range(int(seconds / every)):
        await node_agent.reconcile()
        cast(HandClock, node_agent.clock).now += every
    return node_agent.rounds - before


async def test_at_rest_a_round_is_made_every_two_seconds(node_agent):
    assert await looks(node_agent, seconds=20) == 20 / REST_SECONDS


@pytest.mark.parametrize("health", [health for health in Health if health is not Health.READY])
async def test_every_look_is_a_round_while_the_api_server_does_not_serve(node_agent, health):
    await node_agent.reconcile()
    node_agent.own_ports.health = health
    assert await looks(node_agent, seconds=5) == 10


async def test_every_look_is_a_round_while_there_is_something_to_follow(node_agent):
    node_agent.calm = False
    assert await looks(node_agent, seconds=5) == 10


async def test_what_the_api_tells_ends_the_rest_also_in_the_middle_of_a_round(node_agent):
    await node_agent.reconcile()
    node_agent.heard()
    node_agent.during = node_agent.heard
    assert await looks(node_agent, seconds=1) == 2
    del node_agent.during
    assert await looks(node_agent, seconds=1) == 1
