"""What a node reports of its kubelet, in an annotation of its Node. Pure: writing and reading it.

JSON, by the node's agent, written when it changes:

    {"order": "5b1c…", "number": 3, "attempt": 1, "state": "Proving", "slot": "host", "version": "v1.37.1",
     "former": "v1.36.4", "base": "9f0c…", "runtime": "…", "target": "77ab…", "why": "…", "interrupted": true}

order, number, attempt: of the order that the state is about, as in `order`. version, runtime, target: of what is in
force on the node, target being `Target.digest`; former: the version before. base: of its base.json, empty where it has
none. why: what it waits for, or why it went back or refused. interrupted: it went back only since the machine was
started again in the middle: that says nothing of the kubelet.

Contract: whoever has a worker may write anything here. Reading returns for any JSON, and never raises; what is returned
is short, in one line, and no number in it is large. A state that this release does not know is no report.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from autarky.control.common.shapes import mapping, plain
from autarky.control.kubelet.decide.order import ID, MOST_NUMBER
from autarky.model.versions import Version

ANNOTATION = "autarky.dev/kubelet"
MOST_LETTERS = 8 * 1024
_VERSION = re.compile(r"v?[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,6}")
_WORD = re.compile(r"[\x21-\x7e]{0,256}")


class State(StrEnum):
    """The values are the words in the annotation."""

    STAGING = "Staging"
    DRAINING = "Draining"
    SWITCHING = "Switching"
    PROVING = "Proving"
    DONE = "Done"
    WENT_BACK = "WentBack"
    """It was tried, and what was there before is in force again."""
    REFUSED = "Refused"
    """Nothing was changed for it."""

    @property
    def is_final(self) -> bool:
        return self in (State.DONE, State.WENT_BACK, State.REFUSED)


@dataclass(frozen=True, slots=True)
class Report:
    """See the module's docstring. An empty text, None or 0: nothing is said of that. state: None without an order."""

    order: str = ""
    number: int = 0
    attempt: int = 0
    state: State | None = None
    slot: str = ""
    version: Version | None = None
    former: Version | None = None
    base: str = ""
    runtime: str = ""
    target: str = ""
    why: str = ""
    interrupted: bool = False

    @property
    def is_final(self) -> bool:
        return self.state is not None and self.state.is_final


def text(report: Report) -> str:
    """The annotation: the same report gives the same text."""
    said = {
        "order": report.order,
        "number": report.number,
        "attempt": report.attempt,
        "state": None if report.state is None else str(report.state),
        "slot": report.slot,
        "version": None if report.version is None else str(report.version),
        "former": None if report.former is None else str(report.former),
        "base": report.base,
        "runtime": report.runtime,
        "target": report.target,
        "why": plain(report.why),
        "interrupted": report.interrupted,
    }
    there = {key: value for key, value in said.items() if value}
    return json.dumps(there, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def read(metadata: Mapping[str, Any]) -> Report | None:
    """What a Node's annotation reports; None where it reports nothing that can be understood. Not trusted."""
    value = mapping(metadata.get("annotations")).get(ANNOTATION)
    if not isinstance(value, str) or len(value) > MOST_LETTERS:
        return None
    try:
        return _report(json.loads(value))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _report(said: Mapping[str, Any]) -> Report:
    order = _fits(ID, said["order"]) if "order" in said else ""
    return Report(
        order=order,
        number=_number(said.get("number", 0)),
        attempt=_number(said.get("attempt", 0)),
        state=State(said["state"]) if order else None,
        slot=_fits(_WORD, said.get("slot", "")),
        version=_version(said.get("version")),
        former=_version(said.get("former")),
        base=_fits(_WORD, said.get("base", "")),
        runtime=_fits(_WORD, said.get("runtime", "")),
        target=_fits(_WORD, said.get("target", "")),
        why=plain(said.get("why", "")),
        interrupted=said.get("interrupted") is True,
    )


def _version(value: object) -> Version | None:
    return None if value is None else Version.parse(_fits(_VERSION, value))


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value <= MOST_NUMBER:
        raise ValueError("no such number")
    return value


def _fits(pattern: re.Pattern[str], value: object) -> str:
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise ValueError("no such text")
    return value
