"""How long what reads or writes a database of etcd may take."""

from __future__ import annotations

_SLOWEST = 4 * 1024 * 1024
"""Bytes per second of a disk that copies a database: a copy that is slower is given up."""
LEAST_SECONDS = 60.0


def seconds_for(size: int) -> float:
    """For so many bytes."""
    return LEAST_SECONDS + size / _SLOWEST
