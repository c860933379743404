"""The ConfigMap that keeps the inventory. Pure.

It counts only with autarky's label, and under a name that others may not write (`guards.manifests.reserved`): whoever
could write it would choose what `up` deletes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from autarky.control.inventory.decide.entries import Entry, read, written
from autarky.render.values import SYSTEM, is_ours, metadata

Object = dict[str, Any]
NAME = "autarky-applied"
KEY = "objects.json"
MANAGER = "autarky-inventory"


def config_map(entries: Iterable[Entry]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(NAME, SYSTEM),
        "data": {KEY: written(entries)},
    }


def entries_in(live: Object | None) -> list[Entry] | None:
    """None where there is no inventory, or none that can be read."""
    if live is None or not is_ours(live):
        return None
    return read(str((live.get("data") or {}).get(KEY, "")))
