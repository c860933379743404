"""Binaries of a later minor that behave like the minor before: the flag `--emulated-version`. Pure.

API server, controller-manager and scheduler have the flag; kube-proxy has none. A server that emulates serves the APIs,
has the feature gates, and writes the storage versions of the emulated minor (`--min-compatibility-version` follows by
itself: one minor before it, as with the binary of that minor). So everything can go back until the flag is removed.
`1.36` means the same as `kube=1.36`; a patch is not allowed in it.

A controller of the later minor asks for the newest version of an API that it knows, also while it emulates: one of
1.37 with the gate DRADeviceTaintRules asks for resource.k8s.io/v1, where 1.36 has v1beta2, which its administrator has
enabled with the gate, and it waits forever for an API server that emulates 1.36. So the API server serves the later
versions of what is enabled at the emulated minor, as it is meant to: `--emulation-forward-compatible`, which it refuses
when it emulates nothing. Of what is not enabled there, it serves none.

Contract: only the flag of the component's own container is touched, and only in a command line in which the component's
program is a word of its own: anything else may be a shell's script, which would ignore it. Looking
returns for any JSON, and never raises.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from autarky.control.common.shapes import container_of, texts
from autarky.control.common.skew import minor_of
from autarky.model.components import API_SERVER, CONTROLLER_MANAGER, SCHEDULER
from autarky.model.versions import Version

Object = dict[str, Any]
FLAG = "emulated-version"
EMULATING = (API_SERVER, CONTROLLER_MANAGER, SCHEDULER)
OPTION = f"--{FLAG}"
FORWARD = "emulation-forward-compatible"
"""Of the API server."""
_FORWARD = f"--{FORWARD}=true"


def minor_text(version: Version) -> str:
    """As the flag has it: "1.36"."""
    return f"{version.major}.{version.minor}"


def can_soak(runs: Version, wanted: Version) -> bool:
    """Only the way to a later minor has anything to emulate."""
    return minor_of(wanted) > minor_of(runs)


def given(template: object, component: str) -> tuple[str, ...]:
    """The values that the component's command line has for the flag."""
    line = _line(container_of(template, component))
    found = [word.partition("=")[2] for word in line if word.startswith(f"{OPTION}=")]
    return (*found, *(after for word, after in pairwise(line) if word == OPTION))


def means(value: str, minor: str) -> bool:
    """Whether the flag's value is that minor, in either way to write it."""
    return value in (minor, f"kube={minor}")


def takes_the_flag(template: object, component: str) -> bool:
    """Whether a word that is added to the command line reaches the program."""
    words = (word for word in _line(container_of(template, component)) if not word.startswith("-"))
    return any(word.rpartition("/")[2] == component for word in words)


def with_emulated(template: Object, component: str, minor: str) -> Object:
    """The template with the component emulating that minor; "" for none. What somebody else has it emulate goes."""
    copy: Object = json.loads(json.dumps(template))
    for container in copy["spec"].get("containers") or []:
        if container.get("name") != component:
            continue
        for key in ("command", "args"):
            if isinstance(container.get(key), list):
                container[key] = _without(container[key])
        if minor:
            where = "args" if container.get("args") else "command"
            flags = [f"{OPTION}={minor}", *([_FORWARD] if component == API_SERVER else [])]
            container[where] = [*(container.get(where) or []), *flags]
    return copy


def _without(words: Sequence[Any]) -> list[Any]:
    kept = list[Any]()
    is_value = False
    for word in words:
        if not is_value and word not in (OPTION, _FORWARD) and not str(word).startswith(f"{OPTION}="):
            kept.append(word)
        is_value = word == OPTION
    return kept


def _line(container: Mapping[str, Any]) -> list[str]:
    return [*texts(container.get("command")), *texts(container.get("args"))]
