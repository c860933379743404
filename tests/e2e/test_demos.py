"""The demonstrations of docs/demos.md: bash runs each block of commands exactly as it is written there, one after the
other on one cluster, and what the page says that one sees is there when the block has ended.

A block ends at the first command that fails; of a pipeline the last one counts, as on a terminal. The waits are the
page's own. What the file of the page calls lab-1 has the name of the tests' cluster, and `autarky` knows no other.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from demonstrations import PAGE, PARTS, Part
from documented import page, steps_below
from harness import TestCluster, one_node
from recoveries import typed

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.chain,
    pytest.mark.rotation,
    pytest.mark.needs("v1.37.1"),
    pytest.mark.timeout(900, func_only=True),
]

DOCUMENT = page(PAGE)
EXAMPLE = "examples/lab-1.yaml"
"""From the checkout, where the reader is."""


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    return make_cluster("t-demos", **one_node())


@pytest.fixture(scope="module")
def desk(cluster: TestCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the reader types. The cluster is up, as by `./run up`."""
    directory = tmp_path_factory.mktemp("desk")
    file = (Path(__file__).parents[2] / EXAMPLE).read_text()
    named, count = re.subn(r"^  name: lab-1$", f"  name: {cluster.name}", file, flags=re.MULTILINE)
    assert count == 1, f"{EXAMPLE} has another name"
    (directory / EXAMPLE).parent.mkdir()
    (directory / EXAMPLE).write_text(named)
    typed(cluster, directory, f"autarky up -f {EXAMPLE}")
    return directory


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_every_command_works_as_it_is_written_and_shows_what_the_page_says(
    cluster: TestCluster, desk: Path, part: Part
) -> None:
    for step in part.of(steps_below(DOCUMENT, part.heading)):
        said = typed(cluster, desk, step.commands)
        unseen = step.unseen(said)
        assert unseen is None, f"{unseen!r} is not there, or not behind what comes before it:\n{step.commands}\n{said}"
