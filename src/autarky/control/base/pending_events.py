"""Events that wait for the API, in a file of this boot: what an agent has done and could not tell yet when another
took its place, the other tells.

Contract: written whole before `append` and `drop` return. At most one process has it, as it has the node's
lock. A disk that takes nothing down costs the file only: then whoever has appended must tell it.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from autarky import places
from autarky.store import NOT_UNDERSTOOD, write_private

MOST_EVENTS = 30
"""When a long outage ends, the latest of what was done is told."""
FILE = Path(places.RUN, "untold-events.json")


@dataclass(frozen=True, slots=True)
class Happened:
    """when: Unix seconds."""

    reason: str
    message: str
    when: float


@dataclass(slots=True)
class PendingEvents:
    """`tell(subject, sentence)` hears of a file that cannot be written."""

    tell: Callable[[str, str], None]
    file: Path = FILE
    _events: deque[Happened] = field(default_factory=lambda: deque(maxlen=MOST_EVENTS))

    def __post_init__(self) -> None:
        self._events.extend(_read(self.file))

    @property
    def first(self) -> Happened | None:
        return self._events[0] if self._events else None

    def append(self, one: Happened) -> None:
        self._events.append(one)
        self._write()

    def drop(self, one: Happened) -> None:
        """It is told. It may have been crowded out meanwhile."""
        if self.first is one:
            self._events.popleft()
            self._write()

    def _write(self) -> None:
        try:
            write_private(self.file, json.dumps([asdict(one) for one in self._events]).encode())
        except OSError as error:
            self.tell("untold events", f"what waits to be told cannot be written down: {error}")


def _read(file: Path) -> list[Happened]:
    """A file that is of no use is none."""
    try:
        return [_happened(**one) for one in json.loads(file.read_text())]
    except NOT_UNDERSTOOD:
        return []


def _happened(reason: object, message: object, when: object) -> Happened:
    if not isinstance(reason, str) or not isinstance(message, str) or not isinstance(when, int | float):
        raise TypeError("that is no event")
    datetime.fromtimestamp(when, UTC)  # it may be no time
    return Happened(reason, message, when)
