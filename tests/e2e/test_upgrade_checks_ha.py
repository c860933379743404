"""Checks before an upgrade on three control nodes: with an etcd that would lose its quorum with the next one that does
not answer, nothing is begun.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from ha import CONTROL, etcd_leader, wait_until_healthy
from harness import TestCluster
from rollouts import HOSTED, PROXY, condition, patch_plane, quiet, version_wanted
from slots import SYSTEM
from upgrades import plane_status, state_of

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.shares("three_and_one"),
    pytest.mark.rotation,
    pytest.mark.needs("v1.37.1"),
    pytest.mark.timeout(900),
]

NEXT = "1.37.1"
LACKS_ONE = "etcd has 2 of 3 ready"


@pytest.fixture(scope="module")
def cluster(three_and_one: TestCluster) -> TestCluster:
    quiet(three_and_one)
    return three_and_one


@contextmanager
def hung_again_and_again(cluster: TestCluster, node: str) -> Iterator[None]:
    """Its etcd answers nothing, also where a kubelet starts another one."""
    unit = "hang-etcd"
    loop = "while :; do pkill -x -STOP etcd; sleep 1; done"
    cluster.shell(node, f'systemd-run --quiet --collect --unit={unit} sh -c "{loop}"')
    try:
        yield
    finally:
        cluster.shell(node, f"systemctl stop {unit}; pkill -x -CONT etcd")


def test_a_member_that_does_not_answer_refuses_an_upgrade_and_nothing_is_changed(cluster: TestCluster) -> None:
    """By the command, and by the operator after an edit. When it answers again, nothing is in the way."""
    wait_until_healthy(cluster)
    [former] = {version_wanted(cluster, workload) for workload in (*HOSTED, PROXY)}
    # The images are nothing that this would be refused for.
    cluster.autarky("payload", "push", NEXT, "--cluster", cluster.name, timeout=600)
    before = generations(cluster)
    node = next(one for one in CONTROL if one != etcd_leader(cluster))
    with hung_again_and_again(cluster, node):
        cluster.wait("it is noticed", lambda: condition(cluster, "Ready")["status"] == "False", seconds=120)
        assert LACKS_ONE in condition(cluster, "Ready")["message"]
        refused = cluster.autarky("upgrade", NEXT, "--cluster", cluster.name, "-o", "plain", check=False)
        assert (refused.status, "the control plane is not ready" in refused.stderr) == (2, True), refused
        assert LACKS_ONE in refused.stderr
        patch_plane(cluster, version=f"v{NEXT}")
        cluster.wait("the operator refuses it", lambda: state_of(cluster) == "Refused", seconds=120)
        assert LACKS_ONE in plane_status(cluster)["upgrade"]["message"]
        patch_plane(cluster, version=former)
        cluster.wait("nobody asks for it", lambda: state_of(cluster) == "")
        assert generations(cluster) == before
    wait_until_healthy(cluster)
    quiet(cluster)
    checked = cluster.autarky("upgrade", "check", NEXT, "--cluster", cluster.name, "-o", "plain").stdout
    assert f"upgrade the control plane from {former} to v{NEXT}" in checked


def generations(cluster: TestCluster) -> str:
    return cluster.kubectl(*SYSTEM, "get", "ds,deploy", "-o", "jsonpath={.items[*].metadata.generation}")
