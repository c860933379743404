"""Any failure of a controller is logged and it is retried; the others continue. A loop that hangs is reported."""

from __future__ import annotations

import asyncio

import pytest

from autarky.agents.operator import wiring
from autarky.agents.operator.loop import HUNG_SECONDS, STILL_SECONDS, Loop
from autarky.control.base.controller import ClusterController
from autarky.errors import ApiError
from fakes.clock import HandClock, LoopClock


class Fails(ClusterController):
    name = "fails"

    def __init__(self, say, error: Exception) -> None:
        super().__init__(say)
        self.error = error
        self.rounds = 0

    async def reconcile(self) -> float | None:
        self.rounds += 1
        raise self.error.with_traceback(None)  # as if newly made


class Works(ClusterController):
    name = "works"

    def __init__(self, say) -> None:
        super().__init__(say)
        self.rounds = 0

    async def reconcile(self) -> float | None:
        self.rounds += 1
        return None


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (
            ApiError(500, "InternalError", "etcdserver: no leader"),
            "failed, retrying in 1 s: 500 InternalError: ",
        ),
        (
            ValueError("no certificate"),
            "a bug in autarky: ValueError: no certificate (test_operator_loop.py:",
        ),
    ],
)
async def test_the_others_go_on(error: Exception, reported: str):
    said: list[str] = []

    def say(sentence: str, **_: object) -> None:
        said.append(sentence)

    fails, works = Fails(say, error), Works(say)
    loop = Loop(LoopClock(), say)
    loop.runs([fails, works])
    loop.changed.set()
    running = asyncio.create_task(loop.run())
    await asyncio.sleep(5)
    assert not running.done()
    assert fails.rounds >= 3, "it is retried soon"
    assert works.rounds >= 3
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert len(said) == 1
    assert reported in said[0]


class Decides(ClusterController):
    """It fails after its decision, at first."""

    name = "decides"

    def __init__(self, say) -> None:
        super().__init__(say)
        self.steps: list[str] = []

    def begin_pass(self) -> None:
        self.steps = []

    async def reconcile(self) -> float | None:
        self.steps = ["remove n3"]
        raise ApiError(500, "InternalError", "etcdserver: no leader")


class Follows(ClusterController):
    name = "follows"

    def __init__(self, say, decides: Decides) -> None:
        super().__init__(say)
        self.decides = decides
        self.followed: list[list[str]] = []

    async def reconcile(self) -> float | None:
        self.followed.append(list(self.decides.steps))
        return None


@pytest.mark.looptime
async def test_what_a_controller_decided_before_it_failed_is_not_followed_in_a_pass_that_leaves_it_out():
    def say(*_sentence: object, **_values: object) -> None: ...

    decides = Decides(say)
    follows = Follows(say, decides)
    loop = Loop(LoopClock(), say)
    loop.runs([decides, follows])
    running = asyncio.create_task(loop.run())
    for _ in range(2):
        loop.changed.set()
        await asyncio.sleep(0.3)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert follows.followed[:2] == [["remove n3"], []]


class Hangs(ClusterController):
    name = "hangs"

    async def reconcile(self) -> float | None:
        await asyncio.Event().wait()
        return None


async def test_the_kubelet_is_told_of_a_loop_that_stands_still():
    clock = HandClock()
    loop = Loop(clock, print)
    asked = wiring._answering(0, clock, loop, print)
    assert asked.problem() is None, "it has not started"
    beating = asyncio.create_task(loop.beat())
    await asyncio.sleep(0)
    clock.now += STILL_SECONDS - 1
    assert asked.problem() is None
    clock.now += 1
    assert asked.problem() == "the event loop has been blocked for 60 s"
    beating.cancel()


async def test_the_kubelet_is_told_of_a_round_that_does_not_end():
    clock = HandClock()
    loop = Loop(clock, print)
    loop.runs([Hangs(print)])
    asked = wiring._answering(0, clock, loop, print)
    acting = asyncio.create_task(loop.run())
    await asyncio.sleep(0)
    clock.now += HUNG_SECONDS - 1
    assert asked.problem() is None
    clock.now += 1
    assert asked.problem() == "one pass over all controllers has taken 180 s"
    acting.cancel()
