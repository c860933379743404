"""Which machines are control nodes, with a Node or without: by the operator's record, and by etcd's members. Pure.

Contract: an entry of the record that cannot be parsed counts as absent, and so does a ConfigMap without autarky's
label. Returns for any object, and never raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from autarky.control.common.shapes import mapping, name_of, within
from autarky.control.control_nodes.decide.observed import Record, State
from autarky.model.etcd_members import Phase
from autarky.parsing import parsed
from autarky.render.values import is_ours


def records(config_map: dict[str, Any] | None) -> dict[str, Record]:
    """Node → its record."""
    data = mapping(config_map.get("data")) if config_map is not None and is_ours(config_map) else {}
    found = {name: _record(text) for name, text in data.items()}
    return {name: record for name, record in found.items() if record is not None}


def control_nodes(known: Mapping[str, Record], etcd_members: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Those that have become one, and of which nobody has said that they are gone: `autarky node remove` does."""
    made = {name for name, one in known.items() if one.state is State.MADE}
    there = {name_of(one) for one in etcd_members if within(one, "status", "phase") != Phase.REMOVED.value}
    return frozenset(made | there)


def _record(text: object) -> Record | None:
    try:
        said = parsed(str(text))
        return Record(str(said["uid"]), State(said["state"]))
    except (KeyError, ValueError, TypeError):
        return None
