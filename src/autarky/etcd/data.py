"""The member and cluster that own a data directory, as etcd itself has written them there.

Contract: reading changes nothing and may be done while etcd runs. Each file of the write-ahead log begins with a
checksum record and one that names the member and its cluster (etcd: server/storage/wal, `Metadata`); files come
and go, and that beginning stays. So a directory says by itself who it belongs to, after whatever crash.

Danger: no log (None) is not the same as a log that cannot be read (OSError, ValueError).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autarky.etcd.log import fields_of, frames

_METADATA = 1
_BEGINNING = 4096
"""Bytes of a file that are looked at: the two records have less than a hundred."""


@dataclass(frozen=True, slots=True)
class Identity:
    member: int
    cluster: int


def read_identity(data_directory: Path) -> Identity | None:
    """Of `--data-dir`; None where it holds no log. Raises OSError, and ValueError where the log is none of etcd's."""
    try:
        logs = sorted(path for path in (data_directory / "member/wal").iterdir() if path.suffix == ".wal")
    except FileNotFoundError:
        return None
    for log in reversed(logs):
        with log.open("rb") as file:
            beginning = file.read(_BEGINNING)
        if (found := identity_in(beginning)) is not None:
            return found
    if logs:
        raise ValueError(f"{logs[-1]} does not say whose it is")
    return None


def identity_in(beginning: bytes) -> Identity | None:
    """Of a file of the log; None where its beginning does not say it. ValueError where it is none of etcd's."""
    for record in _records(beginning[:_BEGINNING]):
        if record.get(1) == _METADATA and isinstance(record.get(3), bytes):
            return _identity(record[3])
    return None


def _identity(data: bytes | int) -> Identity:
    fields = fields_of(data if isinstance(data, bytes) else b"")
    member, cluster = fields.get(1), fields.get(2)
    if not isinstance(member, int) or not isinstance(cluster, int):
        raise ValueError("the log's metadata names no member")  # noqa: TRY004 # it is the content that is wrong
    return Identity(member, cluster)


def _records(content: bytes) -> Iterator[dict[int, bytes | int]]:
    """The records at the beginning of a log, each as its protobuf fields."""
    for frame, _ in frames(content):
        yield fields_of(frame)
