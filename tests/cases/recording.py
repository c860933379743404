"""The plugin of pytest that writes records (`--record`): of cases that passed, by hand, never in CI.

Wired in by tests/e2e/conftest.py. A case passed when its setup, its call and its teardown did. What is compared at the
end of a place (the members of its etcd) fails in the teardown of whichever case is the last there: then no record of
this session stands of that place, as nobody knows which case it was. The tree must be the same from the beginning of
the session on, else it is unknown what passed, and nothing is written. Nor is anything while a variable is set that
makes cases shorter or longer: a record is of all of the case, with the time that it takes always.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cases.changes import hashes_now
from cases.listing import place_of
from cases.records import RECORDS, Record, path_of, read_all, run_by_hand, write
from cases.tree import tree_hash

OTHER_LENGTHS = ("AUTARKY_ROUNDS", "AUTARKY_EVERY_WRITE", "AUTARKY_RENEWALS")
"""Variables of the scenarios with which a case does less or more than always."""
LARGE_SETUP = 30.0
"""Seconds. What a later case makes for all of its place is setup of the place when it takes so long."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", action="store_true", help="record each case that passes (tests/cases/records)")
    parser.addoption("--record-run", type=int, metavar="N", help="as of run N (default: the latest one)")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("record", default=False):
        _refuse_other_lengths()
        run = config.getoption("record_run", default=None)
        recorder = Recorder(run_by_hand(read_all()) if run is None else run)
        config.pluginmanager.register(recorder, "recorder of cases")


def _refuse_other_lengths() -> None:
    found = [name for name in OTHER_LENGTHS if os.environ.get(name)]
    if found:
        other = f"{', '.join(found)} makes other cases of them than those that are recorded"
        raise pytest.UsageError(f"{other}: unset it, or record nothing (./run cases run --no-record)")


@dataclass
class Timed:
    """What is known of a case that is running: seconds by phase. `first`: on its cluster in this session. `made`: of
    its setup the seconds of what it made for all of its module or session, as nobody before it has wanted that.
    `setup`: of its place up to here, where it had a part in that, which is not its own time."""

    place: str
    first: bool
    seconds: dict[str, float] = field(default_factory=dict)
    made: float = 0.0
    setup: float | None = None


class Recorder:
    def __init__(
        self,
        run: int,
        *,
        directory: Path = RECORDS,
        hash_tree: Callable[[], str] = tree_hash,
        hash_scenario: Callable[[str], str] = lambda case: hashes_now([case])[case],
    ) -> None:
        self._run, self._directory = run, directory
        self._hash_tree, self._hash_scenario = hash_tree, hash_scenario
        self._tree = hash_tree()
        self._setups: dict[str, float] = {}
        self._made: set[str] = set()
        self._timed: dict[str, Timed] = {}
        self._running: Timed | None = None
        self._replaced: dict[str, dict[Path, bytes | None]] = {}
        """Place → what its cases have written in this session → what was there before."""
        self._unknown: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.begin(item.nodeid, place_of(item))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        began = time.monotonic()
        value = yield
        if fixturedef.scope != "function":
            self.make(f"{fixturedef.baseid}::{fixturedef.argname}", time.monotonic() - began)
        return value

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.hear(report.nodeid, str(report.when), report.duration, passed=report.passed)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._unknown:
            names = ", ".join(self._unknown)
            terminalreporter.write_line(f"the sources have changed meanwhile, not recorded: {names}", red=True)
        terminalreporter.write_line(f"recorded as of run {self._run}: {sum(map(len, self._replaced.values()))}")

    # --- what the hooks tell, and what is made of it ---

    def begin(self, case: str, place: str) -> None:
        self._running = self._timed[case] = Timed(place, first=place not in self._setups)
        self._setups.setdefault(place, 0.0)

    def make(self, fixture: str, seconds: float) -> None:
        """For all of a module or session. One that is made again, of another parameter, belongs to its case, which
        makes it whoever was there before."""
        if self._running is not None and fixture not in self._made:
            self._running.made += seconds
        self._made.add(fixture)

    def hear(self, case: str, phase: str, seconds: float, *, passed: bool) -> None:
        """Of one phase of a case; the last one, when all have passed, writes the record."""
        timed = self._timed.get(case)
        if timed is None:
            return
        if not passed:
            del self._timed[case]
            if phase == "teardown":
                self._take_back(timed.place)
            return
        timed.seconds[phase] = seconds
        if phase == "setup":
            self._set_up(timed)
        if phase == "teardown":
            self._record(case, self._timed.pop(case))

    def _set_up(self, timed: Timed) -> None:
        """Whichever case wants all that its place has, has paid for all of it: its setup is the sum."""
        own = timed.seconds["setup"]
        of_place = own if timed.first else timed.made
        if timed.first or of_place >= LARGE_SETUP:
            self._setups[timed.place] += of_place
            timed.setup = self._setups[timed.place]
            timed.seconds["setup"] = max(0.0, own - of_place)

    def _record(self, case: str, timed: Timed) -> None:
        if self._hash_tree() != self._tree:
            self._unknown.append(case)
            return
        record = Record(
            seconds=round(sum(timed.seconds.values()), 1),
            setup=None if timed.setup is None else round(timed.setup, 1),
            tree=self._tree,
            scenario=self._hash_scenario(case),
            date=datetime.now(UTC).date().isoformat(),
            run=self._run,
        )
        path = path_of(case, self._directory)
        before = path.read_bytes() if path.exists() else None
        self._replaced.setdefault(timed.place, {}).setdefault(path, before)
        write(case, record, self._directory)

    def _take_back(self, place: str) -> None:
        """All records that cases of this place have got in this session."""
        for path, before in self._replaced.pop(place, {}).items():
            if before is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(before)
