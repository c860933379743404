"""The result of a dry run, on standard output: which changes each phase would make."""

from __future__ import annotations

from dataclasses import dataclass, field

from autarky.engine.events import Changed, Event, OperationEnded, PhaseStarted
from autarky.ui.stream import LastingStream
from autarky.ui.text import count, printable


@dataclass(slots=True)
class PlanOutput:
    """Subscribes to a dry run, and writes what it planned when it ends (or as far as it came)."""

    stream: LastingStream
    _title: str = ""
    _changes: dict[str, list[str]] = field(default_factory=dict)

    def handle(self, event: Event) -> None:
        match event:
            case PhaseStarted():
                self._title = event.title
            case Changed():
                self._changes.setdefault(self._title, []).append(event.sentence)
            case OperationEnded():
                self._write(event)

    def _write(self, event: OperationEnded) -> None:
        lines = []
        for title, sentences in self._changes.items():
            lines += [title, *(f"  {printable(sentence)}" for sentence in sentences)]
        lines.append(self._summary(event))
        self.stream.write("\n".join(lines) + "\n")

    def _summary(self, event: OperationEnded) -> str:
        if event.outcome in ("failed", "interrupted"):
            return f"the plan is not complete: {event.outcome}"
        if not self._changes:
            return "nothing would change"
        return f"{count(event.changes, 'change')} in {count(len(self._changes), 'phase')}; nothing was done"
