"""A member's log, written record by record as etcd writes it: for tests of what reads it, and for contract tests that
give etcd a log of their own. That etcd reads it: tests/contract/etcd/test_log_of_a_member.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from autarky.etcd.log import crc32c

METADATA, ENTRY, STATE, CHECKSUM, SNAPSHOT = 1, 2, 3, 4, 5
VOTE, CLUSTER = 0x8E9E05C52164694D, 0xCDF818194E3A8C32


def varint(value: int) -> bytes:
    more, last = value >> 7, value & 0x7F
    return bytes([last]) if not more else bytes([last | 0x80]) + varint(more)


def numbers(*values: int) -> bytes:
    """A message whose fields have these numbers, from 1."""
    return b"".join(varint(number << 3) + varint(value) for number, value in enumerate(values, 1))


@dataclass
class Writer:
    """One file, as etcd writes it. checksum: of all data so far, also of the files before; owner: whose log it is, as
    a message; starts: where each record begins."""

    checksum: int = 0
    owner: bytes = numbers(VOTE, CLUSTER)
    content: bytearray = field(default_factory=bytearray)
    starts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.add(CHECKSUM, b"")
        self.add(METADATA, self.owner)

    def entry(self, term: int, index: int, data: bytes = b"x") -> Writer:
        return self.add(ENTRY, numbers(0, term, index) + b"\x22" + varint(len(data)) + data)

    def state(self, term: int, commit: int, vote: int = VOTE) -> Writer:
        return self.add(STATE, numbers(term, vote, commit))

    def snapshot(self, term: int, index: int) -> Writer:
        members = b"\x08\x01\x08\x02"
        return self.add(SNAPSHOT, numbers(index, term) + b"\x1a" + varint(len(members)) + members)

    def add(self, kind: int, data: bytes) -> Writer:
        self.checksum = crc32c(data, self.checksum)
        record = b"\x08" + varint(kind) + b"\x10" + varint(self.checksum)
        if kind != CHECKSUM:
            record += b"\x1a" + varint(len(data)) + data
        padding = -len(record) % 8
        head = len(record) + ((0x80 + padding << 56) if padding else 0)
        self.starts.append(len(self.content))
        self.content += head.to_bytes(8, "little") + record + bytes(padding)
        return self

    def until(self, count: int) -> bytes:
        """With its first records only."""
        return bytes(self.content[: [*self.starts, len(self.content)][count]])
