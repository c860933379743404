"""What the node's load balancer says of servers."""

from __future__ import annotations

import asyncio

import pytest

from autarky.control.load_balancer.node import haproxy


@pytest.mark.parametrize(
    ("ready", "serves"),
    [
        ({"/n1-hosted", "/n1-standby", "/n1-spare"}, False),
        ({"/n2-hosted"}, True),
        ({"/n3-standby"}, True),
        ({"/n3-spare"}, True),
        (set(), False),
    ],
)
@pytest.mark.parametrize("otherwise", [None, 404, 503])
async def test_another_node_serves_if_the_load_balancer_considers_a_server_of_it_ready(
    monkeypatch: pytest.MonkeyPatch, ready: set[str], serves: bool, otherwise: int | None
) -> None:
    async def status(_port: int, path: str) -> int | None:
        return 200 if path in ready else otherwise

    monkeypatch.setattr(haproxy, "plain_status", status)
    assert await haproxy.another_node_serves("n1", ["n1", "n2", "n3"]) is serves


@pytest.mark.looptime
async def test_a_load_balancer_that_says_nothing_costs_one_answers_time(
    monkeypatch: pytest.MonkeyPatch, looptime: float
) -> None:
    async def status(_port: int, _path: str) -> int | None:
        await asyncio.sleep(2)
        return None

    monkeypatch.setattr(haproxy, "plain_status", status)
    assert not await haproxy.another_node_serves("n1", [f"n{number}" for number in range(1, 6)])
    assert looptime <= 3
