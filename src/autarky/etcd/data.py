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

_METADATA = 1
_BEGINNING = 4096
"""Bytes of a file that are looked at: the two records have less than a hundred."""
_LENGTH = (1 << 56) - 1
"""The lower bits of a frame's first eight bytes; the upper ones are about padding."""


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
        for record in _records(beginning):
            if record.get(1) == _METADATA and isinstance(record.get(3), bytes):
                return _identity(record[3])
    if logs:
        raise ValueError(f"{logs[-1]} does not say whose it is")
    return None


def _identity(data: bytes | int) -> Identity:
    fields = _fields(data if isinstance(data, bytes) else b"")
    member, cluster = fields.get(1), fields.get(2)
    if not isinstance(member, int) or not isinstance(cluster, int):
        raise ValueError("the log's metadata names no member")  # noqa: TRY004 # it is the content that is wrong
    return Identity(member, cluster)


def _records(content: bytes) -> Iterator[dict[int, bytes | int]]:
    """The records at the beginning of a log, each as its protobuf fields."""
    position = 0
    while position + 8 <= len(content):
        head = int.from_bytes(content[position : position + 8], "little")
        length = head & _LENGTH
        padding = (head >> 56) & 0x7 if head >> 63 else 0
        end = position + 8 + length
        if length == 0 or end > len(content):
            return
        yield _fields(content[position + 8 : end])
        position = end + padding


def _fields(message: bytes) -> dict[int, bytes | int]:
    """Field number → value, of a protobuf message with numbers and bytes only. ValueError."""
    found: dict[int, bytes | int] = {}
    position = 0
    while position < len(message):
        tag, position = _number(message, position)
        value, position = _number(message, position)
        if tag & 7 == 2:
            found[tag >> 3] = message[position : position + value]
            position += value
        elif tag & 7 == 0:
            found[tag >> 3] = value
        else:
            raise ValueError(f"a field of wire type {tag & 7} where the log has none")
    return found


def _number(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(message):
        byte = message[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
    raise ValueError("a number ends in the middle")
