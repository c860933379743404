"""From work to subscribers: the bus that carries events, the Progress that turns calls into events, and
operations that are not a list of phases.

Contract: narration never stops the work. A subscriber that raises is a bug; it is logged once with its
traceback and gets no more events, and the operation goes on.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from autarky.engine.events import Event, Noted, OperationEnded, OperationStarted, Progressed, Subscriber, Waiting
from autarky.errors import AutarkyError
from autarky.ports import Clock, Progress

log = logging.getLogger(__name__)


class Bus:
    """Carries each event to all subscribers, in their order."""

    def __init__(self, subscribers: Sequence[Subscriber]) -> None:
        self._subscribers = list(subscribers)

    def emit(self, event: Event) -> None:
        for subscriber in list(self._subscribers):
            try:
                subscriber(event)
            except Exception:
                self._subscribers.remove(subscriber)
                log.exception("a subscriber failed at %s and gets no more events; this is a bug in autarky", event.kind)


@dataclass(slots=True)
class EventProgress:
    """Implements ports.Progress: what one phase (or an operation without phases) says becomes events."""

    bus: Bus
    clock: Clock
    operation: str
    phase: str = ""
    last_wait: str = ""
    """The current wait, for the error of a phase that passes its time limit; empty when none does."""

    def note(self, sentence: str) -> None:
        self.bus.emit(Noted(time=self.clock.time(), operation=self.operation, phase=self.phase, sentence=sentence))

    def progress(self, what: str, done: float, total: float) -> None:
        self.bus.emit(
            Progressed(
                time=self.clock.time(), operation=self.operation, phase=self.phase, what=what, done=done, total=total
            )
        )

    def waiting(self, what: str, deadline: float, last: str) -> None:
        self.last_wait = f"{what}; last seen: {last}" if last else ""
        self.bus.emit(
            Waiting(
                time=self.clock.time(),
                operation=self.operation,
                phase=self.phase,
                what=what,
                deadline=deadline,
                last=last,
            )
        )


@asynccontextmanager
async def narrated(name: str, title: str, *, events: Sequence[Subscriber], clock: Clock) -> AsyncIterator[Progress]:
    """An operation without phases: its start and its end become events, and the block gets a Progress."""
    bus, started = Bus(events), clock.monotonic()

    def end(outcome: str, detail: str = "") -> None:
        seconds = clock.monotonic() - started
        bus.emit(
            OperationEnded(
                time=clock.time(),
                operation=name,
                title=title,
                outcome=outcome,
                seconds=seconds,
                changes=0,
                detail=detail,
            )
        )

    bus.emit(OperationStarted(time=clock.time(), operation=name, title=title, phases=(), titles=()))
    try:
        yield EventProgress(bus, clock, name)
    except BaseException as error:
        end(*failure(error))
        raise
    end("done")


def failure(error: BaseException) -> tuple[str, str]:
    """(outcome, text) of what stopped some work. Cancellation is how SIGINT and SIGTERM arrive here: no text."""
    if isinstance(error, AutarkyError):
        return "failed", str(error)
    if isinstance(error, Exception):
        return "failed", f"{type(error).__name__}: {error}"
    return "interrupted", ""
