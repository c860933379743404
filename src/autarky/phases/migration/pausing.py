"""How long the API is away while etcd is copied, and whether the copy is what was there. Pure.

Contract: the bound is for everything up to the decision (`marking`): when it passes, the former etcd is opened again,
and nothing has changed. What follows is the start of API servers, for which nobody goes back.
"""

from __future__ import annotations

from dataclasses import dataclass

from autarky.control.etcd.decide.recovery import BUMP

MIB = 1024 * 1024
USUAL_SECONDS, USUAL_SPEED = 15.0, 30 * MIB
"""With a small database, and bytes in a second for what is beyond: it is read through the network, hashed twice, and
written twice."""
LEAST_SECONDS, SLOWEST = 120.0, 3 * MIB
"""The same of the slowest machine that is waited for."""
SPACE = 2.2
"""Times the database, of free disk: the snapshot, what it is restored to, and a little."""


@dataclass(frozen=True, slots=True)
class Compared:
    """fenced: the revision of the former etcd when it had begun to refuse everybody. snapshot: that of the snapshot,
    and keys: how many the former etcd has at that one. made: the new etcd's, and its_keys: how many it had when it
    began. Both may go on after that: leases end by themselves."""

    fenced: int
    snapshot: int
    keys: int
    made: int
    its_keys: int


def estimate(size: int) -> float:
    """Seconds without an API, for a database of so many bytes."""
    return USUAL_SECONDS + size / USUAL_SPEED


def bound(size: int) -> float:
    """Seconds after which it goes back by itself."""
    return LEAST_SECONDS + size / SLOWEST


def announced(size: int) -> str:
    return (
        f"the API is away for about {estimate(size):.0f} s, for a database of {size / MIB:,.1f} MiB; if the copy is not"
        f" complete after {bound(size):.0f} s, everything is again as it was"
    )


def first_revision(snapshot: int) -> int:
    """Of the new etcd. What the former one writes by itself while it refuses everybody, since leases end, was seen by
    clients: a watch that they resume from there must not begin among what the new one writes."""
    return snapshot + BUMP


def lacks(snapshot: int, fenced: int) -> str | None:
    """A member may lag behind its leader: its snapshot lacks what it has not applied."""
    if snapshot >= fenced:
        return None
    return f"the snapshot ends at revision {snapshot:,}, and the etcd that is copied had come to {fenced:,}"


def differs(one: Compared) -> str | None:
    """Why the new etcd must not take the former one's place; None where it may."""
    if (why := lacks(one.snapshot, one.fenced)) is not None:
        return why
    if one.made < first_revision(one.snapshot):
        return f"the new etcd is at revision {one.made:,}, before {first_revision(one.snapshot):,}, where it begins"
    if one.its_keys != one.keys:
        return f"the new etcd has {one.its_keys:,} keys, and the former one {one.keys:,}"
    return None


def why_not_that_version(theirs: str, ours: str) -> str | None:
    """Whether our etcd can be started from data of theirs: of the same minor, or the one before."""
    its, own = _minor(theirs), _minor(ours)
    if its[0] == own[0] and own[1] - 1 <= its[1] <= own[1]:
        return None
    why = "does not start from data of a newer one" if its > own else "starts from data of the minor before it only"
    return f"it runs etcd {theirs}, and the control nodes would run {ours}, which {why}"


def _minor(version: str) -> tuple[int, int]:
    major, _, rest = version.removeprefix("v").partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else (0, 0)
