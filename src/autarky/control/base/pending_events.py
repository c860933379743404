"""Pending events: they wait for the API, in a file that a reboot clears. If another agent takes over before they are
reported, that one reports them.

Contract: the file is complete before `append` and `drop` return. Only the process that holds the node's lock uses it.
When the disk cannot be written, only the file is missing: then the process that appended an event must report it.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from autarky import places
from autarky.control.base import events
from autarky.control.base.controller import Controller
from autarky.errors import ApiError, AutarkyError
from autarky.model.components import NODE_AGENT
from autarky.ports import Clock, Kube, Object
from autarky.store import NOT_UNDERSTOOD, write_private

MOST_EVENTS = 30
"""After a long outage the latest ones are reported."""
FILE = Path(places.RUN, "untold-events.json")
NOT_ACCEPTED = (400, 413, 422)
"""An event that the API answers so is not accepted as it is, however often it is sent."""


@dataclass(frozen=True, slots=True)
class Happened:
    """when: Unix seconds."""

    reason: str
    message: str
    when: float


@dataclass(slots=True)
class PendingEvents:
    """`tell(subject, sentence)` is called when the file cannot be written."""

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
        """It is reported. Newer ones may have displaced it meanwhile."""
        if self.first is one:
            self._events.popleft()
            self._write()

    def _write(self) -> None:
        try:
            write_private(self.file, json.dumps([asdict(one) for one in self._events]).encode())
        except OSError as error:
            self.tell("pending events", f"events that wait for the API cannot be written to disk: {error}")


class Reporting(Controller):
    """A controller that sends events as soon as the API takes them."""

    __slots__ = ()
    clock: Clock
    pending: PendingEvents
    changed: asyncio.Event

    def happened(self, reason: str, message: str) -> None:
        self.pending.append(Happened(reason, message, self.clock.time()))
        self.changed.set()


async def send(kube: Kube, obj: Object, one: Happened, *, warning: bool, tell: Callable[[str], None]) -> bool:
    """Report it on that object, by the node agent. Whether it is done with: reported, or dropped since the API does not
    accept it."""
    token, when = f"{one.message} {one.when}", one.when
    try:
        await events.report(kube, obj, one.reason, one.message, by=NODE_AGENT, token=token, now=when, warning=warning)
    except ApiError as error:
        if error.status not in NOT_ACCEPTED:
            tell(f"an event waits for the API: {error}")
            return False
        tell(f"the API refused an event, which is dropped: {error}")
    except AutarkyError as error:
        tell(f"an event waits for the API: {error}")
        return False
    return True


def _read(file: Path) -> list[Happened]:
    """Empty when the file is absent or unusable."""
    try:
        return [_happened(**one) for one in json.loads(file.read_text())]
    except NOT_UNDERSTOOD:
        return []


def _happened(reason: object, message: object, when: object) -> Happened:
    if not isinstance(reason, str) or not isinstance(message, str) or not isinstance(when, int | float):
        raise TypeError("not an event")
    datetime.fromtimestamp(when, UTC)  # raises where it is not a time
    return Happened(reason, message, when)
