"""Which step of an upgrade is next: by what runs, not by a list of what was done. Pure.

Contract (rules 4 and 11): going up, the API servers come first, then controller-manager, scheduler and kube-proxy;
going down, the other way round. These three, none of which asks anything of the others' versions, are rolled out side
by side, so that they are watched at the same time, too; everything is found healthy before what comes after it. But
kubelets, which follow, may begin while nothing is left but to watch a kube-proxy that is Ready everywhere.
Between the API servers and the others, and at the end, everything is in place: the standbys are of the same version
too, and what becomes a standby has been healthy for as long as `control.checkpoint` wants. What was
rolled back is not tried again until the spec is changed: the plan stops there, and everything that runs stays.

With a soak the way up is gone twice in that order: first with the new binaries, which emulate the minor from before
(`control.common.emulation`), and after the soak without that. No API server is raised while any binary is not new,
proven, and in the standbys as well. An API server of the later minor that emulates nothing has been raised: then there
is nothing to go back to but the former version, and the others follow without emulating. A soak that is set to nothing
in the middle has the same meaning: what emulates is raised at once, what is still to come never emulates. By its binary
version an emulating component counts for skew, and for the order in which everything goes down.

Whoever sets an image by hand has taken a step of the plan, or one against it: an image of a version that the plan does
not know is left alone, and stops it. An upgrade that is given up goes the other way, from wherever it has come to.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from autarky.control.common.emulation import EMULATING
from autarky.control.common.shapes import some
from autarky.control.common.skew import minor_of
from autarky.model.components import API_SERVER, CONTROLLER_MANAGER, KUBE_PROXY, SCHEDULER
from autarky.model.versions import Version

ORDER = (API_SERVER, CONTROLLER_MANAGER, SCHEDULER, KUBE_PROXY)
"""Going up."""
SOAK = "soak"
"""Among what is to come."""


@dataclass(frozen=True, slots=True)
class Part:
    """One hosted component. version: of its template's image, None where its tag is no version. in_place: whether every
    node has a pod of that template, and it was found healthy. standbys: node → the version of its standby, None while
    that is not known. failed: why the wanted version was rolled back; empty where it was not.

    emulates: the minor that the plan has its template emulate, "" for none; standbys_emulate: node → the same of its
    standby, nodes without it have none; failed_emulating: as failed, of the wanted version that emulates. foreign: the
    minor that somebody else has it emulate. without: the nodes that its rollout has gone on without. rolled_out:
    whether all its pods are of that template and Ready, and nothing is left but to watch them. lost: machines that may
    come back as they were, which nobody sees: their Node was deleted, and they were not removed as control nodes."""

    name: str
    version: Version | None
    in_place: bool = False
    standbys: Mapping[str, Version | None] = field(default_factory=dict)
    failed: str = ""
    emulates: str = ""
    standbys_emulate: Mapping[str, str] = field(default_factory=dict)
    failed_emulating: str = ""
    foreign: str = ""
    without: frozenset[str] = frozenset()
    rolled_out: bool = False
    lost: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Soak:
    """emulates: the minor from before the plan. seconds: as asked for. soaked: for how long it has been."""

    emulates: str
    seconds: float
    soaked: float = 0.0

    @property
    def is_over(self) -> bool:
        return self.soaked >= self.seconds


@dataclass(frozen=True, slots=True)
class Seen:
    """known: the versions that the plan may replace: the one from before it, and what was wanted since. parts: the
    components that are hosted, in any order; the API server is among them. soak: None where none is asked for, or the
    wanted version is not of a later minor than the one from before."""

    wanted: Version
    known: frozenset[Version]
    parts: Sequence[Part]
    soak: Soak | None = None


class Step(Enum):
    SET = "set"
    WAIT = "wait"
    SOAK = "soak"
    STOP = "stop"
    FINISH = "finish"


@dataclass(frozen=True, slots=True)
class Decision:
    """emulates: the minor that the component is to emulate from this step on."""

    step: Step
    sentence: str
    component: str = ""
    emulates: str = ""


def groups(seen: Seen) -> list[list[Part]]:
    """The parts as they are changed: down where the API servers are of a later minor than is wanted."""
    by_name = {part.name: part for part in seen.parts}
    now = by_name[API_SERVER].version
    down = now is not None and minor_of(now) > minor_of(seen.wanted)
    level_3 = [by_name[name] for name in ORDER if name in by_name and name != API_SERVER]
    servers = [by_name[API_SERVER]]
    return [level_3[::-1], servers] if down else [servers, level_3]


def decide(seen: Seen) -> Decision:
    if (skips := _skips(seen)) is not None:
        return skips
    soak = _soak(seen)
    if soak is not None:
        if (binaries := _next(seen, soak.emulates)) is not None:
            return binaries
        if not soak.is_over:
            return Decision(Step.SOAK, f"the control plane is of {seen.wanted} and emulates {soak.emulates}")
    return _next(seen, "") or Decision(Step.FINISH, f"the control plane is of version {seen.wanted}{_later(seen)}")


def kubelets_may_follow(seen: Seen) -> bool:
    """On the way up, before it is complete: whether the API servers are in place with the wanted version, so that none
    becomes older than a kubelet (rule 4). Controller-manager and scheduler are, too, since that these are Ready proves
    nothing; kube-proxy is at least Ready everywhere. Not before the end of a soak, from which all may go back."""
    if not _is_raised(seen):
        return False
    [servers], others = groups(seen)
    return _lacks(servers, seen.wanted, "") is None and all(
        part.version == seen.wanted
        and not part.emulates
        and (part.in_place or (part.name == KUBE_PROXY and part.rolled_out))
        for part in others
    )


def to_come(seen: Seen, now: Decision) -> tuple[str, ...]:
    """What begins after the step that is decided, in its order: components, and SOAK. One that emulates before a soak
    is named once more for after it."""
    soak = _soak(seen)
    if soak is None:
        found = _lacking(seen, "")
    else:
        again = [part.name for group in groups(seen) for part in group if part.name in EMULATING]
        found = [*_lacking(seen, soak.emulates), *([] if soak.is_over else [SOAK]), *again]
    is_at = SOAK if now.step is Step.SOAK else now.component
    return tuple(found[1:] if found[:1] == [is_at] else found)


def _lacking(seen: Seen, emulated: str) -> list[str]:
    """The parts whose template is not as wanted yet."""
    return [part.name for group in groups(seen) for part in group if not _is_set(part, seen, emulated)]


def _is_set(part: Part, seen: Seen, emulated: str) -> bool:
    target = _target(part, emulated)
    return part.version == seen.wanted and part.emulates == target and not (target and part.foreign)


def _later(seen: Seen) -> str:
    later = [f"{part.name} on {', '.join(sorted(part.without))}" for part in seen.parts if part.without]
    return f"; {' and '.join(later)} gets it when it can" if later else ""


def _skips(seen: Seen) -> Decision | None:
    """Where another version is asked for in the middle of a plan, two minors from where parts of it have come to."""
    for part in seen.parts:
        has = part.version
        if has in seen.known and has is not None and _is_far(has, seen.wanted):
            first = f"{has.major}.{(has.minor + seen.wanted.minor) // 2}"
            sentence = f"{part.name} is of {has}, and minors are not skipped (rule 4): go to a {first} first"
            return Decision(Step.STOP, sentence, part.name)
        far = sorted(node for node, one in part.standbys.items() if one is not None and _is_far(one, seen.wanted))
        if far:
            sentence = f"the standby of {part.name} on {', '.join(far)} is more than a minor from {seen.wanted}"
            return Decision(Step.WAIT, f"{sentence} (rule 11): it follows what runs", part.name)
    return None


def _is_far(one: Version, other: Version) -> bool:
    return abs(one.minor - other.minor) > 1


def _is_raised(seen: Seen) -> bool:
    """Whether API servers of the later minor are wanted to emulate nothing."""
    servers = next(part for part in seen.parts if part.name == API_SERVER)
    emulates = servers.emulates or servers.foreign
    return servers.version is not None and minor_of(servers.version) == minor_of(seen.wanted) and not emulates


def _soak(seen: Seen) -> Soak | None:
    """That is still to be gone through, or to end."""
    return None if _is_raised(seen) else seen.soak


def _next(seen: Seen, emulated: str) -> Decision | None:
    """None where everything is in place, and emulates that."""
    for group in groups(seen):
        for part in group:
            if not _is_set(part, seen, emulated):
                return _change(part, seen, _target(part, emulated))
        if rolling := [part for part in group if not part.in_place]:
            names = ", ".join(part.name for part in rolling)
            first = rolling[0]
            sentence = f"{names}: {seen.wanted} is being rolled out"
            return Decision(Step.WAIT, sentence, first.name, _target(first, emulated))
        for part in group:
            target = _target(part, emulated)
            if (lacks := _lacks(part, seen.wanted, target)) is not None:
                return Decision(Step.WAIT, f"{part.name}: {lacks}", part.name, target)
    return None


def _target(part: Part, emulated: str) -> str:
    return emulated if part.name in EMULATING else ""


def _change(part: Part, seen: Seen, target: str) -> Decision:
    if failed := part.failed_emulating if target else part.failed:
        how = (
            f" that emulates {target}" if target else f" that no longer emulates {part.emulates}" * bool(part.emulates)
        )
        return Decision(Step.STOP, f"{part.name} {seen.wanted}{how} was rolled back: {failed}", part.name, target)
    if part.version is None or part.version not in seen.known:
        has = "an image of no version" if part.version is None else str(part.version)
        return Decision(Step.STOP, f"{part.name} has {has}, which somebody has set", part.name)
    if target and part.foreign:
        has = f"--emulated-version={part.foreign}, which somebody has set: remove it"
        return Decision(Step.STOP, f"{part.name} has {has}, or set the soak to 0", part.name)
    return Decision(Step.SET, f"{part.name}: {_way(part, seen.wanted, target)}", part.name, target)


def _way(part: Part, wanted: Version, target: str) -> str:
    if part.version == wanted:
        return f"{wanted} is to emulate {target}" if target else f"{wanted} no longer emulates {part.emulates}"
    return f"from {part.version} to {wanted}" + (f", which emulates {target}" if target else "")


def _lacks(part: Part, wanted: Version, target: str) -> str | None:
    """Why the part is not in place with the wanted version; None where it is."""
    if part.version != wanted or not part.in_place:
        return f"{wanted} is being rolled out"
    behind = sorted(name for name, version in part.standbys.items() if version != wanted)
    if behind:
        return f"its standby on {', '.join(behind)} is not of {wanted} yet (rule 11)"
    others = sorted(name for name in part.standbys if part.standbys_emulate.get(name, "") != target)
    if others:
        what = f"does not emulate {target} yet" if target else "emulates the minor from before"
        return f"its standby on {', '.join(others)} {what} (rule 11)"
    if part.lost:
        return ": ".join(of_lost(part.lost))
    return None


def of_lost(names: Collection[str]) -> tuple[str, str]:
    """(What is wrong with these machines, at least one; what to do about it)."""
    sentence = f"{some(names)} may come back as it was (rules 4 and 11): its Node is gone, and it was not removed"
    return sentence, f"`autarky node remove {min(names)}`, or switch it on"
