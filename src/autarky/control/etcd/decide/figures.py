"""What a member of etcd says of itself in its metrics, and whether that needs attention. Pure.

Contract: `read` raises ValueError for text that is not etcd's metrics; names that another version does not have are
None. What is unknown is no trouble, and ends none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from autarky.control.etcd.decide.maintenance import NEARLY_FULL

SLOW_FSYNC = 0.010
"""etcd's hardware guide and FAQ: the 99th percentile of `wal_fsync_duration_seconds` should be below 10 ms. Slower
disks make leaders miss their heartbeats."""
LOOKS = 10
"""So many looks in a row, half a minute apart, make a disk slow, or quick again: every disk has a bad moment."""
ENOUGH = 20
"""Writes within one look; of fewer no percentile is known."""
NO_LONGER_FULL = 0.75
"""Of the quota: a database that was nearly full is not any more."""
QUANTILE = 0.99
_ENDLESS = float("inf")
_LINE = re.compile(
    r"^(etcd_(?:server_(?:id|has_leader|is_leader|is_learner|leader_changes_seen_total|quota_backend_bytes)"
    r"|mvcc_db_total_size_in_(?:bytes|use_in_bytes)|debugging_server_alarms"
    r"|disk_(?:wal_fsync|backend_commit)_duration_seconds_bucket))(?:\{([^}]*)\})? (\S+)$",
    re.MULTILINE,
)
_PEER = re.compile(r"^etcd_network_active_peers\{([^}]*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Figures:
    """Sizes in bytes. alarms: of this member. fsync, commit: upper bound in seconds → how many were no longer, since
    the process started."""

    has_leader: bool
    leads: bool
    learner: bool
    size: float
    in_use: float
    quota: float | None = None
    leader_changes: float | None = None
    alarms: frozenset[str] = frozenset()
    fsync: Mapping[float, float] = field(default_factory=dict)
    commit: Mapping[float, float] = field(default_factory=dict)


def connected_peers(text: str) -> frozenset[int]:
    """The members that the one with these metrics is connected to, by their ids."""
    found = ((dict(_LABEL.findall(labels)), float(number)) for labels, number in _PEER.findall(text))
    return frozenset(int(label.get("Remote", "0"), 16) for label, number in found if number > 0)


def read(text: str) -> Figures:
    plain: dict[str, float] = {}
    buckets: dict[str, dict[float, float]] = {"fsync": {}, "commit": {}}
    raised: set[tuple[str, str]] = set()
    own = ""
    for name, labels, number in _LINE.findall(text):
        label, value = dict(_LABEL.findall(labels)), float(number)
        if name.endswith("_bucket"):
            buckets["fsync" if "fsync" in name else "commit"][float(label.get("le", "nan"))] = value
        elif name == "etcd_debugging_server_alarms" and value > 0:
            raised.add((label.get("server_id", ""), label.get("alarm_type", "")))
        elif name == "etcd_server_id":
            own = label.get("server_id", "")
        else:
            plain[name] = value
    try:
        return Figures(
            has_leader=plain["etcd_server_has_leader"] > 0,
            leads=plain["etcd_server_is_leader"] > 0,
            learner=plain["etcd_server_is_learner"] > 0,
            size=plain["etcd_mvcc_db_total_size_in_bytes"],
            in_use=plain["etcd_mvcc_db_total_size_in_use_in_bytes"],
            quota=plain.get("etcd_server_quota_backend_bytes"),
            leader_changes=plain.get("etcd_server_leader_changes_seen_total"),
            alarms=frozenset(kind for member, kind in raised if member == own),
            fsync=buckets["fsync"],
            commit=buckets["commit"],
        )
    except KeyError as error:
        raise ValueError(f"these are not etcd's metrics: {error} is missing") from error


def slowest(before: Mapping[float, float] | None, after: Mapping[float, float]) -> float | None:
    """The 99th percentile, in seconds, of what came after `before`; interpolated within its bucket, as Prometheus does.
    None where too little came. A process that was started in between counts from its start."""
    earlier = before if before is not None and all(after.get(le, 0.0) >= count for le, count in before.items()) else {}
    counts = [(le, count - earlier.get(le, 0.0)) for le, count in sorted(after.items())]
    if not counts or counts[-1][1] < ENOUGH:
        return None
    rank = QUANTILE * counts[-1][1]
    low, below = 0.0, 0.0
    for le, count in counts:
        if count >= rank:
            return low if le == _ENDLESS else low + (le - low) * (rank - below) / (count - below)
        low, below = le, count
    return low


@dataclass(frozen=True, slots=True)
class Memory:
    """near: the database has nearly its quota. slow: the disk is slow. looks: so many in a row have said otherwise."""

    near: bool = False
    slow: bool = False
    looks: int = 0


@dataclass(frozen=True, slots=True)
class Judged:
    """troubles: reason of an event → sentence, without running numbers."""

    memory: Memory
    troubles: Mapping[str, str]


_SLOW = "its disk is slow: "


def is_only_slow(trouble: str) -> bool:
    """Whether what a member says of itself is no more than that its disk is slow: it serves, and may do so forever."""
    return trouble.startswith(_SLOW) and "; " not in trouble


def judge(figures: Figures, fsync: float | None, memory: Memory) -> Judged:
    """fsync: the 99th percentile since the last look; None where it is not known."""
    memory = _disk(fsync, replace(memory, near=_is_near(figures, memory)))
    troubles = {}
    if memory.near:
        troubles["EtcdNearQuota"] = (
            f"its database has more than {NO_LONGER_FULL:.0%} of its quota of {figures.quota or 0:,.0f} bytes, at which"
            " etcd refuses writes: delete objects, or raise the quota"
        )
    if memory.slow:
        troubles["EtcdDiskSlow"] = (
            f"{_SLOW}for minutes one in a hundred writes to etcd's log took more than"
            f" {SLOW_FSYNC * 1000:.0f} ms, which delays every write of the API and may cost etcd its leader"
        )
    return Judged(memory, troubles)


def _is_near(figures: Figures, memory: Memory) -> bool:
    """In use: a database that only has free pages is defragmented by itself."""
    if not figures.quota:
        return memory.near
    return figures.in_use > (NO_LONGER_FULL if memory.near else NEARLY_FULL) * figures.quota


def _disk(fsync: float | None, memory: Memory) -> Memory:
    if fsync is None:
        return memory
    if (fsync > SLOW_FSYNC) == memory.slow:
        return replace(memory, looks=0)
    looks = memory.looks + 1
    return replace(memory, slow=not memory.slow, looks=0) if looks >= LOOKS else replace(memory, looks=looks)
