"""Whether a new version would understand the command lines of the hosted components as they are, also after somebody's
edit: removed flags, feature gates, admission plugins and API versions. Pure.

Contract: a version of which nothing is known refuses nothing. Returns for any template, and never raises.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from autarky.control.common.shapes import items, mapping, texts, within
from autarky.control.upgrade.decide.observed import Finding, Seen
from autarky.control.upgrade.decide.removed import not_understood, removed_apis
from autarky.control.upgrade.decide.surface import Resource, surface_of
from autarky.model.versions import Version


def resources_gone(runs: Version, wanted: Version) -> Collection[Resource]:
    """Those that no version of the wanted one's API has; none where nothing is known of one of them."""
    old, new = surface_of(runs), surface_of(wanted)
    return () if old is None or new is None else removed_apis(old, new).gone


def findings(seen: Seen) -> Iterator[Finding]:
    """One for each thing that would keep a component from starting."""
    old, new = surface_of(seen.runs), surface_of(seen.wanted)
    if old is None or new is None:
        return
    lines = {name: list(_command_lines(live, name)) for name, live in seen.workloads.items()}
    for one in not_understood(lines, old, new):
        yield Finding("commands", one.sentence, one.fix, warning=one.starts)


def _command_lines(live: Mapping[str, Any], component: str) -> Iterable[list[str]]:
    """Of the container of that name."""
    for container in map(mapping, items(within(live, "spec", "template", "spec", "containers"))):
        if container.get("name") == component:
            yield [*texts(container.get("command")), *texts(container.get("args"))]
