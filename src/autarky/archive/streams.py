"""Two libraries that both want to call: one writes in a thread of its own, the other reads at the end of a pipe."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Protocol

CHUNK = 256 * 1024
_END_SECONDS = 30.0


class Reader(Protocol):
    """Anything that gives bytes; empty: there are no more."""

    def read(self, size: int = -1, /) -> bytes: ...


class Source:
    """What a thread writes, to be read. A read at its end raises what went wrong in the thread, if anything did."""

    def __init__(self, file: IO[bytes], thread: threading.Thread, failures: list[Exception]) -> None:
        self._file, self._thread, self._failures = file, thread, failures

    @property
    def wrong(self) -> Exception | None:
        return self._failures[0] if self._failures else None

    def read(self, size: int = -1) -> bytes:
        found = self._file.read(size)
        if not found and size != 0:
            self._thread.join(_END_SECONDS)  # it has closed its end, and is about to say why
            if self.wrong is not None:
                raise self.wrong
        return found


@contextmanager
def produced(produce: Callable[[IO[bytes]], None]) -> Iterator[Source]:
    """What `produce` writes. If the block is left early, its next write fails, and it ends."""
    read_end, write_end = os.pipe()
    failures: list[Exception] = []

    def work() -> None:
        try:
            with os.fdopen(write_end, "wb", buffering=CHUNK) as sink:
                produce(sink)
        except BrokenPipeError:
            pass  # whoever reads has stopped, and knows why
        except Exception as error:  # raised again where it is read
            failures.append(error)

    thread = threading.Thread(target=work, name="archive", daemon=True)
    thread.start()
    try:
        with os.fdopen(read_end, "rb", buffering=CHUNK) as file:
            yield Source(file, thread, failures)
    finally:
        thread.join(_END_SECONDS)


def drain(source: Reader) -> None:
    """Read and drop the rest, so that its end is seen."""
    while source.read(CHUNK):
        pass
