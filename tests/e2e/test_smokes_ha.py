"""Of what the rotation does at length with three control nodes and a worker, one round in every run of CI: a server
that hangs.
"""

from __future__ import annotations

import json
import time

import pytest
from balancers import connecting, has_left, holds
from ha import EVERYBODY, LONGEST_OUTAGE, WORKER, nothing_lost, wait_until_healthy
from harness import Show, TestCluster

pytestmark = [pytest.mark.e2e, pytest.mark.shares("three_and_one"), pytest.mark.timeout(600)]

HANGS = "n2"
SERVER = f"{HANGS}-hosted"


@pytest.fixture(scope="module")
def cluster(three_and_one: TestCluster) -> TestCluster:
    return three_and_one


def test_a_server_that_hangs_leaves_every_load_balancer_and_is_named(cluster: TestCluster, show: Show) -> None:
    """SIGSTOP: it accepts, and never answers."""
    wait_until_healthy(cluster)
    cluster.wait("each holds it", lambda: all(holds(cluster, host, SERVER) for host in EVERYBODY))
    try:
        with cluster.probed(inside=WORKER) as reports, connecting(cluster, EVERYBODY) as met:
            time.sleep(2)  # so that there is a before
            cluster.shell(HANGS, "pkill -STOP -x kube-apiserver")
            cluster.wait("it has left every load balancer", lambda: _has_left_all(cluster), seconds=10)
            cluster.wait("doctor names it", lambda: _is_named(cluster), seconds=90)
            time.sleep(5)  # for what was cut, and comes again
    finally:
        cluster.shell(HANGS, "pkill -CONT -x kube-apiserver || true")
    show("; ".join(f"new connections on {seen}" for seen in met.values()))
    assert [str(seen) for seen in met.values() if seen.outage > LONGEST_OUTAGE] == []
    nothing_lost(reports[0])
    wait_until_healthy(cluster)


def _has_left_all(cluster: TestCluster) -> bool:
    return all(has_left(cluster, host, SERVER) for host in EVERYBODY)


def _is_named(cluster: TestCluster) -> bool:
    said = cluster.autarky("doctor", "--cluster", cluster.name, "-o", "json", check=False).stdout
    return (HANGS, "an API server hangs") in {(one["subject"], one["what"]) for one in json.loads(said)}
