"""An upgrade of three control nodes while one of them is off: none is begun; and one that has begun waits for it before
level 3, since it would come back with standbys that are too old.

The tests of this module build on each other, in order: each leaves n3 as the next one finds it. The cluster is one of
their own: what is checked before an upgrade depends on the versions that a cluster has had.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from ha import CONTROL, EVERYBODY, WORKER, cut, nothing_failed, start, three_and_one, wait_until_healthy
from harness import TestCluster
from rollouts import (
    API,
    CONTROLLER_MANAGER,
    PROXY,
    SCHEDULER,
    judged,
    patch_plane,
    quiet,
    updated_on,
    version_wanted,
)
from skew import skew_is_kept
from slots import SYSTEM
from upgrades import everything_is_of, plane_status, standbys, state_of, version_of

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.chain,
    pytest.mark.rotation,
    pytest.mark.needs("v1.37.1"),
    pytest.mark.timeout(900),
]

NEXT, FORMER = "v1.37.1", "v1.36.4"
OFF, LEFT = "n3", ("n1", "n2")
NOT_READY = f"control nodes that are not Ready: {OFF}"
STAYS_SECONDS = 60.0
"""A revision is good after 40 s, and an operator looks each second while an upgrade is under way."""


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-upgrade-away", kubernetesVersion=FORMER, **three_and_one())
    cluster.up()
    cluster.autarky("payload", "push", NEXT, "--cluster", cluster.name, timeout=600)
    wait_until_healthy(cluster)
    quiet(cluster)
    return cluster


def test_with_a_control_node_off_an_upgrade_is_refused_by_name_and_nothing_is_changed(cluster: TestCluster) -> None:
    """By the check, by the command, and by the operator after an edit."""
    before = generations(cluster)
    loses_its_power(cluster)
    for command in (("upgrade", "check", NEXT), ("upgrade", NEXT)):
        refused = cluster.autarky(*command, "--cluster", cluster.name, "-o", "plain", check=False)
        assert (refused.status, NOT_READY in refused.stderr) == (2, True), refused
    patch_plane(cluster, version=NEXT)
    cluster.wait("the operator refuses it", lambda: state_of(cluster) == "Refused", seconds=120)
    assert NOT_READY in plane_status(cluster)["upgrade"]["message"]
    assert generations(cluster) == before


def test_it_begins_by_itself_when_the_node_is_back_and_waits_for_it_when_that_is_off_again(
    cluster: TestCluster,
) -> None:
    """The API servers of the others follow, with no failed request; nothing else does before the node is back."""
    start(cluster, OFF)
    cluster.wait("the first step is taken", lambda: version_wanted(cluster, API) == NEXT, seconds=300)
    loses_its_power(cluster)
    with skew_is_kept(cluster, without=(OFF,)), nobody_notices(cluster):
        cluster.wait("the others have it", lambda: updated_on(cluster, API) >= set(LEFT), seconds=360)
        judged(cluster)
        cluster.wait(f"it waits for {OFF}", lambda: plane_status(cluster)["upgrade"].get("nodes") == [OFF])
        time.sleep(STAYS_SECONDS)
    assert state_of(cluster) == "Upgrading kube-apiserver"
    assert f"waits for {OFF}" in cluster.autarky("upgrade", "status", "--cluster", cluster.name).stdout
    rest = {workload: version_wanted(cluster, workload) for workload in (CONTROLLER_MANAGER, SCHEDULER, PROXY)}
    assert rest == dict.fromkeys(rest, FORMER)
    assert set(standbys(cluster)[OFF].values()) == {FORMER}


def test_when_the_node_is_back_the_upgrade_ends_and_no_request_fails(cluster: TestCluster) -> None:
    with skew_is_kept(cluster), nobody_notices(cluster):
        start(cluster, OFF)
        cluster.wait("it is complete", lambda: version_of(cluster) == NEXT, seconds=480, pause=2)
        wait_until_healthy(cluster)
    everything_is_of(cluster, NEXT, CONTROL, EVERYBODY, follow_within=180)
    quiet(cluster)


# --- doing and looking -----------------------------------------------------------------------------------


def loses_its_power(cluster: TestCluster) -> None:
    """Until the API says so of the node: what fails while nobody knows it yet is of another scenario."""
    cut(cluster, OFF)
    cluster.kubectl("wait", "--for=condition=Ready=Unknown", f"node/{OFF}", "--timeout=120s")


@contextmanager
def nobody_notices(cluster: TestCluster) -> Iterator[None]:
    """No request fails in the block, from a worker and from a control node."""
    with cluster.probed(850, inside=WORKER) as from_worker, cluster.probed(850, inside=LEFT[0]) as from_control:
        yield
    for reports in (from_worker, from_control):
        nothing_failed(reports[0])


def generations(cluster: TestCluster) -> str:
    return cluster.kubectl(*SYSTEM, "get", "ds,deploy", "-o", "jsonpath={.items[*].metadata.generation}")
