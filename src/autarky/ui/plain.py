"""One line per event: for logs, pipes, and simple terminals.

Long waits and running builds report progress every `QUIET` seconds; short ones print nothing. With
`verbose` every event is shown. The changes of a dry run are left to `ui.plan`: they are the command's result.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from autarky.engine.events import (
    Changed,
    Drifted,
    Event,
    Noted,
    OperationEnded,
    OperationStarted,
    PhaseEnded,
    PhaseStarted,
    Progressed,
    Waiting,
    Warned,
)
from autarky.ui.stream import LastingStream
from autarky.ui.text import cut, drift, duration, one_line, operation_end, percent, phase_end, printable, sentence

QUIET = 5.0
"""Seconds between two lines about the same wait or the same piece of work."""
SHORT_WAIT = 1.0
"""Seconds that a wait may last before it is worth a line."""
LONGEST_LAST = 400
"""Characters of the last thing seen that are shown."""


@dataclass(slots=True)
class _Pace:
    """When a wait or a piece of work was first reported, and when it was last shown."""

    first: float
    shown: float | None = None

    def due(self, now: float) -> bool:
        """Whether it is time for a line; the first comes after `SHORT_WAIT`."""
        if self.shown is None:
            return now - self.first >= SHORT_WAIT
        return now - self.shown >= QUIET


@dataclass(slots=True)
class PlainRenderer:
    """Implements Renderer."""

    stream: LastingStream
    verbose: bool = False
    _paces: dict[str, _Pace] = field(default_factory=dict)

    @property
    def tells_errors(self) -> bool:
        return self.stream.alive

    def handle(self, event: Event) -> None:
        match event:
            case OperationStarted():
                self._line(f"{event.operation}: {event.title}")
            case PhaseStarted():
                self._paces.clear()
                self._line(f"[{event.number}/{event.of}] {event.title}")
            case Changed() if not event.dry_run:
                self._line(f"- {event.sentence}", indent=2)
            case Drifted():
                self._line(drift(event), indent=2)
            case Warned():
                self._line(f"warning: {event.sentence}", indent=2)
            case Noted():
                self._line(event.sentence, indent=2)
            case Progressed():
                self._progressed(event)
            case Waiting():
                self._waiting(event)
            case PhaseEnded():
                self._line(phase_end(event), indent=2)
            case OperationEnded():
                self._line(f"{event.operation}: {operation_end(event)}")
                self._lines(event.detail, indent=2)

    def tick(self) -> None: ...

    def close(self) -> None: ...

    def _waiting(self, event: Waiting) -> None:
        pace = self._paces.setdefault(event.what, _Pace(event.time))
        if not event.last:
            del self._paces[event.what]
            if pace.shown is not None:
                self._line(f"waited {duration(event.time - pace.first)}: {event.what}", indent=2)
        elif self.verbose or pace.due(event.time):
            pace.shown = event.time
            last = cut(one_line(event.last), LONGEST_LAST)
            self._line(f"waiting: {event.what} ({event.deadline:.0f} s left): {last}", indent=2)

    def _progressed(self, event: Progressed) -> None:
        pace = self._paces.setdefault(event.what, _Pace(event.time))
        ended = event.total > 0 and event.done >= event.total
        if self.verbose or pace.due(event.time) or (ended and pace.shown is not None):
            pace.shown = event.time
            self._line(f"{event.what}: {percent(event.done, event.total)}".rstrip(": "), indent=2)
        if ended:
            del self._paces[event.what]

    def _line(self, text: str, *, indent: int = 0) -> None:
        """Exactly one line, whatever the text contains."""
        self.stream.write(f"{' ' * indent}{sentence(text)}\n")

    def _lines(self, text: str, *, indent: int = 0) -> None:
        for line in printable(text).splitlines():
            self.stream.write(f"{' ' * indent}{line}\n")
