"""What the ControlPlane's status says of an upgrade: written by the operator, read by commands and by people. Pure.

Contract: `status.version` is the version that the control plane has had completely last, `status.formerVersion` the one
before. `status.upgrade` is there while another one is wanted, or has been wanted and is not taken back yet. Reading it
returns for any JSON, and never raises.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from autarky.control.common.shapes import items, mapping, text, within
from autarky.control.common.skew import minor_of
from autarky.model.components import API_SERVER
from autarky.model.versions import Version
from autarky.render.crds import GROUP

IMAGES_PLACED = f"{GROUP}/images-placed"
"""Annotation of the ControlPlane: the version of which every node has the images, as a command has seen that put them
there. Nodes report that some 40 s later themselves."""
IMAGES_PLACED_UNTIL = f"{GROUP}/images-placed-until"
"""Beside it: when the youngest of those Nodes was created, by the API's clock."""

_MINOR = re.compile(r"[0-9]{1,4}\.[0-9]{1,6}")


class State(StrEnum):
    """The values are the words in the status."""

    UPGRADING = "Upgrading"
    SOAKING = "Soaking"
    """Everything is of the wanted version, and emulates the minor before it."""
    PAUSED = "Paused"
    REFUSED = "Refused"
    """Nothing was changed for it."""
    STOPPED = "Stopped"
    """A step failed and went back; what was changed before it stays."""
    COMPLETE = "Complete"
    """Never in a status: nothing is reported then."""


@dataclass(frozen=True, slots=True)
class Report:
    """wanted: by the operator, when it has written this. component: whose step it is, or empty. nodes: those that it
    waits for; until: when the ones that have begun are proven, or go back, at the latest (wall clock, for people).
    to_come: what begins after it, in this order."""

    wanted: Version
    state: State
    message: str
    component: str = ""
    nodes: tuple[str, ...] = ()
    until: float | None = None
    to_come: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Soaking:
    """version: of the binaries. since, until: wall clock, for people; until follows from what is left, and moves where
    the soak is interrupted. seconds: for how long it has been, as operators have counted by clocks that nobody sets."""

    version: Version
    since: float
    until: float
    seconds: float


def status(
    report: Report | None,
    versions: Collection[Version],
    emulated: str = "",
    soaking: Soaking | None = None,
    kubelets: Version | None = None,
) -> dict[str, Any]:
    """The part `upgrade` of the status; empty where there is none. For the next operator: versions: what was wanted
    since the last one that was complete; emulated: the minor that the plan has components emulate; the soak; and
    kubelets, as `for_kubelets` reads it."""
    found: dict[str, Any] = {"versions": [str(one) for one in sorted(versions)]} if versions else {}
    found |= {"emulates": emulated} if emulated else {}
    found |= {"kubelets": str(kubelets)} if kubelets is not None else {}
    if soaking is not None:
        found["soaking"] = {
            "version": str(soaking.version),
            "since": stamp(soaking.since),
            "until": stamp(soaking.until),
            "seconds": int(soaking.seconds),
        }
    if report is not None:
        found |= {"wanted": str(report.wanted), "state": str(report.state), "message": report.message}
        found |= {"component": report.component} if report.component else {}
        found |= {"nodes": list(report.nodes)} if report.nodes else {}
        found |= {"until": stamp(report.until)} if report.until is not None else {}
        found |= {"next": list(report.to_come)} if report.to_come else {}
    return found


def parsed(text: object) -> Version | None:
    """None for what is no version."""
    try:
        return Version.parse(text) if isinstance(text, str) else None
    except ValueError:
        return None


def complete_version(plane: Mapping[str, Any]) -> Version | None:
    """That the control plane has had completely last; None where no operator has said so."""
    return parsed(within(plane, "status", "version"))


def former_version(plane: Mapping[str, Any]) -> Version | None:
    """The one before."""
    return parsed(within(plane, "status", "formerVersion"))


def wanted_version(plane: Mapping[str, Any]) -> Version | None:
    """What the spec asks for."""
    return parsed(within(plane, "spec", "version"))


def noted_versions(plane: Mapping[str, Any]) -> frozenset[Version]:
    """What was wanted since the last one that was complete."""
    return frozenset(filter(None, map(parsed, items(_upgrade(plane).get("versions")))))


def lowest_version(plane: Mapping[str, Any]) -> Version | None:
    """Of those that its API servers have, or may come to have: no kubelet may be of a later minor (rule 4). None where
    nothing is known."""
    wanted, allowed = wanted_version(plane), for_kubelets(plane)
    if wanted is not None and allowed is not None:
        return min(wanted, allowed)
    known = {complete_version(plane), wanted, *noted_versions(plane)}
    return min((one for one in known if one is not None), default=None)


def for_kubelets(plane: Mapping[str, Any]) -> Version | None:
    """The version that all API servers and their standbys have come to have on the way up, before all the rest of the
    control plane was found good. None where that is not so; and where an earlier minor is wanted now, so that it counts
    no more from that very edit on."""
    wanted, found = wanted_version(plane), said_for_kubelets(plane)
    return found if found is not None and wanted is not None and minor_of(found) <= minor_of(wanted) else None


def said_for_kubelets(plane: Mapping[str, Any]) -> Version | None:
    """What the status says of that, whatever is wanted."""
    return parsed(_upgrade(plane).get("kubelets"))


def bars_steps(plane: Mapping[str, Any]) -> bool:
    """Whether it says of a version what counts no more: then no step is taken before the status is without it. Else it
    would count again, with API servers that have left that version, where that one is asked for once more."""
    return "kubelets" in _upgrade(plane) and for_kubelets(plane) is None


def are_kubelets_held(plane: Mapping[str, Any]) -> bool:
    """Whether the control plane is on its way to another version, so that no kubelet is ordered to change but for it.
    One that is refused may be so since kubelets are too old for it: they follow the version that it has."""
    said, wanted = read(plane), wanted_version(plane)
    if noted_versions(plane):
        goes_on = said is not None and said.state is State.UPGRADING and said.component != API_SERVER
        return not goes_on or for_kubelets(plane) != wanted
    return wanted != complete_version(plane) and not (said is not None and said.state is State.REFUSED)


def soak_seconds(plane: Mapping[str, Any]) -> int:
    """How long the spec has a later minor emulate the one before it; 0: not at all."""
    seconds = within(plane, "spec", "upgrade", "soakSeconds")
    return seconds if type(seconds) is int and seconds > 0 else 0


def emulated(plane: Mapping[str, Any]) -> str:
    """The minor that the plan under way has had components emulate; "" for none."""
    found = text(_upgrade(plane).get("emulates"))
    return found if _MINOR.fullmatch(found) else ""


def soaking(plane: Mapping[str, Any]) -> Soaking | None:
    """None also for what cannot be read: then the soak begins again."""
    said = mapping(_upgrade(plane).get("soaking"))
    version, seconds = parsed(said.get("version")), said.get("seconds")
    since, until = _seconds(said.get("since")), _seconds(said.get("until"))
    if version is None or since is None or until is None or type(seconds) is not int or seconds < 0:
        return None
    return Soaking(version, since, until, float(seconds))


def stamp(seconds: float) -> str:
    """Unix seconds as RFC 3339."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _seconds(when: object) -> float | None:
    try:
        found = datetime.fromisoformat(text(when))
        return found.timestamp() if found.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def goes_back_to(plane: Mapping[str, Any]) -> Version | None:
    """Where a rollback leads: to the version before the last upgrade, complete or not. While one is under way, to
    where that leads: a command that is run again does not turn it round. None where there is no way back: no other
    version was had, or the last change was a way back, which is complete."""
    complete, former, wanted = complete_version(plane), former_version(plane), wanted_version(plane)
    if complete is not None and wanted is not None and wanted < complete and wanted == former:
        return wanted
    found = read(plane)
    if found is None or found.state is not State.COMPLETE:
        return complete
    return former if former is not None and complete is not None and former < complete else None


def going_back(version: Version) -> dict[str, Any]:
    """The edit of the ControlPlane that takes it back to that version. What was said of the images of the one that is
    left would be believed when somebody asks for that again."""
    return {"metadata": {"annotations": not_placed()}, "spec": {"version": str(version), "paused": None}}


def placed(version: Version, nodes: Iterable[object]) -> dict[str, Any]:
    """Annotations: all these Nodes have the images of that version."""
    created = (_created(node) for node in nodes)
    until = max((one for one in created if one is not None), default=None)
    return {IMAGES_PLACED: str(version), IMAGES_PLACED_UNTIL: None if until is None else stamp(until)}


def not_placed() -> dict[str, Any]:
    """The same where nobody can say so, or not any more."""
    return {IMAGES_PLACED: None, IMAGES_PLACED_UNTIL: None}


def images_are_placed(plane: object, version: Version, node: object) -> bool:
    """Whether a command says so of that Node. One that was created later counts by what it reports itself, and so do
    all where the command of an earlier release has not said of which ones it speaks."""
    annotations = within(plane, "metadata", "annotations")
    until, created = _seconds(within(annotations, IMAGES_PLACED_UNTIL)), _created(node)
    known = until is not None and created is not None and created <= until
    return known and parsed(within(annotations, IMAGES_PLACED)) == version


def _created(node: object) -> float | None:
    return _seconds(within(node, "metadata", "creationTimestamp"))


def is_paused(plane: Mapping[str, Any]) -> bool:
    """Whether no further step may be taken."""
    return within(plane, "spec", "paused") is True


def read(plane: Mapping[str, Any]) -> Report | None:
    """What the operator says of the version that the spec asks for now; None where it has not seen that yet."""
    wanted = wanted_version(plane)
    if wanted is None:
        return None
    if complete_version(plane) == wanted and not _upgrade(plane):
        return Report(wanted, State.COMPLETE, f"the control plane is of version {wanted}")
    said = _upgrade(plane)
    if parsed(said.get("wanted")) != wanted or said.get("state") not in list(State):
        return None
    message, component = text(said.get("message")), text(said.get("component"))
    nodes, to_come = (tuple(one for one in items(said.get(name)) if isinstance(one, str)) for name in ("nodes", "next"))
    return Report(wanted, State(said["state"]), message, component, nodes, _seconds(said.get("until")), to_come)


def _upgrade(plane: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(within(plane, "status", "upgrade"))
