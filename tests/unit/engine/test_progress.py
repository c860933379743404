from __future__ import annotations

import asyncio
import logging

import pytest

from autarky.engine.events import Noted, OperationEnded, OperationStarted
from autarky.engine.progress import Bus, EventProgress, narrated
from autarky.errors import Unreachable

pytestmark = pytest.mark.looptime


async def test_a_subscriber_that_fails_is_logged_once_and_stops_nothing(clock, listener, caplog):
    calls = []

    def broken(event):
        calls.append(event)
        raise RuntimeError("cannot draw")

    progress = EventProgress(Bus([broken, listener]), clock, "up", "pivot")
    with caplog.at_level(logging.ERROR):
        progress.note("one")
        progress.note("two")
    assert [event.sentence for event in listener.events] == ["one", "two"]
    assert len(calls) == len(caplog.records) == 1
    assert "cannot draw" in caplog.text


async def test_every_event_tells_its_operation_phase_and_time(clock, listener):
    await asyncio.sleep(5)
    progress = EventProgress(Bus([listener]), clock, "up", "pivot")
    progress.note("one")
    progress.progress("building etcd", 1, 4)
    progress.waiting("the API answers", 9, "refused")
    assert {(event.operation, event.phase, event.time) for event in listener.events} == {("up", "pivot", clock.time())}


async def test_an_operation_without_phases_begins_and_ends(clock, listener):
    async with narrated("lab up", "make 3 lab hosts", events=[listener], clock=clock) as progress:
        await asyncio.sleep(2)
        progress.note("n1 runs")
    started, note, ended = listener.events
    assert isinstance(started, OperationStarted)
    assert isinstance(note, Noted)
    assert isinstance(ended, OperationEnded)
    assert (ended.outcome, ended.seconds, ended.detail) == ("done", 2, "")


@pytest.mark.parametrize(
    ("error", "outcome", "detail"),
    [
        (Unreachable("n1 is silent"), "failed", "n1 is silent"),
        (KeyError("etcd"), "failed", "KeyError: 'etcd'"),
        (asyncio.CancelledError(), "interrupted", ""),
        (KeyboardInterrupt(), "interrupted", ""),
    ],
)
async def test_an_operation_without_phases_tells_what_ended_it(clock, listener, error, outcome, detail):
    with pytest.raises(type(error)):
        async with narrated("lab up", "make 3 lab hosts", events=[listener], clock=clock):
            raise error
    assert (listener.events[-1].outcome, listener.events[-1].detail) == (outcome, detail)
