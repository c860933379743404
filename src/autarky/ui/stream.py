"""Where narration is written: a text stream that never raises.

Contract: a reader that went away (`autarky up -o json | head -1`), a closed terminal or a full disk ends
the narration and nothing else: the operation goes on to its end.
"""

from __future__ import annotations

import io
from typing import TextIO


class LastingStream(io.TextIOBase):
    """Passes text on until the first failure, and drops it from then on. Flushes after each write."""

    def __init__(self, stream: TextIO | None) -> None:
        """`stream` is None where the process was started with that descriptor closed."""
        super().__init__()
        self._stream = stream

    @property
    def alive(self) -> bool:
        """Whether the stream still accepts text."""
        return self._stream is not None

    def write(self, text: str) -> int:
        if self._stream is not None:
            try:
                self._stream.write(text)
                self._stream.flush()
            except (OSError, ValueError):  # ValueError: the stream was closed
                self._stream = None
        return len(text)

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        try:
            return self._stream is not None and self._stream.isatty()
        except ValueError:
            return False

    @property
    def encoding(self) -> str:  # type: ignore[override]  # read-write in the base class, for no use here
        return self._stream.encoding if self._stream is not None else "utf-8"
