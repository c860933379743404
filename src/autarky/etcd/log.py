"""The end of a member's log (its write-ahead log): how new its data is, and a record that commits all of it.

Contract: pure; the caller reads the files. A log is read up to the first record that is not complete, as etcd does
after a power cut. Where that is no torn end (complete records follow, and no sector is missing: a bit has flipped on
disk), what follows was synced, and perhaps acknowledged: it is counted. The order of two logs is Raft's own: by term,
then by index; of two members the one with the later log has everything that a majority acknowledged while both were in
it.

Why a record is appended: a follower learns that an entry is committed only with the next message of its leader. If the
leader is lost before that, an acknowledged write is at the follower's end of the log and not marked as committed, and
etcd's `--force-new-cluster` drops what is not marked. A new leader would commit all of its log; so does this record.

Danger: this is etcd's format on disk (server/storage/wal, since 2.1), which etcd itself documents nowhere. It is only
ever written to a copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice

_ENTRY, _STATE, _CHECKSUM, _SNAPSHOT = 2, 3, 4, 5
_LENGTH = (1 << 56) - 1
_CASTAGNOLI = 0x82F63B78
"""The polynomial of CRC-32C, reflected."""
_LONGEST = 70
"""Bits of a number, of which a byte has seven: damaged content may go on for megabytes."""
_SECTOR = 512
"""A disk writes one or does not; what etcd has allocated and not written is zeros."""
_LONGEST_PADDING = 7
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
    """Where a log ends. state: (term, vote, commit), as written last. offset: behind its last complete record, in the
    last file; checksum: of that record. damaged: how many complete records lie behind one that is none; lost: how many
    entries that are behind the end, at least. Both are 0 where the end is a torn one, or nothing is wrong."""

    newest: Newest = Newest()
    state: tuple[int, int, int] = (0, 0, 0)
    offset: int = 0
    checksum: int = 0
    damaged: int = 0
    lost: int = 0

    @property
    def committed(self) -> bool:
        return self.state[2] >= self.newest.index


def end_of(files: Sequence[bytes]) -> End:
    """Of the last files of a log, in their order: at least the last two, since a new one begins without entries.
    ValueError if the last one has no record at all."""
    end, behind = End(), []
    for content in files:
        end = replace(end, offset=0)
        for record in _records(content):
            end = replace(_after(end, record.kind, record.data), offset=record.offset, checksum=record.checksum)
        behind += _behind(content, end.offset, end.checksum)
    if end.offset == 0:
        raise ValueError("the log has no record that is complete")
    return replace(end, damaged=len(behind), lost=_lost(end, behind))


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


def frames(content: bytes, start: int = 0) -> Iterator[tuple[bytes, int]]:
    """(record, offset behind it) of a file, up to the end or to what is not complete."""
    position = start
    while (length := _length_at(content, position)) is not None:
        end = position + 8 + length
        padded = end + -length % 8
        if padded > len(content):
            return
        yield content[position + 8 : end], padded
        position = padded


def _length_at(content: bytes, position: int) -> int | None:
    """Of the record whose head is there; None where etcd writes no such head."""
    head = int.from_bytes(content[position : position + 8], "little")
    length, mark = head & _LENGTH, head >> 56
    padding = -length % 8
    fits = 0 < length <= len(content) - position - 8
    return length if fits and mark == (0x80 | padding if padding else 0) else None


def _records(content: bytes) -> list[_Record]:
    """Those that are complete."""
    found: list[_Record] = []
    for frame, offset in frames(content):
        record = _record(frame, offset)
        if record is None:
            break
        found.append(record)
    return found[: _intact(found)]


def _record(frame: bytes, offset: int) -> _Record | None:
    try:
        record = fields_of(frame)
    except ValueError:
        return None
    kind, checksum, data = record.get(1), record.get(2), record.get(3, b"")
    if not isinstance(kind, int) or not isinstance(checksum, int) or not isinstance(data, bytes):
        return None
    return _Record(kind, data, checksum, offset)


def _intact(records: Sequence[_Record]) -> int:
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


# --- what is behind a damaged record ------------------------------------------------------------------------------


def _behind(content: bytes, stop: int, checksum: int) -> list[_Record]:
    """The complete records behind the one at `stop`, which is none. Nothing where that is a torn end: the sectors of a
    batch that was not synced may have been written in any order, and one that was not is empty. checksum: as of
    `stop`."""
    first = _first_complete(content, stop, checksum)
    if first is None or _lacks_sector(content, stop, first):
        return []
    found: list[_Record] = []
    for frame, offset in frames(content, first):
        record = _record(frame, offset)
        if record is None:
            break
        found.append(record)
    return found


def _first_complete(content: bytes, stop: int, checksum: int) -> int | None:
    """Where the first one begins: it has its checksum, after what the damaged one has or had, or the one after it."""
    written = len(content.rstrip(b"\0"))
    for start in range(stop + 8, written, 8):
        two = list(islice(frames(content, start), 2)) if _length_at(content, start) is not None else []
        records = [_record(frame, offset) for frame, offset in two]
        one, after = [*records, None, None][:2]
        if one is None:
            continue
        before = _checksums(content[stop + 8 : start], checksum)
        if any(_follows(one, value) for value in before) or (after is not None and _follows(after, one.checksum)):
            return start
    return None


def _checksums(damaged: bytes, before: int) -> set[int]:
    """Those that the next record may go on from: the one that the damaged record says, and that of its data."""
    parsed = [_record(damaged[: len(damaged) - padding], 0) for padding in range(_LONGEST_PADDING + 1)]
    found = [one for one in parsed if one is not None]
    return {one.checksum for one in found} | {crc32c(one.data, before) for one in found}


def _follows(record: _Record, checksum: int) -> bool:
    return record.checksum == (checksum if record.kind == _CHECKSUM else crc32c(record.data, checksum))


def _lacks_sector(content: bytes, stop: int, first: int) -> bool:
    """Whether nothing was written to a sector between the two; the one in which the second begins was written."""
    ends = [*range((stop // _SECTOR + 1) * _SECTOR, first + 1, _SECTOR)]
    return any(not any(content[start:end]) for start, end in zip([stop, *ends], ends, strict=False))


def _lost(end: End, behind: Sequence[_Record]) -> int:
    if not behind:
        return 0
    after = end
    for record in behind:
        with suppress(ValueError):
            after = _after(after, record.kind, record.data)
    entries = sum(record.kind == _ENTRY for record in behind)
    return max(entries, max(after.newest.index, after.state[2]) - end.newest.index)


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
