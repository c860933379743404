"""One file a case: when it passed last, how long it took, and on which tree.

Contract: `records/MODULE/TEST.json`, one line of JSON, the name percent-encoded, so that a case's file is found by its
id, a rename of a case is a rename of its file, and two branches that record other cases never conflict. A file appears
in one rename.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from urllib.parse import quote, unquote

from cases.tree import ROOT

RECORDS = ROOT / "tests/cases/records"
SCENARIOS = "tests/e2e"


@dataclass(frozen=True, slots=True)
class Record:
    """The last pass of a case; nothing but `run` for a case that is listed and has not passed yet.

    `seconds`: of the case itself. `setup`: of its cluster, as far as that was set up when this case began; only where
    it was the first there, or set up a large part of it. `tree` and `scenario`: hashes of what passed. `run`: the
    number of the run that wrote this; for a new case, and for one that was run by its name, of the latest one then.
    """

    seconds: float | None = None
    setup: float | None = None
    tree: str | None = None
    scenario: str | None = None
    date: str | None = None
    run: int = 0

    @property
    def passed(self) -> bool:
        return self.seconds is not None


class BadRecord(Exception):
    """A file that is no record; its message names it."""


def latest_run(records: Mapping[str, Record]) -> int:
    """The number of the last run that recorded anything; 0 before the first."""
    return max((record.run for record in records.values()), default=0)


def run_by_hand(records: Mapping[str, Record]) -> int:
    """As of which run cases count that somebody has named: of the latest one. They are no turn of the rotation, and
    whoever is not among them has not waited for one run more."""
    return max(1, latest_run(records))


def path_of(case: str, directory: Path = RECORDS) -> Path:
    """Where the record of a case is, whether it exists or not. ValueError for what is no id of a case."""
    file, _, name = case.partition("::")
    if not name or not file.startswith(f"{SCENARIOS}/") or not file.endswith(".py"):
        raise ValueError(f"{case} is no id of a case: {SCENARIOS}/test_MODULE.py::test_NAME")
    module = file.removeprefix(f"{SCENARIOS}/").removesuffix(".py")
    return directory / module / f"{quote(name, safe='[],+@=')}.json"


def case_of(path: Path) -> str:
    """The id of the case whose record that is."""
    return f"{SCENARIOS}/{path.parent.name}.py::{unquote(path.name.removesuffix('.json'))}"


def read_all(directory: Path = RECORDS) -> dict[str, Record]:
    """By id, in order. BadRecord when one cannot be read."""
    return {case_of(path): _read(path) for path in _files(directory)}


def _files(directory: Path) -> Iterator[Path]:
    """But those that a killed run has begun to write."""
    return (path for path in sorted(directory.glob("*/*.json")) if not path.name.startswith("."))


def _read(path: Path) -> Record:
    try:
        found = json.loads(path.read_text())
        record = Record(**found)
    except (ValueError, TypeError) as error:
        raise BadRecord(f"{path} is no record: {error}") from error
    known = {field.name for field in fields(Record)}
    if found.keys() != known or not isinstance(record.run, int) or path_of(case_of(path), path.parents[1]) != path:
        raise BadRecord(f"{path} is no record of a case; every record has {', '.join(sorted(known))}")
    return record


def write(case: str, record: Record, directory: Path = RECORDS) -> Path:
    path = path_of(case, directory)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(f"{json.dumps(asdict(record))}\n")
    return temporary.rename(path)


def move(old: str, new: str, directory: Path = RECORDS) -> list[tuple[str, str]]:
    """Carry the records of a case, of all parameters of a test or of all of a module along to its new name.

    Returns what was moved, by ids. ValueError, with nothing moved, when there is no such record, or when one with a
    pass has the new name already.
    """
    records = read_all(directory)
    moves = [(case, f"{new}{case[len(old) :]}") for case in records if _is_of(case, old)]
    if not moves:
        raise ValueError(f"no record of {old}")
    taken = [target for _, target in moves if target in records and records[target].passed]
    if taken:
        raise ValueError(f"{taken[0]} has a record of its own")
    for source, target in moves:
        origin, destination = path_of(source, directory), path_of(target, directory)
        destination.parent.mkdir(exist_ok=True)
        origin.rename(destination)
        if not any(origin.parent.iterdir()):
            origin.parent.rmdir()
    return moves


def _is_of(case: str, name: str) -> bool:
    """Whether the name is the case's, its test's without parameters, or its module's."""
    return case == name or case.startswith((f"{name}[", f"{name}::"))
