"""Upgrades that do not go as planned, on one node: a step that fails, tried again when that is repaired; a way back
that somebody has begun by hand in the wrong order; and a first step that somebody has taken by hand.

The tests of this module build on each other, in order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from harness import TestCluster, one_node
from rollouts import (
    API,
    CONTROLLER_MANAGER,
    PROXY,
    SCHEDULER,
    explanations,
    quiet,
    set_image,
    undisturbed,
    version_wanted,
)
from skew import skew_is_kept
from upgrades import everything_is_of, reasons, state_of, version_of

from autarky.model.versions import Version
from autarky.payload import find_binary, load_release

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.chain,
    pytest.mark.rotation,
    pytest.mark.needs("v1.37.1"),
    pytest.mark.timeout(900),
]

NEXT, FORMER = "v1.37.1", "v1.36.4"
KEPT = "/root/program.kept"


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-upgrade-fails", kubernetesVersion=FORMER, **one_node())
    cluster.up()
    cluster.autarky("payload", "push", NEXT, "--cluster", cluster.name, timeout=600)
    return cluster


@contextmanager
def a_damaged_program(cluster: TestCluster, name: str, version: str) -> Iterator[None]:
    """Of that version, in every copy of it in the runtime's store: a disk that lies. In another inode, since what a
    test host is made of may be shared."""
    program = find_binary(load_release(Version.parse(version)), name)
    assert program is not None
    wanted = hashlib.sha256(program.path.read_bytes()).hexdigest()
    damage = f"""\
set -eu
: >{KEPT}.paths
for file in $(find /var/lib/containerd -type f -name {name}); do
    [ "$(sha256sum <$file)" = "{wanted}  -" ] || continue
    cp $file {KEPT}
    echo $file >>{KEPT}.paths
    echo damaged >$file.next
    chmod 755 $file.next
    mv $file.next $file
done
cat {KEPT}.paths
"""
    repair = (
        f"for file in $(cat {KEPT}.paths); do cp {KEPT} $file.next; chmod 755 $file.next; mv $file.next $file; done"
    )
    assert cluster.shell("n1", damage).split(), f"{name} {version} is nowhere in the runtime's store"
    try:
        yield
    finally:
        cluster.shell("n1", repair)


def test_a_step_that_fails_goes_back_and_asked_for_again_the_upgrade_ends(cluster: TestCluster) -> None:
    """The plan stops there, and says why; what has come before stays. No request fails."""
    quiet(cluster)
    ask = ("upgrade", NEXT, "--cluster", cluster.name, "-o", "plain")
    with skew_is_kept(cluster), undisturbed(cluster):
        with a_damaged_program(cluster, "kube-scheduler", NEXT):
            stopped = cluster.autarky(*ask, check=False, timeout=600)
        assert stopped.status == 2, stopped
        assert f"the upgrade to {NEXT} has stopped: kube-scheduler {NEXT} was rolled back" in stopped.stderr
        assert state_of(cluster) == "Stopped kube-scheduler"
        assert (version_wanted(cluster, SCHEDULER), version_of(cluster)) == (FORMER, FORMER)
        assert {version_wanted(cluster, workload) for workload in (API, CONTROLLER_MANAGER, PROXY)} == {NEXT}
        assert len(explanations(cluster, SCHEDULER)) == 1
        columns = cluster.kubectl("get", "controlplane").splitlines()[-1].split()
        assert columns[1:3] == [FORMER, NEXT]
        assert "Stopped" in columns
        cluster.autarky(*ask, timeout=600)
    everything_is_of(cluster, NEXT)
    assert (version_of(cluster), state_of(cluster)) == (NEXT, "")
    assert reasons(cluster) >= {"Upgraded", "UpgradeComplete"}


def test_a_way_back_that_was_begun_by_hand_in_the_wrong_order_is_still_a_way_back(cluster: TestCluster) -> None:
    quiet(cluster)
    with skew_is_kept(cluster), undisturbed(cluster):
        before = len(explanations(cluster, API))
        set_image(cluster, API, FORMER)
        cluster.wait("it is taken back", lambda: len(explanations(cluster, API)) > before, seconds=60)
        assert "older than" in explanations(cluster, API)[-1]
        cluster.autarky("upgrade", "rollback", "--cluster", cluster.name, "--yes")
        cluster.wait("it is complete", lambda: version_of(cluster) == FORMER, seconds=420)
    everything_is_of(cluster, FORMER)


def test_a_step_that_was_taken_by_hand_is_one_of_the_plan(cluster: TestCluster) -> None:
    quiet(cluster)
    with skew_is_kept(cluster), undisturbed(cluster):
        set_image(cluster, API, NEXT)
        quiet(cluster)
        generation = cluster.kubectl("-n", "kube-system", "get", API, "-o", "jsonpath={.metadata.generation}")
        cluster.autarky("upgrade", NEXT, "--cluster", cluster.name, "-o", "plain", timeout=600)
    everything_is_of(cluster, NEXT)
    assert cluster.kubectl("-n", "kube-system", "get", API, "-o", "jsonpath={.metadata.generation}") == generation
