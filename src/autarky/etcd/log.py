"""The end of a member's log (its write-ahead log): how new its data is, and a record that commits all of it.

Contract: pure; the caller reads the files. A log is read up to the first record that is not whole, as etcd does after
a power cut. The order of two logs is Raft's own: by term, then by index; of two members the one with the later log has
everything that a majority acknowledged while both were in it.

Why a record is appended: a follower learns that an entry is committed only with the next message of its leader. If the
leader is lost before that, an acknowledged write is at the follower's end of the log and not marked as committed, and
etcd's `--force-new-cluster` drops what is not marked. A new leader would commit its whole log; so does this record.

Danger: this is etcd's format on disk (server/storage/wal, since 2.1), which etcd itself documents nowhere. It is only
ever written to a copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

_ENTRY, _STATE, _CHECKSUM, _SNAPSHOT = 2, 3, 4, 5
_LENGTH = (1 << 56) - 1
_CASTAGNOLI = 0x82F63B78
"""The polynomial of CRC-32C, reflected."""
_LONGEST = 70
"""Bits of a number, of which a byte has seven: damaged content may go on for megabytes."""


_VERIFIED = 4 * 1024 * 1024
"""Bytes at the end of a file whose checksums are computed. etcd syncs after each batch, which is smaller."""


@dataclass(frozen=True, slots=True)
class _Record:
    """offset: behind it. checksum: of all data so far."""

    kind: int
    data: bytes
    checksum: int
    offset: int


@dataclass(frozen=True, slots=True, order=True)
class Newest:
    """The last entry of a log; ordered as Raft orders logs."""

    term: int = 0
    index: int = 0


@dataclass(frozen=True, slots=True)
class End:
    """Where a log ends. state: (term, vote, commit), as written last. offset: behind its last whole record, in the
    last file; checksum: of that record."""

    newest: Newest = Newest()
    state: tuple[int, int, int] = (0, 0, 0)
    offset: int = 0
    checksum: int = 0

    @property
    def committed(self) -> bool:
        return self.state[2] >= self.newest.index


def end_of(files: Sequence[bytes]) -> End:
    """Of the last files of a log, in their order: at least the last two, since a new one begins without entries.
    ValueError if the last one has no record at all."""
    end = End()
    for content in files:
        end = replace(end, offset=0)
        for record in _records(content):
            end = replace(_after(end, record.kind, record.data), offset=record.offset, checksum=record.checksum)
    if end.offset == 0:
        raise ValueError("the log has no record that is whole")
    return end


def commits_all(end: End) -> bytes:
    """The record to write at `end.offset`."""
    term, vote, _ = end.state
    fields = ((1, term), (2, vote), (3, end.newest.index))
    state = b"".join(_written(number << 3) + _written(value) for number, value in fields)
    checksum = crc32c(state, end.checksum)
    record = b"\x08" + _written(_STATE) + b"\x10" + _written(checksum) + b"\x1a" + _written(len(state)) + state
    padding = -len(record) % 8
    head = len(record) | ((0x80 | padding) << 56 if padding else 0)
    return head.to_bytes(8, "little") + record + bytes(padding)


def crc32c(data: bytes, before: int = 0) -> int:
    """CRC-32C, continued from that of what came before."""
    value = before ^ 0xFFFFFFFF
    for byte in data:
        value = _TABLE[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


def fields_of(message: bytes) -> dict[int, bytes | int]:
    """Field number → value, of a protobuf message with numbers and bytes only. ValueError."""
    found: dict[int, bytes | int] = {}
    position = 0
    while position < len(message):
        tag, position = _number(message, position)
        value, position = _number(message, position)
        if tag & 7 == 2:
            if position + value > len(message):
                raise ValueError("a field ends in the middle")
            found[tag >> 3] = message[position : position + value]
            position += value
        elif tag & 7 == 0:
            found[tag >> 3] = value
        else:
            raise ValueError(f"a field of wire type {tag & 7} where the log has none")
    return found


def frames(content: bytes) -> Iterator[tuple[bytes, int]]:
    """(record, offset behind it) of a file, up to the end or to what is not whole."""
    position = 0
    while position + 8 <= len(content):
        head = int.from_bytes(content[position : position + 8], "little")
        length = head & _LENGTH
        padding = (head >> 56) & 0x7 if head >> 63 else 0
        end = position + 8 + length
        if length == 0 or end + padding > len(content):
            return
        yield content[position + 8 : end], end + padding
        position = end + padding


def _records(content: bytes) -> list[_Record]:
    """Those that are whole."""
    found: list[_Record] = []
    for frame, offset in frames(content):
        record = _record(frame, offset)
        if record is None:
            break
        found.append(record)
    return found[: _whole(found)]


def _record(frame: bytes, offset: int) -> _Record | None:
    try:
        record = fields_of(frame)
    except ValueError:
        return None
    kind, checksum, data = record.get(1), record.get(2), record.get(3, b"")
    if not isinstance(kind, int) or not isinstance(checksum, int) or not isinstance(data, bytes):
        return None
    return _Record(kind, data, checksum, offset)


def _whole(records: Sequence[_Record]) -> int:
    """How many of them have their checksum. Only those at the end are computed: what is older was synced long ago."""
    size = first = 0
    for position in range(len(records) - 1, 0, -1):
        size += len(records[position].data)
        if size > _VERIFIED:
            first = position
            break
    for position in range(max(first, 1), len(records)):
        one, before = records[position], records[position - 1]
        if one.kind != _CHECKSUM and crc32c(one.data, before.checksum) != one.checksum:
            return position
    return len(records)


def _after(end: End, kind: int, data: bytes) -> End:
    if kind not in (_ENTRY, _STATE, _SNAPSHOT):
        return end
    fields = fields_of(data)
    first, second, third = (_as_number(fields.get(number, 0)) for number in (1, 2, 3))
    if kind == _STATE:
        return replace(end, state=(first, second, third))
    # An entry has its kind in the first field; a snapshot is named by index and term.
    newest = Newest(second, third) if kind == _ENTRY else max(end.newest, Newest(second, first))
    return replace(end, newest=newest)


def _as_number(value: bytes | int) -> int:
    return value if isinstance(value, int) else 0


def _number(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(message) and shift < _LONGEST:
        byte = message[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
    raise ValueError("a number has no end")


def _written(value: int) -> bytes:
    """As a varint."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _table() -> tuple[int, ...]:
    found = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (_CASTAGNOLI if value & 1 else 0)
        found.append(value)
    return tuple(found)


_TABLE = _table()
