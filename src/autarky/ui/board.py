"""What a live display shows, as a plain value: the phases, and what the running one is doing.

Contract: `follow` takes the events in order; nothing here draws, reads a clock or keeps more than a screen.
Times are those of the events (Unix seconds), so that the drawing can show how long ago they were.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from autarky.engine.events import (
    Changed,
    Event,
    Noted,
    OperationEnded,
    OperationStarted,
    PhaseEnded,
    PhaseStarted,
    Progressed,
    Waiting,
)
from autarky.ui.text import sentence

RECENT = 3
"""Lines of the running phase that are kept in sight."""


@dataclass(slots=True)
class PhaseLine:
    """One phase: not started (`started` is None), running (`outcome` is empty), or ended."""

    title: str
    started: float | None = None
    outcome: str = ""
    seconds: float = 0.0
    changes: int = 0

    @property
    def running(self) -> bool:
        return self.started is not None and not self.outcome


@dataclass(slots=True)
class Wait:
    """A wait that goes on: until when it may (Unix seconds), and what was seen last."""

    until: float
    last: str


@dataclass(slots=True)
class Work:
    """A piece of work with a known size."""

    done: float
    total: float


@dataclass(slots=True)
class Board:
    """See the module's contract."""

    operation: str = ""
    title: str = ""
    started: float = 0.0
    phases: dict[str, PhaseLine] = field(default_factory=dict)
    current: str = ""
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=RECENT))
    waits: dict[str, Wait] = field(default_factory=dict)
    works: dict[str, Work] = field(default_factory=dict)
    end: OperationEnded | None = None

    def follow(self, event: Event) -> None:
        match event:
            case OperationStarted():
                self.operation, self.title, self.started = event.operation, event.title, event.time
                lines = (PhaseLine(title) for title in event.titles)
                self.phases = dict(zip(event.phases, lines, strict=True))
            case PhaseStarted():
                self._clear()
                self.current = event.phase
                self.phases[event.phase] = PhaseLine(event.title, started=event.time)
            case Changed():
                self.phases[event.phase].changes += 1
                self.recent.append(f"- {sentence(event.sentence)}")
            case Noted():
                self.recent.append(sentence(event.sentence))
            case Waiting():
                self._waiting(event)
            case Progressed():
                self._progressed(event)
            case PhaseEnded():
                line = self.phases[event.phase]
                line.outcome, line.seconds = event.outcome, event.seconds
                self._clear()
            case OperationEnded():
                self._clear()
                self.end = event

    def _waiting(self, event: Waiting) -> None:
        if event.last:
            self.waits[event.what] = Wait(event.time + event.deadline, sentence(event.last))
        else:
            self.waits.pop(event.what, None)

    def _progressed(self, event: Progressed) -> None:
        if event.total > 0 and event.done >= event.total:
            self.works.pop(event.what, None)
        else:
            self.works[event.what] = Work(event.done, event.total)

    def _clear(self) -> None:
        self.current = ""
        self.recent.clear()
        self.waits.clear()
        self.works.clear()
