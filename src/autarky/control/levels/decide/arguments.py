"""Component arguments of the ControlPlane: how a changed value is applied to a command line that users edit too. Pure.

Contract: `Given` records the arguments that were added to a workload's command line, and the values that they replaced;
it is stored on the workload. `change` touches the flags whose requested value differs from the record, and no other: an
edit of another flag stands. An argument that is no longer requested gets our own value again, or is removed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autarky.control.drift.decide import applied
from autarky.control.drift.decide.owners import join_flags, split_flags
from autarky.parsing import parsed

Object = dict[str, Any]
ANNOTATION = "autarky.dev/arguments"
"""On workloads: JSON, {"given": {name: value}, "own": {name: value}}; absent where nothing is given."""
RESERVED = ("secure-port", "permit-port-sharing", "advertise-address", "etcd-servers", "kubeconfig", "leader-elect")
"""Flags that distinguish the two slots of a component, or keep them one component: they may not be set here."""


@dataclass(frozen=True, slots=True)
class Given:
    """values: flag without dashes → value; own: the values that we would set otherwise."""

    values: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        return json.dumps({"given": dict(self.values), "own": dict(self.own)}, sort_keys=True, separators=(",", ":"))


def given_to(obj: Object) -> Given:
    """What is recorded on the workload; empty where the record cannot be parsed."""
    text = (obj["metadata"].get("annotations") or {}).get(ANNOTATION)
    try:
        found = parsed(text) if text else {}
        return Given(dict(found.get("given", {})), dict(found.get("own", {})))
    except (ValueError, TypeError, AttributeError):
        return Given()


def refused(wanted: Mapping[str, str]) -> list[str]:
    """The names that may not be set."""
    return sorted(name for name in wanted if name in RESERVED)


def changed(given: Given, wanted: Mapping[str, str]) -> list[str]:
    """The flags whose requested value has changed."""
    names = sorted(given.values.keys() | wanted.keys())
    return [f"--{name}" for name in names if given.values.get(name) != wanted.get(name)]


def give(live: Object, container: str, wanted: Mapping[str, str]) -> Object | None:
    """The workload with the wanted arguments on the command line of that container, in the record of given arguments
    and in that of what was applied; None when the command line cannot be parsed."""
    found = _with_arguments(live, container, given_to(live), wanted)
    if found is None:
        return None
    obj, given = found
    annotations = {**(obj["metadata"].get("annotations") or {}), ANNOTATION: given.text()}
    obj = {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}
    record = applied.record_of(live)
    recorded = _with_arguments(record, container, given_to(live), wanted) if record is not None else None
    return obj if recorded is None else applied.with_record(obj, recorded[0])


def _with_arguments(
    obj: Object, container: str, given: Given, wanted: Mapping[str, str]
) -> tuple[Object, Given] | None:
    copy: Object = json.loads(json.dumps(obj))
    for found in copy["spec"]["template"]["spec"].get("containers") or []:
        if found["name"] == container:
            result = change(found.get("command") or [], given, wanted)
            if result is not None:
                found["command"] = result[0]
                return copy, result[1]
    return None


def change(command: Sequence[str], given: Given, wanted: Mapping[str, str]) -> tuple[list[str], Given] | None:
    """The command line and the record with the wanted arguments; None when the line cannot be parsed into flags."""
    flags = split_flags(command)
    if flags is None:
        return None
    own = dict(given.own)
    for flag in changed(given, wanted):
        name = flag.removeprefix("--")
        if name not in given.values and isinstance(flags.get(flag), str):
            own[name] = flags[flag]
        if name in wanted:
            flags[flag] = wanted[name]
        elif name in own:
            flags[flag] = own.pop(name)
        else:
            flags.pop(flag, None)
    return join_flags(flags), Given(dict(wanted), own)
