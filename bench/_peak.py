"""The most memory that processes of a test host had while something was done, as this machine's /proc shows it.

The kernel keeps the highest resident size of a process (VmHWM), so that looks a few times a second find it: only what a
process takes in its last moment may be missed. Of a process that maps a large file (an etcd its database) most of that
is the file's pages, which the kernel takes back whenever it likes: `anonymous` is what remains, by looks.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

_PAUSE = 0.1


class Peaks:
    """While the block runs. patterns: by name, what the command line of the process has. Of several processes with the
    same name the largest counts."""

    def __init__(self, proc: Path, patterns: Mapping[str, bytes]) -> None:
        self._proc, self._patterns = proc, patterns
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="peaks", daemon=True)
        self.resident = dict.fromkeys(patterns, 0)
        """By name, bytes; 0: there was none, which is for the caller to refuse."""
        self.anonymous = dict.fromkeys(patterns, 0)

    def __enter__(self) -> Peaks:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    def _look_on(self) -> None:
        while not self._end.wait(_PAUSE):
            self.look()

    def look(self) -> None:
        for directory in self._proc.glob("[0-9]*"):
            try:
                command = (directory / "cmdline").read_bytes()
                for name, pattern in self._patterns.items():
                    if pattern in command:
                        self._note(name, (directory / "status").read_text())
            except OSError:  # it has ended meanwhile
                continue

    def _note(self, name: str, status: str) -> None:
        self.resident[name] = max(self.resident[name], _bytes_of(status, "VmHWM"))
        self.anonymous[name] = max(self.anonymous[name], _bytes_of(status, "RssAnon"))


def _bytes_of(status: str, field: str) -> int:
    """0 for a process that has no memory any more."""
    found = re.search(rf"^{field}:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0
