"""The journal of a cluster's operations: JSON Lines, appended and synced before and after every phase.

It is for people and for resuming: a run that was killed is seen by its missing end. It is never trusted
blindly: every phase looks at the world again. A torn last line (a kill in the middle of a write) is
passed over.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Journal:
    """Append-only; one process at a time writes it (the operation holds the cluster's lock)."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, entry: Mapping[str, Any]) -> None:
        """Append one entry; durable on return."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        line = json.dumps(entry, ensure_ascii=False) + "\n"
        torn = self._path.exists() and not self._path.read_bytes()[-1:] in (b"", b"\n")
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, (("\n" if torn else "") + line).encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def entries(self) -> list[dict[str, Any]]:
        """All whole entries, oldest first."""
        if not self._path.exists():
            return []
        result = []
        for line in self._path.read_text(errors="replace").splitlines():
            try:
                result.append(json.loads(line))
            except ValueError:
                continue
        return result

    def interrupted(self) -> dict[str, Any] | None:
        """The last operation's start, if it never ended."""
        started: dict[str, Any] | None = None
        for entry in self.entries():
            if entry["entry"] == "operation-started":
                started = entry
            elif entry["entry"] == "operation-ended":
                started = None
        return started
