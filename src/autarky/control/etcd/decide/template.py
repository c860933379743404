"""The template of etcd's members that is in force: from what `up` wrote, and what the ControlPlane asks for. Pure.

Contract: a requested template is in force until a member reports that it is not healthy with it; then the last one that
all members ran is in force again (design: a bad template goes back). The same request is not tried again by itself,
but once another was followed in between, also the former one: what was missing on a node may be there by now. What a
member still reports of the attempt before is waited for, and judges nothing.
Where two templates differ in the order of flags only, they are the same: nothing is restarted for it.

Invariants: a version that etcd cannot be moved to is never in force (rule 4): minors are not skipped, no minor is left
for an older one, and upstream's preconditions hold.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autarky.model.components import ETCD
from autarky.model.etcd_members import is_own_flag

Object = dict[str, Any]
Numbers = tuple[int, int, int]
"""A version: (3, 6, 16)."""
QUOTA = "quota-backend-bytes"
DEFAULT_QUOTA = 2 * 1024**3
"""Bytes: etcd's own, where no argument says otherwise."""
FROM_3_5, FROM_3_6 = (3, 5, 26), (3, 6, 11)
"""The oldest patches from which upstream allows the next minor (etcd.io: upgrade to 3.6, to 3.7)."""


@dataclass(frozen=True, slots=True)
class Request:
    """What the ControlPlane asks for. version: "3.6.16", None for that of the release; quota in bytes."""

    arguments: Mapping[str, str]
    version: str | None = None
    quota: int | None = None

    def flags(self) -> dict[str, str]:
        return dict(self.arguments) | ({} if self.quota is None else {QUOTA: str(self.quota)})


def request(plane: Object) -> Request:
    """From a valid ControlPlane."""
    spec = plane["spec"]
    given, wanted = (spec.get("componentArguments") or {}).get(ETCD) or {}, spec.get("etcd") or {}
    return Request(dict(given), wanted.get("version"), wanted.get("quotaBytes"))


@dataclass(frozen=True, slots=True)
class Kept:
    """What is recorded beside the template. in_force: made from the last accepted request; settled: the last one that
    all members ran. condemned: a requested template that a member was not healthy with, and why."""

    in_force: Object | None = None
    settled: Object | None = None
    condemned: Object | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Reports:
    """Of the members that should be there. running: the revisions that they run, None for one that does not say.
    failed: revision → why, by a member that was not healthy with it."""

    running: tuple[str | None, ...]
    failed: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Decision:
    """kept: what is to be recorded. refused: why the request is not followed; rolled_back: why it was given up; waits:
    why it is not followed yet."""

    kept: Kept
    refused: str = ""
    rolled_back: str = ""
    waits: str = ""


def decide(base: Object, request: Request, kept: Kept, reports: Reports, *, goes_back: bool = True) -> Decision:
    """base: the template as `up` writes it, without any requested arguments. goes_back: whether a template that fails
    is given up by itself."""
    wanted = effective(base, request)
    now = kept.in_force
    if (refused := _refused(request, wanted, kept.settled or now)) is not None:
        return Decision(kept, refused=refused)
    if now is not None and same(now, wanted):
        return _watched(now, kept.settled, reports, goes_back=goes_back)
    if kept.condemned is not None and same(kept.condemned, wanted):
        return Decision(_settled(kept, reports), rolled_back=kept.why)
    if now is not None and (earlier := reports.failed.get(revision(wanted))) is not None:
        return Decision(_settled(kept, reports), waits=f"it was tried before, and that is still reported: {earlier}")
    return Decision(Kept(wanted, kept.settled))


def _watched(now: Object, settled: Object | None, reports: Reports, *, goes_back: bool) -> Decision:
    """What is asked for is in force: so what went back before is forgotten."""
    kept, why = Kept(now, settled), reports.failed.get(revision(now))
    if why is None:
        return Decision(_settled(kept, reports))
    if not goes_back or settled is None or same(settled, now):
        return Decision(kept, rolled_back=why)
    return Decision(Kept(settled, settled, now, why), rolled_back=why)


def _settled(kept: Kept, reports: Reports) -> Kept:
    """With what is in force as the last good one, once all members run it."""
    now = kept.in_force
    if now is None or not reports.running or any(one != revision(now) for one in reports.running):
        return kept
    return Kept(now, now, kept.condemned, kept.why)


def effective(base: Object, request: Request) -> Object:
    """The template with the requested arguments and version."""
    spec: Object = json.loads(json.dumps(base))
    container = spec["containers"][0]
    container["command"] = _with_flags(container["command"], request.flags())
    if request.version is not None:
        container["image"] = _with_version(str(container["image"]), request.version)
    return spec


def revision(spec: Object) -> str:
    """A name for its content, without the order of flags."""
    text = json.dumps(_in_order(spec), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def same(one: Object, other: Object) -> bool:
    return _in_order(one) == _in_order(other)


def _in_order(spec: Object) -> Object:
    """With the flags of each container in the order of their names."""
    containers = [{**one, "command": sorted(map(str, one.get("command") or []))} for one in spec.get("containers", [])]
    return {"containers": containers, "volumes": spec.get("volumes", [])}


def _with_flags(command: Sequence[str], flags: Mapping[str, str]) -> list[str]:
    """Each in the place where it is, else at the end."""
    left = dict(flags)
    words = []
    for word in command:
        name = word.removeprefix("--").partition("=")[0]
        words.append(f"--{name}={left.pop(name)}" if word.startswith("--") and name in left else word)
    return [*words, *(f"--{name}={value}" for name, value in left.items())]


# --- versions ---------------------------------------------------------------------------------------


def version_of(spec: Object | None) -> Numbers | None:
    """Of its image's tag, "3.6.16-0"; None where that is no version."""
    try:
        image = str((spec or {})["containers"][0]["image"])
    except (KeyError, IndexError, TypeError):
        return None
    found = re.search(r":v?(\d+)\.(\d+)\.(\d+)[^:]*$", image.partition("@")[0])
    return None if found is None else (int(found[1]), int(found[2]), int(found[3]))


def _with_version(image: str, version: str) -> str:
    """Upstream's tags are VERSION-NUMBER; 0 is the first build of a version."""
    name, _, tag = image.partition("@")[0].rpartition(":")
    return f"{name}:{tag}" if tag.partition("-")[0] == version else f"{name}:{version}-0"


def _refused(request: Request, wanted: Object, runs: Object | None) -> str | None:
    """runs: the last template that all members ran. Until all run another one, etcd is not at its version either."""
    if own := sorted(name for name in request.arguments if is_own_flag(name)):
        flags = ", ".join(f"--{name}" for name in own)
        return f"{flags} of {ETCD} may not be set: who the members are and where their data is, is managed"
    if QUOTA in request.arguments and request.quota is not None:
        return f"the quota is set twice, by spec.etcd.quotaBytes and by --{QUOTA}: leave one out"
    return None if runs is None else step_refused(version_of(runs), version_of(wanted))


def step_refused(before: Numbers | None, after: Numbers | None) -> str | None:
    """Why etcd cannot be moved from one version to the other; None if it can."""
    if before is None or after is None or before[:2] == after[:2]:
        return None
    shown = f"from {text_of(before)} to {text_of(after)}"
    if after[:2] < before[:2]:
        return f"etcd is not moved {shown}: an older minor cannot read what a newer one has written"
    if after[0] != before[0] or after[1] - before[1] > 1:
        return f"etcd is not moved {shown}: minors are not skipped; take the next one first"
    oldest = {(3, 5): FROM_3_5, (3, 6): FROM_3_6}.get(before[:2])
    if oldest is not None and before < oldest:
        return f"etcd is not moved {shown}: upstream asks for {text_of(oldest)} first"
    return None


def stepping_stone(before: Numbers, after: Numbers, known: Collection[Numbers]) -> Numbers:
    """Where etcd can be moved first, on a way that is refused as one step: to the latest of these versions. The version
    that it has, where no way leads to the other one."""
    between = [one for one in known if before < one < after and step_refused(before, one) is None]
    return max(between, default=before)


def text_of(version: Numbers) -> str:
    return ".".join(map(str, version))
