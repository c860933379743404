"""The clusters that modules share: `one_node` and `three_and_one`. A module shares one by the marker
`shares("one_node")`, and has it as the fixture of that name; `sharing` says when it is made, and taken down.

`shares("one_node", up=False)`: the test brings the cluster up itself, and begins with nothing of it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Generator
from functools import partial

import pytest
from agreement import all_members_agree
from ha import three_and_one as of_three
from ha import wait_until_healthy
from harness import LANE, TestCluster
from harness import one_node as of_one
from sharing import Shared, together
from slots import settled

ORDER = {
    "one_node": (
        "test_killed_up",  # makes it
        "test_ownership",  # begins with no edit, and with an operator that has approved its kubelet
        "test_rollouts",
        "test_operator",
        "test_survival",  # reads whole logs: before any power cut
        "test_node_agent",
        "test_smokes",
        "test_restore",  # the kubelet, controllers and all begin again
    ),
    "three_and_one": (
        "test_compromised_worker",  # looks at all that lies on the worker, which others replace
        "test_smokes_ha",
        "test_ha",
    ),
}
SETTLES_SECONDS = 150

CLUSTERS = {
    "one_node": TestCluster(f"t-one-node{LANE}", of_one()),
    "three_and_one": TestCluster(f"t-three{LANE}", of_three()),
}


def _shared(name: str) -> Shared:
    cluster = CLUSTERS[name]

    def settle() -> None:
        if name == "three_and_one":
            wait_until_healthy(cluster)
        else:
            cluster.wait("it is settled", lambda: _is_settled(cluster), seconds=SETTLES_SECONDS)

    def make() -> None:
        cluster.down()
        cluster.up()
        settle()

    return Shared(make, settle, cluster.down, partial(all_members_agree, cluster))


def _is_settled(cluster: TestCluster) -> bool:
    """Also while it cannot be asked."""
    try:
        return settled(cluster)
    except (AssertionError, subprocess.TimeoutExpired, json.JSONDecodeError):
        return False


SHARED = {name: _shared(name) for name in CLUSTERS}


# --- fixtures ------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def one_node() -> TestCluster:
    """One control node."""
    return CLUSTERS["one_node"]


@pytest.fixture(scope="session")
def three_and_one() -> TestCluster:
    """Three control nodes and a worker."""
    return CLUSTERS["three_and_one"]


# --- hooks of pytest -------------------------------------------------------------------------------------


def _place(item: pytest.Item | None) -> str | None:
    marker = None if item is None else item.get_closest_marker("shares")
    return None if marker is None else str(marker.args[0])


def _module(item: pytest.Item) -> str:
    return item.path.stem


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = together(items, _place, _module, ORDER)


@pytest.hookimpl(wrapper=True, trylast=True)  # within what captures and logs
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Before the test's fixtures."""
    marker = item.get_closest_marker("shares")
    if marker is not None:
        SHARED[marker.args[0]].begin(_module(item), **marker.kwargs)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    place = _place(item)
    if place is not None and report.failed:
        SHARED[place].test_failed()
    return report


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """After the test's fixtures, and after those of its module where it is the last one."""
    place = _place(item)
    try:
        return (yield)
    finally:
        if place is not None and place != _place(nextitem):
            SHARED[place].last_module_ended()
        elif place is not None and nextitem is not None and _module(item) != _module(nextitem):
            SHARED[place].module_ended()


def pytest_sessionfinish() -> None:
    """Of a run that was stopped in the middle."""
    for shared in SHARED.values():
        shared.end()
