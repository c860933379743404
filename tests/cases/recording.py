"""The plugin of pytest that writes records (`--record`): of cases that passed, by hand, never in CI.

Wired in by tests/e2e/conftest.py. A case passed when its setup, its call and its teardown did. The tree must be the
same from the beginning of the session on, else it is unknown what passed, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cases.changes import hashes_now
from cases.listing import place_of
from cases.records import RECORDS, Record, latest_run, read_all, write
from cases.tree import tree_hash


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", action="store_true", help="record each case that passes (tests/cases/records)")
    parser.addoption("--record-run", type=int, metavar="N", help="as of run N (default: the latest that recorded)")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("record", default=False):
        run = config.getoption("record_run", default=None)
        recorder = Recorder(latest_run(read_all()) if run is None else run)
        config.pluginmanager.register(recorder, "recorder of cases")


@dataclass
class Timed:
    """What is known of a case that is running: seconds by phase; `first`: on its cluster in this session."""

    first: bool
    seconds: dict[str, float] = field(default_factory=dict)


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
        self._places: set[str] = set()
        self._timed: dict[str, Timed] = {}
        self._written = 0
        self._unknown: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.begin(item.nodeid, place_of(item))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.hear(report.nodeid, str(report.when), report.duration, passed=report.passed)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._unknown:
            names = ", ".join(self._unknown)
            terminalreporter.write_line(f"the sources have changed meanwhile, not recorded: {names}", red=True)
        terminalreporter.write_line(f"recorded as of run {self._run}: {self._written}")

    # --- what the hooks tell, and what is made of it ---

    def begin(self, case: str, place: str) -> None:
        self._timed[case] = Timed(first=place not in self._places)
        self._places.add(place)

    def hear(self, case: str, phase: str, seconds: float, *, passed: bool) -> None:
        """Of one phase of a case; the last one, when all have passed, writes the record."""
        timed = self._timed.get(case)
        if timed is None:
            return
        if not passed:
            del self._timed[case]
            return
        timed.seconds[phase] = seconds
        if phase == "teardown":
            self._record(case, self._timed.pop(case))

    def _record(self, case: str, timed: Timed) -> None:
        if self._hash_tree() != self._tree:
            self._unknown.append(case)
            return
        setup = timed.seconds.pop("setup", 0.0)
        record = Record(
            seconds=round(sum(timed.seconds.values()) + (0.0 if timed.first else setup), 1),
            setup=round(setup, 1) if timed.first else None,
            tree=self._tree,
            scenario=self._hash_scenario(case),
            date=datetime.now(UTC).date().isoformat(),
            run=self._run,
        )
        write(case, record, self._directory)
        self._written += 1
