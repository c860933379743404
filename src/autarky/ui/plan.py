"""The result of a dry run, on standard output: which changes each phase would make, which edits by others it would
keep, and what the cluster lacks."""

from __future__ import annotations

from dataclasses import dataclass, field

from autarky.engine.events import Changed, Drifted, Event, OperationEnded, PhaseStarted, Warned
from autarky.ui.stream import LastingStream
from autarky.ui.tables import columns
from autarky.ui.text import count, sentence


@dataclass(slots=True)
class PlanOutput:
    """Subscribes to a dry run, and writes the plan when it ends (or as far as it got)."""

    stream: LastingStream
    _title: str = ""
    _changes: dict[str, list[str]] = field(default_factory=dict)
    _drift: list[Drifted] = field(default_factory=list)
    _warnings: list[str] = field(default_factory=list)

    def handle(self, event: Event) -> None:
        match event:
            case PhaseStarted():
                self._title = event.title
            case Changed():
                self._changes.setdefault(self._title, []).append(event.sentence)
            case Drifted():
                self._drift.append(event)
            case Warned() if event.in_plan:
                self._warnings.append(event.sentence)
            case OperationEnded():
                self._write(event)

    def _write(self, event: OperationEnded) -> None:
        lines = []
        for title, sentences in self._changes.items():
            lines += [title, *(f"  {sentence(said)}" for said in sentences)]
        if self._drift:
            lines += ["Left as others have set it (`--take-ownership` takes it back)", *_drift_table(self._drift)]
        lines += [sentence(said) for said in self._warnings]
        lines.append(self._summary(event))
        self.stream.write("\n".join(lines) + "\n")

    def _summary(self, event: OperationEnded) -> str:
        if event.outcome in ("failed", "interrupted"):
            return f"the plan is not complete: {event.outcome}"
        if not self._changes:
            return "nothing would change"
        return f"{count(event.changes, 'change')} in {count(len(self._changes), 'phase')}; nothing was done"


_HEADINGS = ("OBJECT", "FIELD", "OURS", "LIVE", "CHANGED BY", "AT")


def _drift_table(drift: list[Drifted]) -> list[str]:
    rows = [(one.subject, one.field, one.ours, one.live, one.manager or "unknown", one.since or "-") for one in drift]
    return [f"  {line}" for line in columns([_HEADINGS, *rows])]
