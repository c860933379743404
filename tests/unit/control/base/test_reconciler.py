"""Every controller is run in the same way: shielded, bounded, and again when something changed or its time has come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar, NoReturn

import pytest
from prometheus_client import REGISTRY

from autarky.control.base import bounds
from autarky.control.base.controller import Controller
from autarky.control.base.reconciler import LONGEST_QUIET, Reconciler
from autarky.control.base.shield import LONGEST_PAUSE
from autarky.kube import Reflector
from fakes.clock import LoopClock
from fakes.kube import FakeKube

pytestmark = pytest.mark.looptime


@dataclass(slots=True)
class Sample(Controller):
    """What it does at each turn; the last goes on forever."""

    name: ClassVar[str] = "sample"
    gather: ClassVar[float] = 0.5

    turns: list[float | Exception | None]
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    at: list[float] = field(default_factory=list)

    async def reconcile(self) -> float | None:
        self.at.append(asyncio.get_running_loop().time())
        turn = self.turns.pop(0) if len(self.turns) > 1 else self.turns[0]
        if isinstance(turn, Exception):
            raise turn
        return turn


class Deaf(Controller):
    """Nothing tells it of changes."""

    name: ClassVar[str] = "deaf"
    count = 0

    async def reconcile(self) -> None:
        self.count += 1


class HangsOnce(Controller):
    name: ClassVar[str] = "hangs once"
    begun = 0

    async def reconcile(self) -> float:
        self.begun += 1
        if self.begun == 1:
            await asyncio.Event().wait()
        return 1.0


async def running(controller: Controller, seconds: float, ends: Callable[[], bool] | None = None) -> list[str]:
    """What it says meanwhile."""
    said: list[str] = []
    reconciler = Reconciler(controller, LoopClock(), lambda subject, sentence: said.append(f"{subject}: {sentence}"))
    task = asyncio.create_task(reconciler.run() if ends is None else reconciler.run(ends))
    await asyncio.sleep(seconds)
    if ends is None:
        task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return said


async def test_it_looks_again_when_its_seconds_are_over() -> None:
    sample = Sample([2.0])
    assert not await running(sample, 9.0)
    assert sample.at == [0.0, 2.0, 4.0, 6.0, 8.0]


async def test_it_looks_again_when_something_has_changed_and_gathers_what_changes_at_once() -> None:
    sample = Sample([None])
    task = asyncio.create_task(running(sample, 100.0))
    await asyncio.sleep(10)
    sample.changed.set()
    await asyncio.sleep(0.2)
    sample.changed.set()
    await task
    assert sample.at == [0.0, 10.5]


async def test_a_change_during_a_look_is_not_missed() -> None:
    class Changes(Sample):
        async def reconcile(self) -> float | None:
            if not self.at:
                self.changed.set()
            return await super().reconcile()

    sample = Changes([None])
    await running(sample, 10.0)
    assert sample.at == [0.0, 0.5]


async def test_what_fails_is_told_with_its_name_and_tried_again_after_growing_pauses() -> None:
    sample = Sample([ValueError("odd"), ValueError("odd"), 60.0])
    said = await running(sample, 30.0)
    assert sample.at[:3] == [0.0, 1.0, 3.0]
    assert "sample failed: failed, retrying in 1 s: a bug in autarky: ValueError: odd" in said[0]
    assert said[-1] == "sample failed: recovered"


async def test_the_pauses_after_failures_grow_to_the_longest() -> None:
    sample = Sample([ValueError("odd")])
    await running(sample, 200.0)
    assert [later - earlier for earlier, later in pairwise(sample.at)][:7] == [
        1,
        2,
        4,
        8,
        16,
        LONGEST_PAUSE,
        LONGEST_PAUSE,
    ]


async def test_a_controller_that_others_wait_for_is_tried_again_sooner() -> None:
    class Awaited(Sample):
        longest_pause: ClassVar[float] = 3.0

    awaited = Awaited([ValueError("odd")])
    await running(awaited, 15.0)
    assert [later - earlier for earlier, later in pairwise(awaited.at)] == [1, 2, 3, 3, 3]


async def test_a_change_does_not_make_a_failure_be_tried_again_at_once() -> None:
    sample = Sample([ValueError("odd"), 60.0])
    task = asyncio.create_task(running(sample, 10.0))
    await asyncio.sleep(0.1)
    sample.changed.set()
    await task
    assert sample.at == [0.0, 1.0]


async def test_what_hangs_is_broken_off_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "LONGEST_SECONDS", 5.0)
    hangs = HangsOnce()
    said = await running(hangs, 20.0)
    assert hangs.begun > 5
    assert "a reconcile of hangs once was cancelled after 5 s" in said[0]


async def test_what_nothing_tells_of_changes_is_looked_at_now_and_then() -> None:
    deaf = Deaf()
    await running(deaf, 2.5 * LONGEST_QUIET)
    assert deaf.count == 3


async def test_it_rests_for_as_long_as_its_kind_says_unless_a_look_says_otherwise() -> None:
    class Rests(Sample):
        rest: ClassVar[float | None] = 2.0

    rests = Rests([None, None, 3.0, None])
    await running(rests, 8.0)
    assert rests.at == [0.0, 2.0, 4.0, 7.0]


@dataclass(slots=True)
class Copy(Reflector):
    """followed: how often it was begun to follow."""

    followed: int = 0

    async def run(self) -> NoReturn:
        self.followed += 1
        await Reflector.run(self)


def a_copy() -> Copy:
    return Copy(FakeKube(), LoopClock(), "v1", "Node")


async def test_a_source_that_is_named_at_each_look_is_followed_once_and_so_is_one_that_comes_later() -> None:
    first, later = a_copy(), a_copy()

    class Watches(Sample):
        def sources(self) -> Sequence[Reflector]:
            return [first] if len(self.at) < 3 else [first, later]

    watches = Watches([1.0])
    task = asyncio.create_task(running(watches, 10.0))
    await asyncio.sleep(2.5)
    assert (first.followed, later.followed) == (1, 0)
    await task
    assert (first.followed, later.followed) == (1, 1)
    assert first.synced
    assert later.synced


async def test_it_ends_when_it_is_to_end() -> None:
    sample = Sample([1.0])
    await running(sample, 10.0, lambda: len(sample.at) >= 3)
    assert len(sample.at) == 3


async def test_each_look_and_each_failure_is_counted() -> None:
    def count(name: str) -> float:
        return REGISTRY.get_sample_value(f"autarky_reconcile_{name}", {"controller": "sample"}) or 0.0

    looks, failures = count("seconds_count"), count("failures_total")
    await running(Sample([ValueError("odd"), 60.0]), 30.0)
    assert (count("seconds_count") - looks, count("failures_total") - failures) == (2, 1)
