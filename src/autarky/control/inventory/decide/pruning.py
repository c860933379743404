"""What is deleted of what was applied earlier and is no longer wanted. Pure.

Contract: what is wanted is never deleted, nor what was never in the inventory. Of the rest, what is live is deleted
only where it is provably ours still and nobody else has a part in it:
- never a Namespace, a definition or a volume, whose deletion takes other people's objects or data along; never the
  objects of the control plane, of etcd and of the agents, which the operator and changes of levels look after;
- not where it has lost our mark (somebody has taken it over) or where others have edited it;
- not while a pod or a workload still refers to it.
What cannot be seen is not judged, and stays in the inventory (rule 2).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from autarky.control.drift.decide import applied
from autarky.control.drift.decide.field_owners import OURS, edits, other_writers
from autarky.control.inventory.decide import references
from autarky.control.inventory.decide.entries import Entry
from autarky.control.upgrade.decide.steps import ORDER
from autarky.model.components import ETCD, KUBELET, NODE_AGENT
from autarky.render.crds import GROUP
from autarky.render.values import is_ours

Object = dict[str, Any]
ADD_ONS = "add-ons"
"""The part of the user's own add-ons."""
CONTROL_PLANE_PARTS = frozenset(
    {*ORDER, ETCD, KUBELET, NODE_AGENT, "operator", "control-plane", "definitions", "endpoints", "record"}
)
NEVER = {
    "Namespace": "everything in it would go with it",
    "CustomResourceDefinition": "all objects of that kind would go with it",
    "PersistentVolumeClaim": "its data would go with it",
    "PersistentVolume": "its data would go with it",
}
"""Kinds that are never deleted, and why."""
_RESERVED = "autarky-"
"""Secrets and ConfigMaps of such a name are what agents remember."""


class Fate(Enum):
    DELETE = "delete"
    WAIT = "is being deleted, or still used"
    STAYS = "stays, and is reported"
    FORGET = "is no longer in the inventory"


@dataclass(frozen=True, slots=True)
class Seen:
    """live: None where it is absent. users: the workloads that refer to it, and stay as they are; pods: what refers to
    it and goes, or changes. Both as "Pod kube-system/x"."""

    live: Object | None
    users: Sequence[str] = ()
    pods: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """why: a sentence for people; empty where there is nothing to say."""

    fate: Fate
    why: str = ""

    @property
    def stays_noted(self) -> bool:
        return self.fate is not Fate.FORGET


def obsolete(noted: Iterable[Entry], wanted: Iterable[Entry]) -> list[Entry]:
    """What was noted and is not wanted any more, in the order of deletion: what was applied last goes first, but what
    pods refer to goes after the workloads that might."""
    kept = {entry.identity for entry in wanted}
    gone = {entry.identity: entry for entry in noted if entry.identity not in kept}
    last_first = list(reversed(gone.values()))
    return sorted(last_first, key=lambda entry: entry.kind in references.KINDS)


def decide(entry: Entry, seen: Seen | None) -> Verdict:
    """The fate of one that is obsolete. seen: None where the API does not serve its kind now."""
    if seen is None:
        return Verdict(Fate.WAIT)
    if seen.live is None or _is_of_the_control_plane(entry):
        return Verdict(Fate.FORGET)
    if "deletionTimestamp" in seen.live["metadata"]:
        return Verdict(Fate.WAIT)
    if not _is_still_ours(entry, seen.live):
        return Verdict(Fate.FORGET, f"{entry.subject} is no longer wanted, but somebody has taken it over: it stays")
    if why := _must_stay(entry, seen.live):
        by_hand = f"if it should go: kubectl delete {_for_kubectl(entry)}"
        return Verdict(Fate.STAYS, f"{entry.subject} is no longer wanted and stays: {why}; {by_hand}")
    return _unless_used(entry, seen)


def _must_stay(entry: Entry, live: Object) -> str:
    """Why, as a clause; empty where it may go."""
    return NEVER.get(entry.kind) or _edited_by(entry, live)


def _unless_used(entry: Entry, seen: Seen) -> Verdict:
    if seen.users:
        return Verdict(Fate.STAYS, f"{entry.subject} is no longer wanted, and stays while {_names(seen.users)} uses it")
    if seen.pods:
        return Verdict(Fate.WAIT, f"delete {entry.subject}, once {_names(seen.pods)} no longer uses it")
    return Verdict(Fate.DELETE, f"delete {entry.subject}, which is no longer wanted")


def _is_of_the_control_plane(entry: Entry) -> bool:
    """By its part, and by its name as well: a release may render it in another part."""
    if entry.part == ADD_ONS:
        return False
    remembered = entry.kind in ("ConfigMap", "Secret") and entry.name.startswith(_RESERVED)
    name = entry.name.removeprefix(_RESERVED).removeprefix("autarky:")
    named = any(name == one or name.startswith(f"{one}-") for one in (*CONTROL_PLANE_PARTS, "kubernetes"))
    return entry.part in CONTROL_PLANE_PARTS or named or entry.identity.group == GROUP or remembered


def _is_still_ours(entry: Entry, live: Object) -> bool:
    if entry.part != ADD_ONS:
        return is_ours(live)
    return applied.is_own(live) and _is_applied_by(f"{OURS}{ADD_ONS}", live)


def _is_applied_by(manager: str, live: Object) -> bool:
    """Also where the API does not say who has applied it."""
    entries = live["metadata"].get("managedFields")
    return not entries or any(one.get("manager") == manager for one in entries)


def _edited_by(entry: Entry, live: Object) -> str:
    """By its record where it has one, else by its field managers. A clause; empty where nobody has edited it."""
    comparison = applied.drift_of(live) if applied.is_recorded(live) else None
    if comparison is not None:
        found = edits(entry.subject, comparison.drifted, live)
        return f"its {found[0].field} was edited" if found else ""
    others = other_writers(live)
    return f"{_names(others)} has written to it" if others else ""


def _names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} (and {len(names) - 1} more)"


def _for_kubectl(entry: Entry) -> str:
    group = entry.identity.group
    kind = f"{entry.kind.lower()}.{group}" if group else entry.kind.lower()
    return f"{f'-n {entry.namespace} ' if entry.namespace else ''}{kind} {entry.name}"
