from __future__ import annotations

import asyncio

import pytest

from autarky.probe.pace import Pace
from fakes.clock import LoopClock

pytestmark = pytest.mark.looptime


now = LoopClock().monotonic


async def halt() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


async def test_ticks_come_at_the_rate_the_first_at_once():
    pace = Pace(10, await halt())
    times = []
    for _ in range(5):
        assert await pace.tick()
        times.append(round(now(), 6))
    assert times == [0, 0.1, 0.2, 0.3, 0.4]


async def test_work_between_two_ticks_does_not_slow_them_down():
    pace = Pace(10, await halt())
    for _ in range(10):
        await pace.tick()
        await asyncio.sleep(0.07)
    assert round(now(), 6) == 0.97
    assert pace.left_out == 0


async def test_ticks_that_were_missed_are_left_out_and_not_caught_up_with():
    pace = Pace(10, await halt())
    await pace.tick()
    await asyncio.sleep(1.05)  # an outage
    times = []
    for _ in range(3):
        await pace.tick()
        times.append(round(now(), 6))
    assert times == [1.05, 1.1, 1.2]
    assert pace.left_out == 9


async def test_a_halt_ends_the_wait_for_the_next_tick_at_once():
    halted = await halt()
    pace = Pace(0.1, halted)
    await pace.tick()
    asyncio.get_running_loop().call_later(2, halted.set_result, None)
    assert not await pace.tick()
    assert now() == 2


async def test_one_that_is_halted_from_the_start_ticks_once():
    halted = await halt()
    halted.set_result(None)
    pace = Pace(10, halted, offset=5)
    assert await pace.tick()
    assert not await pace.tick()
    assert now() == 0


async def test_workers_of_one_stream_are_out_of_step():
    halted = await halt()
    paces = [Pace(10, halted, offset=offset) for offset in (0, 0.05)]
    times = []
    for _ in range(2):
        for pace in paces:
            await pace.tick()
            times.append(round(now(), 6))
    assert times == [0, 0.05, 0.1, 0.15]


async def test_the_longest_silence_lies_between_two_ticks():
    pace = Pace(10, await halt())
    assert await pace.tick()
    for seconds in (0.05, 5.02, 0.05):
        await asyncio.sleep(seconds)
        await pace.tick()
    assert round(pace.longest_silence, 6) == 5.02


async def test_a_silence_before_the_first_tick_counts():
    pace = Pace(10, await halt())
    await asyncio.sleep(3)
    assert await pace.tick()
    assert round(pace.longest_silence, 6) == 3


async def test_a_silence_until_the_halt_counts():
    halted = await halt()
    pace = Pace(0.1, halted)
    await pace.tick()
    asyncio.get_running_loop().call_later(7, halted.set_result, None)
    assert not await pace.tick()
    assert round(pace.longest_silence, 6) == 7
