"""Another version of Kubernetes on three control nodes and a worker, and back: node by node, with API servers of two
minors side by side, and nobody notices: no request, no pod, no connection through the load balancers.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from ha import CONTROL, EVERYBODY, WORKER, nothing_failed, wait_until_healthy
from harness import Show, TestCluster
from rollouts import HOSTED, quiet, version_wanted
from skew import SERVERS, skew_is_kept
from upgrades import everything_is_of, kubelets_began_before_the_end, unchanged_containers
from workloads import a_workload_goes_on

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.shares("three_and_one"),
    pytest.mark.rotation,
    pytest.mark.needs("v1.37.1"),
    pytest.mark.timeout(900),
]

NEXT = "v1.37.1"


@pytest.fixture(scope="module")
def cluster(three_and_one: TestCluster) -> TestCluster:
    quiet(three_and_one)
    return three_and_one


def upgrade_status(cluster: TestCluster) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        cluster.autarky("upgrade", "status", "-o", "json", "--cluster", cluster.name).stdout
    )
    return found


@pytest.mark.chain("there-and-back")
def test_the_command_upgrades_three_control_nodes_and_nobody_notices(cluster: TestCluster, show: Show) -> None:
    """Then everything has it, standbys, too, and the next `up` would change nothing of the control plane."""
    wait_until_healthy(cluster)
    former, before = version_wanted(cluster, HOSTED[0]), unchanged_containers(cluster)
    began = time.time()
    with (
        skew_is_kept(cluster) as looks,
        cluster.probed(850, inside=WORKER) as from_worker,
        cluster.probed(850, inside="n2") as from_control,
        a_workload_goes_on(cluster, least=120),
    ):
        said = cluster.autarky("upgrade", NEXT, "--cluster", cluster.name, "-o", "plain", timeout=800)
        wait_until_healthy(cluster)
    show(said.stderr.splitlines()[-1])
    for reports in (from_worker, from_control):
        nothing_failed(reports[0])
    assert (36, 37) in looks.sets[SERVERS], "API servers of two minors were never seen side by side"
    kubelets_began_before_the_end(cluster, began)
    everything_is_of(cluster, NEXT, CONTROL, EVERYBODY)
    planned = cluster.autarky("plan", "--cluster", cluster.name, "-o", "plain").stdout
    assert "apply DaemonSet" not in planned, "the next `up` would take the upgrade back"
    found = upgrade_status(cluster)
    assert (found["version"], found["former"], found["state"]) == (NEXT, former, "Complete")
    assert unchanged_containers(cluster) == before


@pytest.mark.chain("there-and-back")
def test_a_rollback_of_three_control_nodes_is_not_noticed_either(cluster: TestCluster) -> None:
    wait_until_healthy(cluster)
    former, before = str(upgrade_status(cluster)["former"]), unchanged_containers(cluster)
    with (
        skew_is_kept(cluster),
        cluster.probed(850, inside=WORKER) as from_worker,
        cluster.probed(850, inside="n3") as from_control,
        a_workload_goes_on(cluster, least=120),
    ):
        cluster.autarky("upgrade", "rollback", "--cluster", cluster.name, "--yes")
        cluster.wait("it is complete", lambda: upgrade_status(cluster)["version"] == former, seconds=700, pause=2)
        wait_until_healthy(cluster)
    for reports in (from_worker, from_control):
        nothing_failed(reports[0])
    everything_is_of(cluster, former, CONTROL, EVERYBODY)
    assert unchanged_containers(cluster) == before
    quiet(cluster)
