"""One short operation, as events: what every renderer is shown."""

from __future__ import annotations

from typing import Any

import pytest

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
from fakes.clock import BEGAN


class Script:
    """Makes the events of an operation `up`; times are seconds since its start."""

    def __init__(self) -> None:
        self.now = 0.0
        self.phase = ""

    def at(self, seconds: float) -> Script:
        self.now = seconds
        return self

    def _where(self) -> dict[str, Any]:
        return {"time": BEGAN + self.now, "operation": "up", "phase": self.phase}

    def begin(self, **phases: str) -> Event:
        names = tuple(name.replace("_", "-") for name in phases)
        return OperationStarted(**self._where(), title="cluster one", phases=names, titles=tuple(phases.values()))

    def phase_begins(self, name: str, title: str, number: int, of: int) -> Event:
        self.phase = name
        return PhaseStarted(**self._where(), title=title, number=number, of=of)

    def change(self, sentence: str, *, dry_run: bool = False) -> Event:
        return Changed(**self._where(), sentence=sentence, dry_run=dry_run)

    def drift(self, subject: str, field: str, ours: str, live: str, manager: str = "", since: str = "") -> Event:
        where = self._where()
        return Drifted(**where, subject=subject, field=field, ours=ours, live=live, manager=manager, since=since)

    def warning(self, sentence: str, *, in_plan: bool = False) -> Event:
        return Warned(**self._where(), sentence=sentence, in_plan=in_plan)

    def note(self, sentence: str) -> Event:
        return Noted(**self._where(), sentence=sentence)

    def progress(self, what: str, done: float, total: float) -> Event:
        return Progressed(**self._where(), what=what, done=done, total=total)

    def waiting(self, what: str, left: float, last: str) -> Event:
        return Waiting(**self._where(), what=what, deadline=left, last=last)

    def phase_ends(self, outcome: str, seconds: float, detail: str = "") -> Event:
        event = PhaseEnded(**self._where(), title="", outcome=outcome, seconds=seconds, detail=detail)
        self.phase = ""
        return event

    def end(self, outcome: str, changes: int = 0, detail: str = "") -> Event:
        return OperationEnded(
            **self._where(), title="cluster one", outcome=outcome, seconds=self.now, changes=changes, detail=detail
        )


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def failing_run(script) -> list[Event]:
    """A phase that has nothing to do, one that waits and fails, and one that is not reached."""
    wait = "the API answers"
    return [
        script.begin(get_payload="Get the components", start="Start the control plane", pivot="Pivot"),
        script.phase_begins("get-payload", "Get the components", 1, 3),
        script.at(0.2).phase_ends("unchanged", 0.2),
        script.phase_begins("start", "Start the control plane", 2, 3),
        script.change("start the kubelet on n1"),
        script.at(1.2).note("the kubelet of n1 runs"),
        script.at(2).waiting(wait, 180, "refused"),
        script.at(3).waiting(wait, 179, "connection\nrefused"),
        script.at(4).waiting(wait, 178, "refused"),
        script.at(8).waiting(wait, 174, "500: etcd is starting"),
        script.at(182).phase_ends("failed", 181.8, "timed out"),
        script.at(182).end("failed", 1, "timed out\nrun the same command again to resume"),
    ]
