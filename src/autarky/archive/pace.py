"""A target that is somebody else's may hang, or do next to nothing: how long it takes is counted while it takes it.

Contract: a target has `PATIENCE_SECONDS`, and a second more for each `SLOWEST` bytes that it has taken or given: so the
size of an archive says how long it takes at most. Only its own time counts, not that of whoever seals or compares.
Danger: nobody can end a thread that waits for a disk or a server; `is_late` is for another one, which stops waiting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TypeVar

from autarky.archive.sealing import Writer
from autarky.archive.streams import Reader
from autarky.archive.targets import Target

PATIENCE_SECONDS = 300.0
"""For a server that is started again meanwhile, and longer than it takes to fail with one part of an upload."""
SLOWEST = 128 * 1024
"""Bytes per second: of two parts of an upload at once, slower ones fail already."""
_Opened = TypeVar("_Opened")


def is_late(done: int, spent: float) -> bool:
    """done: bytes. spent: seconds."""
    return spent > PATIENCE_SECONDS + done / SLOWEST


class Paced:
    """A target; what comes and goes is counted. clock: monotonic."""

    def __init__(self, target: Target, clock: Callable[[], float] = time.monotonic) -> None:
        self._target, self._clock = target, clock
        self._spent = 0.0
        self._since: float | None = None
        self._stopped = False
        self.done = 0

    @property
    def place(self) -> str:
        return self._target.place

    @property
    def spent(self) -> float:
        """Seconds that it has taken until now."""
        spent, since = self._spent, self._since  # in the order in which `_ends` has not counted a call twice
        return spent + (0.0 if since is None else self._clock() - since)

    def is_late(self) -> bool:
        return is_late(self.done, self.spent)

    def stop(self) -> None:
        """What it is asked for next raises InterruptedError."""
        self._stopped = True

    @contextmanager
    def writing(self, name: str) -> Iterator[Writer]:
        with self._taking_time(lambda: self._target.writing(name)) as writer:
            yield _Taken(self, writer)

    @contextmanager
    def reading(self, name: str) -> Iterator[Reader]:
        with self._taking_time(lambda: self._target.reading(name)) as reader:
            yield _Given(self, reader)

    def has(self, name: str) -> bool:
        with self.asked():
            return self._target.has(name)

    def remove(self, name: str) -> None:
        with self.asked():
            self._target.remove(name)

    @contextmanager
    def asked(self) -> Iterator[None]:
        """The block is its time."""
        if self._stopped:
            raise InterruptedError(f"{self.place}: nobody waits for it any more")
        self._begins()
        try:
            yield
        finally:
            self._ends()

    @contextmanager
    def _taking_time(self, opening: Callable[[], AbstractContextManager[_Opened]]) -> Iterator[_Opened]:
        """How the block begins and ends is its time, whatever happens in it."""
        with ExitStack() as end:
            end.callback(self._ends)
            with self.asked():
                opened = end.enter_context(opening())
            end.callback(self._begins)
            yield opened

    def _begins(self) -> None:
        self._since = self._clock()

    def _ends(self) -> None:
        spent = self.spent
        self._since = None
        self._spent = spent


class _Taken:
    """What is written to the target."""

    def __init__(self, paced: Paced, writer: Writer) -> None:
        self._paced, self._writer = paced, writer

    def write(self, data: bytes, /) -> None:
        with self._paced.asked():
            self._writer.write(data)
        self._paced.done += len(data)


class _Given:
    """What is read from it."""

    def __init__(self, paced: Paced, reader: Reader) -> None:
        self._paced, self._reader = paced, reader

    def read(self, size: int = -1, /) -> bytes:
        with self._paced.asked():
            found = self._reader.read(size)
        self._paced.done += len(found)
        return found
