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
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from autarky.control.common.shapes import plain
from autarky.control.kubelet.decide.fields import NOT_UNDERSTOOD, WORD, annotation, fitting, number, version
from autarky.control.kubelet.decide.order import ID, MOST_NUMBER
from autarky.model.versions import Version
from autarky.render.values import canonical_text

ANNOTATION = "autarky.dev/kubelet"
MOST_LETTERS = 8 * 1024


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
    return canonical_text({key: value for key, value in said.items() if value})


def read(metadata: Mapping[str, Any]) -> Report | None:
    """What a Node's annotation reports; None where it reports nothing that can be understood. Not trusted."""
    value = annotation(metadata, ANNOTATION, MOST_LETTERS)
    if value is None:
        return None
    try:
        return _report(json.loads(value))
    except NOT_UNDERSTOOD:
        return None


def _report(said: Mapping[str, Any]) -> Report:
    order = fitting(ID, said["order"]) if "order" in said else ""
    return Report(
        order=order,
        number=number(said.get("number", 0), MOST_NUMBER),
        attempt=number(said.get("attempt", 0), MOST_NUMBER),
        state=State(said["state"]) if order else None,
        slot=fitting(WORD, said.get("slot", "")),
        version=_version(said.get("version")),
        former=_version(said.get("former")),
        base=fitting(WORD, said.get("base", "")),
        runtime=fitting(WORD, said.get("runtime", "")),
        target=fitting(WORD, said.get("target", "")),
        why=plain(said.get("why", "")),
        interrupted=said.get("interrupted") is True,
    )


def _version(value: object) -> Version | None:
    return None if value is None else version(value)
