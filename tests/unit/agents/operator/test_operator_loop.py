"""A duty that fails, foreseen or not, is told and has another round; the others go on."""

from __future__ import annotations

import asyncio

import pytest

from autarky.agents.operator.duty import Duty
from autarky.agents.operator.loop import Loop
from autarky.clock import SystemClock
from autarky.errors import ApiError


class Fails(Duty):
    name = "fails"

    def __init__(self, say, error: Exception) -> None:
        super().__init__(say)
        self.error = error

    async def round(self) -> float | None:
        raise self.error


class Works(Duty):
    name = "works"

    def __init__(self, say) -> None:
        super().__init__(say)
        self.had_a_round = asyncio.Event()

    async def round(self) -> float | None:
        self.had_a_round.set()
        return None


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ApiError(500, "InternalError", "etcdserver: no leader"), "the round failed: "),
        (
            ValueError("no certificate"),
            "a fault of autarky's: ValueError: no certificate (test_operator_loop.py:",
        ),
    ],
)
async def test_the_others_go_on(error: Exception, told: str):
    said: list[str] = []

    def say(sentence: str, **_: object) -> None:
        said.append(sentence)

    works = Works(say)
    loop = Loop([Fails(say, error), works], SystemClock(), say)
    loop.changed.set()
    running = asyncio.create_task(loop.run())
    async with asyncio.timeout(60):
        await works.had_a_round.wait()
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert len(said) == 1
    assert told in said[0]
