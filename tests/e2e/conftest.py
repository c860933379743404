"""Clusters for the scenarios: each module has its own lab, taken down before and after, or shares one with others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from agreement import all_members_agree
from harness import LANE, Show, TestCluster
from judgement import SLOW
from shared import (
    one_node,
    pytest_collection_modifyitems,
    pytest_runtest_makereport,
    pytest_runtest_setup,
    pytest_runtest_teardown,
    pytest_sessionfinish,
    three_and_one,
)

from cases.recording import pytest_addoption, pytest_configure

__all__ = [  # hooks of pytest, and fixtures
    "one_node",
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_runtest_makereport",
    "pytest_runtest_setup",
    "pytest_runtest_teardown",
    "pytest_sessionfinish",
    "three_and_one",
]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What clients had to wait for, also where nothing failed: nobody is shown the log of a test that has passed."""
    for report in terminalreporter.getreports("passed"):
        lines = {line for _, text in report.sections for line in text.splitlines() if SLOW in line}
        for line in sorted(lines):
            terminalreporter.write_line(f"{report.nodeid}: {line[line.index(SLOW) :]}", yellow=True)


@pytest.fixture(scope="module")
def make_cluster() -> Iterator[Callable[..., TestCluster]]:
    """Gives clusters by name and spec; all of them are gone afterwards. Before one goes, the members of its etcd agree,
    also where something has failed: they may be why."""
    with ExitStack() as afterwards:

        def make(name: str, **spec: Any) -> TestCluster:
            cluster = TestCluster(f"{name}{LANE}", spec)
            cluster.down()
            cluster.before_it_goes = partial(all_members_agree, cluster)
            afterwards.callback(cluster.down)
            return cluster

        yield make


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Show:
    """Print although nothing failed: times are what some scenarios are read for."""

    def printed(text: str) -> None:
        with capsys.disabled():
            print(f"\n{text}", flush=True)  # noqa: T201

    return printed
