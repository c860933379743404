"""Upstream's own end-to-end tests: some quick specs of its conformance suite, on three control nodes and a worker.

Also with the power of a control node cut in the midst. No spec has a pod there: a pod does not outlive its machine, and
what upstream's tests ask is whether the cluster serves on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from conformance import GROUP, VERSION, put_images, upstream_tests
from conformance_report import Outcome, complaints, names_in
from ha import cut, etcd_leader, start, three_and_one, wait_until_healthy
from harness import Show, TestCluster
from judgement import LONGEST_OUTAGE_OF_WRITES

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.rotation,
    pytest.mark.needs(VERSION, group=GROUP),
    pytest.mark.timeout(900),
]

FOCUS = names_in(Path(__file__).with_name("conformance_focus.txt"))
BEFORE_AND_AFTER = len(FOCUS) // 3
"""So many specs at least end before the cut, and so many are to begin when it is over."""
SLOWEST = 5


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-conformance", kubernetesVersion=VERSION, **three_and_one())
    cluster.up()
    put_images(cluster)
    wait_until_healthy(cluster)
    return cluster


def test_the_focus_list_passes(cluster: TestCluster, show: Show, tmp_path: Path, seed: str) -> None:
    with upstream_tests(cluster, FOCUS, tmp_path, seed) as run:
        found = run.outcomes()
    _tell(show, found)
    assert_passed(found)
    assert run.process.returncode == 0


def test_the_focus_list_passes_while_a_control_node_loses_power(
    cluster: TestCluster, show: Show, tmp_path: Path, seed: str
) -> None:
    """Upstream's specs try no write again that goes down with its server: those of that moment have two attempts."""
    node = etcd_leader(cluster)
    cluster.kubectl("cordon", node)
    with upstream_tests(cluster, FOCUS, tmp_path, seed, attempts=2) as run:
        run.wait_until_ended(BEFORE_AND_AFTER)
        before = run.ended()
        cut(cluster, node)
        time.sleep(LONGEST_OUTAGE_OF_WRITES)
        struck = range(before, run.ended() + 1)
        assert run.goes_on(), "it had ended before the cut was over"
        assert struck.stop + BEFORE_AND_AFTER <= len(FOCUS), f"{struck.stop} of {len(FOCUS)} had begun by then"
        found = run.outcomes()
    _tell(show, found)
    show(f"{node} was cut after {before} specs; {struck.stop} had begun when that was over")
    show(f"tried a second time (the first is 0): {run.repeated() or 'none'}")
    assert_passed(found)
    assert run.process.returncode == 0
    assert set(run.repeated()) <= set(struck), "a spec failed at first that had nothing to do with the cut"
    start(cluster, node)
    cluster.kubectl("uncordon", node)
    wait_until_healthy(cluster)


def assert_passed(found: Sequence[Outcome]) -> None:
    wrong = complaints(found, FOCUS)
    assert not wrong, "\n\n".join(wrong)


def _tell(show: Show, found: Sequence[Outcome]) -> None:
    specs = sorted((one for one in found if one.is_spec), key=lambda one: one.seconds, reverse=True)
    show(f"{len(specs)} of {len(FOCUS)} specs in {sum(one.seconds for one in specs):.0f} s; the slowest of them:")
    for one in specs[:SLOWEST]:
        show(f"  {one.seconds:5.1f} s  {one.name}")
