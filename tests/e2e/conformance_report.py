"""What upstream's end-to-end tests (e2e.test) say of a run: which specs ran, and how each ended. Pure: no cluster.

The judge is the JUnit report, where every spec that there is has its place, chosen or not. What the run prints tells,
while it goes on, how many specs have ended, and afterwards which of them were tried a second time.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_SUITE = "Kubernetes e2e suite"
_SPEC = "[It] "
"""Before the name of each spec. Others are what a suite does before and after, which can fail as well."""
_PASSED, _SKIPPED = "passed", "skipped"
_NOT_CHOSEN = "skipped"
"""The whole message of a spec that nobody asked for. One that skips itself says why: "skipped - no such feature"."""
_ENDED = re.compile(r"^[•↺S] \[.*\bseconds\]$", re.MULTILINE)
_REPEATED = "↺"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one spec, or of a part of the suite that is none. `told`: how it failed, or why it was skipped."""

    name: str
    is_spec: bool
    status: str
    seconds: float
    told: str = ""


def names_in(file: Path) -> tuple[str, ...]:
    """Of a list of specs by their whole names, one a line; lines with a # before are for people."""
    lines = (line.strip() for line in file.read_text().splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))


def focus(names: Iterable[str]) -> str:
    """The expression that chooses these and no others: it is held against the name of the suite and that of a spec."""
    return f"^{_SUITE} (?:{'|'.join(re.escape(name) for name in names)})$"


def outcomes(report: str) -> list[Outcome]:
    """Of all that was to run, from the text of a JUnit report."""
    found = []
    for case in ET.fromstring(report).iter("testcase"):  # noqa: S314 # of a program that we have built
        name, status = case.get("name", ""), case.get("status", "")
        skipped = case.find("skipped")
        if skipped is not None and skipped.get("message") == _NOT_CHOSEN:
            continue
        why = "" if skipped is None else skipped.get("message", "")
        told = "\n".join(part.text or "" for part in case if part.tag in {"failure", "error"}) or why
        seconds = float(case.get("time", "0"))
        found.append(Outcome(name.removeprefix(_SPEC), name.startswith(_SPEC), status, seconds, told))
    return found


def complaints(found: Collection[Outcome], wanted: Sequence[str]) -> list[str]:
    """Whatever keeps that from being: each of the wanted specs ran once and passed, none was skipped, no other ran."""
    ran = [one.name for one in found if one.is_spec and one.status != _SKIPPED]
    failed = [f"{one.status}: {one.name}\n{one.told}" for one in found if one.status not in {_PASSED, _SKIPPED}]
    skipped = [f"skipped: {one.name}\n{one.told}" for one in found if one.status == _SKIPPED]
    told = {one.name for one in found}
    lacking = [f"did not run: {name}" for name in wanted if name not in told]
    others = [f"nobody asked for: {name}" for name in sorted(set(ran) - set(wanted))]
    twice = [f"ran {ran.count(name)} times: {name}" for name in sorted(set(ran)) if ran.count(name) > 1]
    return [*failed, *skipped, *lacking, *others, *twice]


def ended(printed: str) -> int:
    """How many specs have ended, of what a run has printed so far."""
    return len(_ENDED.findall(printed))


def repeated(printed: str) -> list[int]:
    """Which specs passed at a second attempt only: their numbers in the order in which they ran, the first is 0."""
    return [number for number, line in enumerate(_ENDED.findall(printed)) if line.startswith(_REPEATED)]
