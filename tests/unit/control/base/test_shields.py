"""An unexpected failure of one controller does not stop the others, and a reconcile that hangs is cancelled."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.agents.node import end_hung
from autarky.agents.operator.loop import STILL_SECONDS, Loop
from autarky.control.base import bounds
from autarky.control.base.bounds import Overdue, bounded
from autarky.control.base.shield import LONGEST_PAUSE, Shield
from autarky.errors import UserError
from autarky.model.components import NODE_AGENT
from fakes.clock import HandClock
from fakes.cri import FakeCri

ERRORS = [ValueError("odd"), KeyError("x"), RecursionError("deep"), UserError("no", fix="none"), OSError(28, "full")]


@given(st.lists(st.one_of(st.none(), st.sampled_from(ERRORS)), max_size=20))
async def test_whatever_a_duty_raises_it_is_done_again_until_it_ends_by_itself(
    outcomes: list[Exception | None],
) -> None:
    clock, reported = HandClock(), []
    left = list(outcomes)

    async def run() -> None:
        if left and (error := left.pop(0)) is not None:
            raise error

    await Shield("duty", clock, lambda *said: reported.append(said)).keep(run)
    failures = next((index for index, one in enumerate(outcomes) if one is None), len(outcomes))
    assert len(reported) == failures + (failures > 0)
    assert clock.now <= LONGEST_PAUSE * failures


async def fails() -> None:
    raise ValueError("banana")


async def test_a_failure_is_told_with_its_place_and_the_pause_grows() -> None:
    clock, reported = HandClock(), []

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())

    shield = Shield("duty", clock, lambda *said: reported.append(said))
    assert not await shield.attempt(run)
    assert not await shield.attempt(run), "it is not tried again at once"
    assert len(reported) == 1
    assert "ValueError: banana (test_shields.py:" in reported[0][1]
    assert "retrying in 1 s" in reported[0][1]
    await clock.sleep(1)
    await shield.attempt(run)
    assert "retrying in 2 s" in reported[1][1]


async def test_a_cancellation_passes() -> None:
    shield = Shield("duty", HandClock(), print)
    task = asyncio.create_task(shield.keep(asyncio.Event().wait))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def stubborn(until: asyncio.Event) -> None:
    while not until.is_set():
        try:
            await until.wait()
        except asyncio.CancelledError:
            continue


async def test_a_round_that_hangs_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "LONGEST_SECONDS", 0.05)
    with pytest.raises(Overdue, match="a reconcile of Hangs was cancelled"):
        await bounded("Hangs", asyncio.Event().wait)
    assert bounds.hangs() is None


async def test_a_round_that_cannot_be_broken_off_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "LONGEST_SECONDS", 0.05)
    monkeypatch.setattr(bounds, "GRACE_SECONDS", 0.05)
    until = asyncio.Event()
    task = asyncio.create_task(bounded("Hangs", lambda: stubborn(until)))
    await asyncio.sleep(0.2)
    assert "a reconcile of Hangs has taken" in (bounds.hangs() or "")
    until.set()
    await task
    assert bounds.hangs() is None


async def test_a_time_out_inside_of_a_round_is_its_own_matter() -> None:
    async def asks() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await bounded("asks", asks)


async def test_only_the_agent_that_hangs_is_ended() -> None:
    cri = FakeCri()
    agent = cri.run_sandbox("node-agent-1", "kube-system", "u1", labels={"k8s-app": NODE_AGENT})
    other = cri.run_sandbox("node-agent-2", "kube-system", "u2", labels={"k8s-app": NODE_AGENT})
    namesake = cri.run_sandbox("node-agent-3", "default", "u1", labels={"k8s-app": NODE_AGENT})
    stranger = cri.run_sandbox("coredns", "kube-system", "u1", labels={"k8s-app": "kube-dns"})
    assert await end_hung.end(cri, "u1") == 1
    assert {sandbox.id for sandbox in await cri.pods() if sandbox.ready} == {other, namesake, stranger}
    assert agent not in {sandbox.id for sandbox in await cri.pods() if sandbox.ready}
    assert await end_hung.end(cri, "u1") == 0


async def test_an_operator_whose_loop_is_blocked_between_two_rounds_is_not_well() -> None:
    clock = HandClock()
    loop = Loop(clock, print)
    beating = asyncio.create_task(loop.beat())
    await asyncio.sleep(0)
    assert loop.hangs() is None
    clock.now += STILL_SECONDS
    assert "has been blocked" in (loop.hangs() or "")
    beating.cancel()
