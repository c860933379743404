"""Upgrades from versions that the product does not have of its own, with release files that `autarky payload release
new` has made (`tests/releases`): a patch release there and back, and two minors, one after the other, never at once.

The tests of each chain build on each other, in order.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harness import TestCluster, one_node
from rollouts import patch_plane, quiet, undisturbed
from skew import skew_is_kept
from upgrades import everything_is_of, version_of
from workloads import a_workload_goes_on

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.needs("v1.37.1"), pytest.mark.timeout(900)]

PATCH_BEFORE, TWO_MINORS_BEFORE = "1.36.3", "1.35.4"
OURS, NEXT = "1.36.4", "1.37.1"


@pytest.fixture(scope="module")
def of_a_patch(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    return _brought_up(make_cluster("t-patch", **one_node(kubernetesVersion=PATCH_BEFORE)))


@pytest.fixture(scope="module")
def of_an_old_minor(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    return _brought_up(make_cluster("t-minors", **one_node(kubernetesVersion=TWO_MINORS_BEFORE)))


def _brought_up(cluster: TestCluster) -> TestCluster:
    cluster.up()
    quiet(cluster)
    return cluster


@pytest.mark.chain("patch")
@pytest.mark.needs(f"v{PATCH_BEFORE}")
def test_a_patch_release_is_an_upgrade_and_its_rollback_as_any_other(of_a_patch: TestCluster) -> None:
    upgraded(of_a_patch, OURS)
    with skew_is_kept(of_a_patch), a_workload_goes_on(of_a_patch), undisturbed(of_a_patch):
        of_a_patch.autarky("upgrade", "rollback", "--cluster", of_a_patch.name, "--yes")
        of_a_patch.wait("it is complete", lambda: version_of(of_a_patch) == f"v{PATCH_BEFORE}", seconds=420)
    everything_is_of(of_a_patch, f"v{PATCH_BEFORE}", follow_within=120)


@pytest.mark.chain("minors")
@pytest.mark.needs(f"v{TWO_MINORS_BEFORE}")
def test_two_minors_at_once_are_refused_with_the_path_and_with_nothing_changed(of_an_old_minor: TestCluster) -> None:
    cluster = of_an_old_minor
    for command in (("upgrade", NEXT), ("upgrade", "check", NEXT)):
        refused = cluster.autarky(*command, "--cluster", cluster.name, check=False)
        assert refused.status == 2, refused
        assert "go to a 1.36 first, then to v1.37.1" in refused.stderr
    patch_plane(cluster, version=f"v{NEXT}")
    cluster.wait("the operator refuses it", lambda: "go to a 1.36 first" in condition_of(cluster), seconds=60)
    patch_plane(cluster, version=f"v{TWO_MINORS_BEFORE}")
    everything_is_of(cluster, f"v{TWO_MINORS_BEFORE}")


@pytest.mark.chain("minors")
@pytest.mark.needs(f"v{TWO_MINORS_BEFORE}")
def test_one_minor_after_the_other_it_gets_there(of_an_old_minor: TestCluster) -> None:
    for version in (OURS, NEXT):
        upgraded(of_an_old_minor, version)


def upgraded(cluster: TestCluster, version: str) -> None:
    quiet(cluster)
    with skew_is_kept(cluster), a_workload_goes_on(cluster), undisturbed(cluster):
        cluster.autarky("upgrade", version, "--cluster", cluster.name, "-o", "plain", timeout=600)
    assert version_of(cluster) == f"v{version}"
    everything_is_of(cluster, f"v{version}")


def condition_of(cluster: TestCluster) -> str:
    path = "jsonpath={.status.conditions[?(@.type=='SpecApplied')].message}"
    return cluster.kubectl("get", "controlplane", "cluster", "-o", path)
