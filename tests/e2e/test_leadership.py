"""Scheduler and controller-manager on three control nodes: whoever leads, their pods get the lease back."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import pytest
from ha import CONTROL, WORKER, etcd_leader, etcd_members, three_and_one, wait_until_healthy
from harness import TestCluster
from rollouts import (
    CONTROLLER_MANAGER,
    SCHEDULER,
    adding_flag,
    component,
    edit,
    explanations,
    last_good,
    leader,
    led_by,
    scale,
    template,
)

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]

LEVEL_3 = (CONTROLLER_MANAGER, SCHEDULER)
_log = logging.getLogger(__name__)


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-leaders", **three_and_one())
    cluster.up()
    return cluster


def test_level_3_scaled_to_nothing_and_back_to_one_is_led_by_its_pods_and_every_standby_follows_them(
    cluster: TestCluster,
) -> None:
    """A standby on a node without a pod led for ever, and each later rollout went back after 90 s."""
    with cluster.probed(900, inside=WORKER) as reports:
        for workload in LEVEL_3:
            scale(cluster, workload, 0)
        for workload in LEVEL_3:
            cluster.wait(f"a standby of {workload} leads", lambda w=workload: led_by(cluster, w) == "standby")
        leaders = {leader(cluster, workload) for workload in LEVEL_3}
        cluster.kubectl("cordon", *leaders)  # so that no pod comes to where the standby is
        for workload in LEVEL_3:
            scale(cluster, workload, 1)
        began = time.monotonic()
        for workload in LEVEL_3:
            cluster.wait(f"the pod of {workload} leads", lambda w=workload: led_by(cluster, w) == "hosted")
        _log.info("scaled to 1, the pods lead after %.1f s", time.monotonic() - began)
        cluster.kubectl("uncordon", *leaders)
        _rolls_out_and_every_standby_follows(cluster, "--v=1")
        for workload in LEVEL_3:
            scale(cluster, workload, 3)
        wait_until_healthy(cluster)
    assert reports[0]["failed"] == 0, reports[0]
    assert etcd_leader(cluster) in CONTROL
    assert etcd_members(cluster, "n1") == set(CONTROL)


def _rolls_out_and_every_standby_follows(cluster: TestCluster, flag: str) -> None:
    good = {workload: last_good(cluster, workload) for workload in LEVEL_3}
    for workload in LEVEL_3:
        edit(cluster, workload, adding_flag(workload, flag))
    for workload in LEVEL_3:
        cluster.wait(
            f"the new revision of {workload} is good", lambda w=workload: last_good(cluster, w) != good[w], seconds=90
        )
        assert explanations(cluster, workload) == []
        assert flag in template(cluster, workload)["spec"]["containers"][0]["command"]
        for node in CONTROL:
            current = f"grep -c -e '{flag}\"' /var/lib/autarky/standby/{component(workload)}/current/pod.json || true"
            cluster.wait(
                f"the standby of {workload} on {node} is of the new revision",
                lambda n=node, c=current: cluster.shell(n, c).strip() == "1",
                seconds=180,
            )
