"""Checks before an upgrade, each with a cluster that was prepared for it: all that is wrong is said at once, by the
command and by the operator, and nothing is changed for it. What was refused begins by itself when it is set right.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

import pytest
import unwell
from harness import TestCluster
from rollouts import HOSTED, PROXY, patch_plane, quiet, undisturbed, version_wanted
from slots import SYSTEM

from autarky import places

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.shares("one_node"),
    pytest.mark.rotation,
    pytest.mark.needs("v1.37.1"),
    pytest.mark.timeout(900),
]

NEXT = "v1.37.1"
WRONG: dict[unwell.Unwell, tuple[str, ...]] = {
    unwell.a_removed_flag: ("kube-controller-manager v1.37.1 has no flag --concurrent-service-syncs",),
    unwell.a_removed_gate: ("SidecarContainers",),
    unwell.removed_apis_in_use: (
        f"clients still ask for ipaddresses of {unwell.REMOVED_API}",
        f"there are 1 workloads of {unwell.REMOVED_VERSION}, and {NEXT} cannot read what is stored in that version",
    ),
    unwell.an_expired_certificate: ("certificates have expired",),
    unwell.a_full_disk: ("control nodes with DiskPressure: n1",),
    unwell.a_webhook_that_nothing_answers: ("its Service default/gone does not exist",),
}
"""What is wrong → what is said of it."""
SAID = [said for sentences in WRONG.values() for said in sentences]


@pytest.fixture(scope="module")
def cluster(one_node: TestCluster) -> TestCluster:
    quiet(one_node)
    return one_node


def report(cluster: TestCluster) -> dict[str, Any]:
    found = json.loads(cluster.kubectl("get", "controlplane", "cluster", "-o", "json"))
    upgrade: dict[str, Any] = found["status"].get("upgrade") or {}
    return upgrade


def versions(cluster: TestCluster) -> set[str]:
    return {version_wanted(cluster, workload) for workload in (*HOSTED, PROXY)}


def generations(cluster: TestCluster) -> str:
    return cluster.kubectl(*SYSTEM, "get", "ds,deploy", "-o", "jsonpath={.items[*].metadata.generation}")


def test_everything_that_is_wrong_is_said_at_once_and_nothing_is_changed(cluster: TestCluster) -> None:
    [former] = versions(cluster)
    with ExitStack() as stack:
        for wrong in WRONG:
            stack.enter_context(wrong(cluster))
        before = generations(cluster)
        refused = cluster.autarky("upgrade", NEXT, "--cluster", cluster.name, "-o", "plain", check=False)
        assert refused.status == 2, refused
        assert [said for said in SAID if said not in refused.stderr] == []
        patch_plane(cluster, version=NEXT)
        cluster.wait("the operator refuses it", lambda: report(cluster).get("state") == "Refused", seconds=120)
        message = str(report(cluster)["message"])
        assert [said for said in SAID if said not in message] == []
        patch_plane(cluster, version=former)
        cluster.wait("nobody asks for it", lambda: report(cluster) == {})
        assert generations(cluster) == before
        assert versions(cluster) == {former}
    # All that was in its way is set right again.
    quiet(cluster)
    checked = cluster.autarky("upgrade", "check", NEXT, "--cluster", cluster.name, "-o", "plain").stdout
    assert f"upgrade the control plane from {former} to {NEXT}" in checked


def test_an_image_that_is_missing_refuses_an_edit_which_begins_when_it_is_there(cluster: TestCluster) -> None:
    """Given up when it has begun, it goes back by itself; no request fails meanwhile."""
    [former] = versions(cluster)
    quiet(cluster)
    cluster.autarky("payload", "push", "--cluster", cluster.name, NEXT, timeout=600)
    cluster.shell(unwell.NODE, f"{places.BIN}/ctr -n k8s.io images rm --sync registry.k8s.io/kube-scheduler:{NEXT}")
    with undisturbed(cluster):
        patch_plane(cluster, version=NEXT)
        cluster.wait("the operator refuses it", lambda: report(cluster).get("state") == "Refused", seconds=200)
        message = str(report(cluster)["message"])
        assert f"images that are not on n1: registry.k8s.io/kube-scheduler:{NEXT}" in message
        assert "`autarky payload push 1.37.1`" in message
        assert versions(cluster) == {former}
        cluster.autarky("payload", "push", "--cluster", cluster.name, NEXT, timeout=600)
        cluster.wait("it begins", lambda: version_wanted(cluster, HOSTED[0]) == NEXT, seconds=150)
        said = cluster.autarky("upgrade", "abort", "--cluster", cluster.name, "--yes").stdout
        assert f"the control plane goes back to {former}" in said
        cluster.wait("it is given up", lambda: report(cluster) == {} and versions(cluster) == {former}, seconds=300)
    quiet(cluster)
