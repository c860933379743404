"""Which of the records of a cluster is the one that was applied last (render/cluster_record.py says where they are).

Contract: pure. Records are numbered: whoever applies different content gives it the next number after the highest that
it saw. So the highest number is the newest, whichever host was away meanwhile, and no clock is needed. Of several with
that number the API's counts, which is written last and by the quorum; without it any of them may be the one. A record
of an older release has no number and is older than all that have one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autarky.model.cluster import UNNAMED_CNI

API = ""
"""In place of a host's name: the record is the API's."""


@dataclass(frozen=True, slots=True)
class Record:
    """file: the cluster file as applied; nodes: name → what is recorded of the node. ca: with the API's record, the
    fingerprint of its cluster's CA; one of an older release has none."""

    file: Mapping[str, Any]
    nodes: Mapping[str, Any]
    number: int = field(default=0)
    ca: str = field(default="", compare=False)

    def has(self, node: str) -> bool:
        return node in self.nodes or any(entry.get("name") == node for entry in _entries(self.file))


def latest(seen: Mapping[str, Record]) -> dict[str, Record]:
    """Those that may have been applied last. `seen`: host (or API) → its record. Empty only where nothing was seen."""
    highest = max((record.number for record in seen.values()), default=0)
    found = {where: record for where, record in seen.items() if record.number == highest}
    return {API: found[API]} if API in found else found


def newest(seen: Mapping[str, Record]) -> Record | None:
    return next(iter(latest(seen).values()), None)


def numbered(file: Mapping[str, Any], nodes: Mapping[str, Any], last: Record | None) -> Record:
    """The record for this content: the last one if its content is the same, else one with the next number."""
    number = 0 if last is None else last.number
    same = last is not None and number > 0 and (last.file, last.nodes) == (file, nodes)
    return Record(file, nodes, number if same else number + 1)


def without(file: Mapping[str, Any], node: str) -> dict[str, Any]:
    """The cluster file without this node, otherwise unchanged."""
    spec = {**file.get("spec", {}), "nodes": [entry for entry in _entries(file) if entry.get("name") != node]}
    return {**file, "spec": spec}


def _entries(file: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(file.get("spec", {}).get("nodes") or ())


def etcd_is_outside_in(document: Any) -> bool | None:
    """Whether the cluster's etcd is outside of it, by a file as it was kept; None where it cannot be parsed."""
    spec = document.get("spec") if isinstance(document, Mapping) else None
    etcd = spec.get("etcd") or {} if isinstance(spec, Mapping) else None
    return bool(etcd.get("external")) if isinstance(etcd, Mapping) else None


def cni_in(document: Any) -> str | None:
    """What provides the pod network, by a file as it was kept; None where it cannot be parsed. Files from before there
    was a choice do not name it."""
    spec = document.get("spec") if isinstance(document, Mapping) else None
    network = spec.get("network", {}) if isinstance(spec, Mapping) else None
    found = network.get("cni", UNNAMED_CNI.value) if isinstance(network, Mapping) else None
    return found if isinstance(found, str) else None
