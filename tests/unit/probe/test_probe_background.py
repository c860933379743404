from __future__ import annotations

import asyncio

import pytest

from autarky.probe.background import background


async def test_work_runs_beside_the_block_and_ends_with_it():
    seen = []

    async def work() -> None:
        try:
            seen.append("runs")
            await asyncio.Event().wait()
        finally:
            seen.append("ended")

    async with background([work()]):
        await asyncio.sleep(0)
        assert seen == ["runs"]
    assert seen == ["runs", "ended"]


async def test_the_blocks_exception_goes_through_as_it_is():
    with pytest.raises(ZeroDivisionError):
        async with background([asyncio.sleep(60)]):
            raise ZeroDivisionError


async def test_a_bug_of_the_work_is_raised_when_the_block_has_ended():
    async def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        async with background([work()]):
            await asyncio.sleep(0.01)
