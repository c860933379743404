"""What was started and how it ended: one JSON object per line, on disk before the work goes on.

Contract: `append` returns when the line is on disk. A process killed in between leaves at most one torn
line at the end; readers skip it and the next writer starts a new line. The journal records what
happened; it decides nothing: a resumed operation looks at the world again (rule 5).

Fields of a line, stable: `time` (Unix seconds), `operation` (name), `id` (of one run), `what`
(operation-started, phase-started, phase-ended, operation-ended), and where they apply `phase`, `outcome`
(as in the events) and `error`.

Dangers: `autarky down` moves or deletes the directory with the journal in it. The file stays open during
an operation, so that its last lines go wherever it went, and the directory is not created again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from autarky.errors import UserError
from autarky.store import sync_directory

What = Literal["operation-started", "phase-started", "phase-ended", "operation-ended"]
TAIL = 256 * 1024
"""Bytes that a reader looks at: hundreds of runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the journal; see the module for the fields."""

    time: float
    operation: str
    id: str
    what: What
    phase: str = ""
    outcome: str = ""
    error: str = ""


class Journal:
    """The open journal of one directory. Used as a context manager; raises UserError when it cannot write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            sync_directory(path.parent)
        except OSError as error:
            raise _cannot_write(path, error) from error

    def append(self, entry: Entry) -> None:
        """Write one entry and wait until it is on disk."""
        line = json.dumps({key: value for key, value in asdict(entry).items() if value != ""}).encode() + b"\n"
        try:
            if self._last_line_is_torn():
                line = b"\n" + line
            while line:  # a nearly full disk takes part of a line
                line = line[os.write(self._descriptor, line) :]
            os.fsync(self._descriptor)
        except OSError as error:
            raise _cannot_write(self.path, error) from error

    def entries(self) -> list[Entry]:
        """The last entries, oldest first; lines that are torn or malformed are skipped."""
        size = os.fstat(self._descriptor).st_size
        start = max(0, size - TAIL)
        lines = os.pread(self._descriptor, size - start, start).split(b"\n")
        return _parse(lines if start == 0 else lines[1:])

    def close(self) -> None:
        os.close(self._descriptor)

    def _last_line_is_torn(self) -> bool:
        size = os.fstat(self._descriptor).st_size
        return size > 0 and os.pread(self._descriptor, 1, size - 1) != b"\n"

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def stopped_in(entries: Sequence[Entry]) -> Entry | None:
    """The entry at which the last operation stopped before its end, or None when it ended as it should.

    It is the last phase that was started, or the operation's own first entry when it got no further.
    """
    last_start: Entry | None = None
    for entry in entries:
        if entry.what in ("operation-started", "phase-started"):
            last_start = entry
        elif entry.what == "operation-ended" and entry.outcome not in ("failed", "interrupted"):
            last_start = None
    return last_start


def _parse(lines: Sequence[bytes]) -> list[Entry]:
    entries = []
    for line in lines:
        try:
            entries.append(Entry(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return entries


def _cannot_write(path: Path, error: OSError) -> UserError:
    return UserError(
        f"cannot write the journal {path}: {error.strerror}", fix="free disk space, or make the directory writable"
    )
