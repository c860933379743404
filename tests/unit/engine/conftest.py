"""Time that the event loop owns, and a listener that remembers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from autarky.engine.events import Event
from fakes.clock import BEGAN, LoopClock

START = BEGAN
"""Unix seconds at which the tests' clock begins."""


@dataclass
class Listener:
    """Is a subscriber and a Progress; keeps everything it hears."""

    events: list[Event] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    waits: list[tuple[str, float, str]] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)

    def progress(self, what: str, done: float, total: float) -> None: ...

    def waiting(self, what: str, deadline: float, last: str) -> None:
        self.waits.append((what, round(deadline, 3), last))

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


@pytest.fixture
def clock() -> LoopClock:
    return LoopClock()


@pytest.fixture
def listener() -> Listener:
    return Listener()


Condition = Callable[[], Awaitable[str | None]]


@pytest.fixture
def true_after() -> Callable[[float, str], Condition]:
    """Makes a condition that holds from that loop time on, and says the given sentence before."""

    def make(seconds: float, otherwise: str) -> Condition:
        async def condition() -> str | None:
            return None if asyncio.get_running_loop().time() >= seconds else otherwise

        return condition

    return make
