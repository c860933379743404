"""The hash of a scenario changes with what the test does, and with nothing else."""

from __future__ import annotations

import pytest

from cases.scenario import name_of_test, scenario_hashes

MODULE = '''
"""A module."""

import time

import pytest
from ha import cut, start
from harness import TestCluster

from autarky.render import files
from autarky.render.node import GIVEN

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

SECONDS = 20
"""Long enough."""
WHERE = files.CURRENT
NODES = ("n1", "n2")
UNUSED = 1


@pytest.fixture(scope="module")
def cluster(make_cluster):
    return make_cluster("t", nodes=NODES)


@pytest.fixture(autouse=True)
def _begins_settled(cluster):
    assert cluster


def test_one(cluster: TestCluster) -> None:
    """A sentence."""
    cut(cluster, "n1")
    _rest()


def _rest():
    time.sleep(SECONDS)  # a while
    assert WHERE != GIVEN


@pytest.mark.rotation
@pytest.mark.parametrize("node", NODES)
def test_two(cluster, node):
    start(cluster, node)


class TestGroup:
    size = 3

    def test_three(self):
        assert self.size
'''


def changed(old: str, new: str) -> set[str]:
    """The tests whose hash is another after that change of the module."""
    assert old in MODULE
    before, after = scenario_hashes(MODULE), scenario_hashes(MODULE.replace(old, new))
    assert before.keys() == after.keys()
    return {name for name in before if before[name] != after[name]}


def test_every_test_has_a_hash_those_of_classes_too() -> None:
    found = scenario_hashes(MODULE)
    assert found.keys() == {"test_one", "test_two", "TestGroup::test_three"}
    assert len(set(found.values())) == 3
    assert all(len(one) == 12 for one in found.values())


ALL = {"test_one", "test_two", "TestGroup::test_three"}


@pytest.mark.parametrize(
    ("old", "new", "touched"),
    [
        ('cut(cluster, "n1")', 'cut(cluster, "n2")', {"test_one"}),
        ("SECONDS = 20", "SECONDS = 30", {"test_one"}),
        ("time.sleep(SECONDS)", "time.sleep(2 * SECONDS)", {"test_one"}),
        ('NODES = ("n1", "n2")', 'NODES = ("n1",)', ALL),
        ('make_cluster("t"', 'make_cluster("u"', ALL),
        ("assert cluster\n", "assert cluster.up()\n", ALL),
        ("from ha import cut, start", "from ha import start\nfrom power import cut", {"test_one"}),
        ('parametrize("node", NODES)', 'parametrize("node", NODES[:1])', {"test_two"}),
        ("size = 3", "size = 4", {"TestGroup::test_three"}),
        ("files.CURRENT", "files.FORMER", {"test_one"}),
    ],
)
def test_what_the_test_reaches_counts(old: str, new: str, touched: set[str]) -> None:
    assert changed(old, new) == touched


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('    """A sentence."""', '    """Another."""'),
        ('"""Long enough."""', ""),
        ("# a while", "# no time at all"),
        ("UNUSED = 1", "UNUSED = 2"),
        ("timeout(900)", "timeout(1800)"),
        ("@pytest.mark.rotation\n", ""),
        ("@pytest.mark.rotation\n", '@pytest.mark.rotation(alone=True)\n@pytest.mark.needs("v1.37.1")\n'),
        ("from ha import cut, start", "from ha import (\n    start,\n    cut,\n)"),
        ("from autarky.render import files", "from autarky.hosts import paths as files"),
        ("from autarky.render.node import GIVEN", "from autarky.places import GIVEN"),
        ("def test_two(cluster, node):", "def test_two(\n    cluster,\n    node,\n):"),
    ],
)
def test_words_layout_and_when_it_runs_do_not_count(old: str, new: str) -> None:
    assert changed(old, new) == set()


# --- what lies beside ----------------------------------------------------------------------------------


def test_what_lies_beside_counts_for_whoever_reaches_a_name_of_it() -> None:
    plain = scenario_hashes(MODULE)
    assert scenario_hashes(MODULE, {}) == plain
    of_start = MODULE.replace("from ha import cut, start", "from ha import cut\nfrom own import start")
    before = scenario_hashes(of_start)
    after = scenario_hashes(of_start, {"own.py": "as it is"})
    assert {name for name in ALL if before[name] != after[name]} == {"test_two"}
    assert scenario_hashes(of_start, {"own.py": "as it was"})["test_two"] != after["test_two"]


def test_a_module_that_is_imported_as_a_whole_counts_for_whoever_uses_it() -> None:
    complete = MODULE.replace("import time\n", "import own\nimport time\n").replace(
        "start(cluster", "own.start(cluster"
    )
    before, after = scenario_hashes(complete), scenario_hashes(complete, {"own.py": "as it is"})
    assert {name for name in ALL if before[name] != after[name]} == {"test_two"}


def test_a_data_file_counts_for_whoever_reaches_its_name() -> None:
    reads = MODULE.replace("SECONDS = 20", 'SECONDS = int(open("seconds.txt").read())')
    before, after = scenario_hashes(reads), scenario_hashes(reads, {"seconds.txt": "as it is"})
    assert {name for name in ALL if before[name] != after[name]} == {"test_one"}


def test_a_test_that_got_another_name_has_the_same_hash() -> None:
    renamed = scenario_hashes(MODULE.replace("test_one", "test_uno"))
    assert renamed["test_uno"] == scenario_hashes(MODULE)["test_one"]


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("tests/e2e/test_a.py::test_x", "test_x"),
        ("tests/e2e/test_a.py::test_x[n1]", "test_x"),
        ("tests/e2e/test_a.py::TestY::test_x[a::b]", "TestY::test_x"),
    ],
)
def test_the_name_of_a_test_has_no_parameters(case: str, name: str) -> None:
    assert name_of_test(case) == name
