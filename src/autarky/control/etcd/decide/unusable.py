"""Whether a member's data is of no use any more, by what its process logged before it ended. Pure.

Contract: `judge` says why, as a clause; "" where that is not clear. It is for a member that ends again and again, while
others serve: whoever removes it asks for the quorum (`membership`).

Invariants:
- rule 2: a disk that is full, or that cannot be read, says nothing about the data: the last words must be about that.
- etcd refuses to start (`InitialCorruptCheck`) where its keys differ from those of any other, whichever of them is the
  wrong one. Here that counts only as `corruption` has it: two others at least, a quorum without it, have one content.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from autarky.control.etcd.decide import corruption
from autarky.control.etcd.decide.corruption import Content, Voter

STARTS = 3
"""So often it must have been started."""
SHORT_SECONDS = 60.0
"""What ended after a longer run may have met something else."""
_MOST = 300
"""Letters."""
_LAST_WORDS = re.compile(r'^\{"level":"(panic|fatal)"|^panic: |^fatal error: ')
_OF_THE_DISK = re.compile(
    r"no space left|input/output error|read-only file system|permission denied|too many open files"
    r"|cannot allocate memory|resource temporarily unavailable|fault address"
)
_DAMAGED = re.compile(
    "|".join(
        (
            "walpb: crc mismatch",  # a record of its log
            "failed to find database snapshot file",  # its log begins with one that is not there
            "failed to recover v3 backend from snapshot",
            "Was the raft log corrupted, truncated, or lost",
            "invalid database",  # bbolt: neither of its two first pages can be read
            "checksum error",
            "failed to unmarshal mvccpb.KeyValue",
            r"^panic: (assertion failed: |invalid page type|page \d+ already freed|pgid|pgId|freepages: |freelist)",
            r"^panic: (root bucket|misplaced bucket|unexpected bucket)",
        )
    )
)
_INCONSISTENT = "found data inconsistency with peers"
_DIFFERS = "found different hash values from remote peer"


@dataclass(frozen=True, slots=True)
class Peer:
    """One that votes. urls: of its peers' port; etcd names the others by these alone when it compares at its start."""

    id: int
    name: str
    urls: tuple[str, ...]


def judge(member: int, voters: Sequence[Peer], lines: Sequence[str]) -> str:
    """member: its id. voters: all of them. lines: of the log of one run, in their order."""
    last = [line for line in lines if _LAST_WORDS.search(line)]
    if not last or any(_OF_THE_DISK.search(line) for line in last):
        return ""
    if damaged := [line for line in last if _DAMAGED.search(line)]:
        return f"etcd cannot read it: {damaged[0][:_MOST]}"
    if not any(_INCONSISTENT in line for line in last):
        return ""
    contents = _contents(member, {url: one.id for one in voters for url in one.urls}, lines)
    found = [Voter(one.id, one.name, content=contents.get(one.id)) for one in voters]
    verdict = corruption.judge({member}, found)
    return verdict.why if verdict.guilty is not None else ""


def _contents(member: int, by_url: dict[str, int], lines: Sequence[str]) -> dict[int, Content]:
    """By id, as it has compared them itself at its start. Who has the same as it is not in its log."""
    found: dict[int, Content] = {}
    for said in _comparisons(lines):
        try:
            own = Content(int(said["local-member-hash"]), int(said["local-member-compact-revision"]))
            other = Content(int(said["remote-peer-hash"]), int(said["remote-peer-compact-revision"]))
            ids = {by_url[url] for url in said["remote-peer-endpoints"] if url in by_url} - {member}
            if int(said["local-member-id"], 16) == member:
                found |= {member: own, **dict.fromkeys(ids, other)}
        except (KeyError, TypeError, ValueError):
            continue
    return found


def _comparisons(lines: Sequence[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        if _DIFFERS in line:
            try:
                said = json.loads(line)
            except ValueError:
                continue
            if isinstance(said, dict) and said.get("msg") == _DIFFERS:
                yield said
