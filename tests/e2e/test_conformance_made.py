"""A release that the product does not have of its own, and that `autarky payload release new` has made with all its
groups (`tests/releases`), is one as any other: upstream's own tests of that version pass on a cluster of it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conformance import GROUP, put_images, upstream_tests
from ha import three_and_one, wait_until_healthy
from harness import Show, TestCluster
from test_conformance import FOCUS, assert_passed

MADE = "v1.36.3"
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.rotation,
    pytest.mark.needs(MADE, group=GROUP),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-conformance-3", kubernetesVersion=MADE, **three_and_one())
    cluster.up()
    put_images(cluster)
    wait_until_healthy(cluster)
    return cluster


def test_the_focus_list_passes_on_a_release_that_was_made(
    cluster: TestCluster, show: Show, tmp_path: Path, seed: str
) -> None:
    with upstream_tests(cluster, FOCUS, tmp_path, seed) as run:
        found = run.outcomes()
    assert_passed(found)
    assert run.process.returncode == 0
    show(f"{sum(one.is_spec for one in found)} of {len(FOCUS)} specs passed on {MADE}")
