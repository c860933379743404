"""Power cuts of three control nodes and a worker: of each control node in turn, of all, and with one that stays off.

The tests of this module build on each other, in order: each leaves the cluster healthy.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from ha import (
    CONTROL,
    EVERYBODY,
    WORKER,
    cut,
    etcd_leader,
    etcd_members,
    start,
    survived,
    three_and_one,
    wait_until_healthy,
)
from harness import AGNHOST, Show, TestCluster
from leases import leader, slot_that_leads
from power import Client, Writer
from rollouts import (
    CONTROLLER_MANAGER,
    SCHEDULER,
)
from survival import schedules

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(900)]

ANSWERS_SECONDS = 60.0
"""From power to the first answer: 12 s were measured."""


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-ha-power", **three_and_one())
    cluster.up()
    return cluster


@pytest.mark.parametrize("node", CONTROL)
def test_a_power_cut_of_each_control_node_in_turn(cluster: TestCluster, show: Show, node: str) -> None:
    other = next(name for name in CONTROL if name != node)
    with cluster.probed(inside=WORKER) as from_worker, cluster.probed(inside=other) as from_control:
        time.sleep(2)
        roles = [role for role, led_by in _leaders(cluster).items() if led_by == node]
        cut(cluster, node)
        time.sleep(60)
        start(cluster, node)
        back = wait_until_healthy(cluster)
    show(f"{node} led: {', '.join(roles) or 'nothing'}")
    show(f"cut of {node}: from {WORKER}: {from_worker[0]['verdict']}; from {other}: {from_control[0]['verdict']}")
    kinds = Counter((f["stream"], f["kind"]) for report in (*from_worker, *from_control) for f in report["failures"])
    show(f"{node} was back where it belongs {back:.1f} s after its power; what failed: {dict(kinds)}")
    survived(from_worker[0])
    survived(from_control[0])


def _leaders(cluster: TestCluster) -> dict[str, str]:
    """Which node leads what."""
    workloads = ("deploy/autarky-operator", CONTROLLER_MANAGER, SCHEDULER)
    return {"etcd": etcd_leader(cluster), **{workload: leader(cluster, workload) for workload in workloads}}


@pytest.mark.parametrize("order", [EVERYBODY, EVERYBODY[::-1], ("n2", "w1", "n3", "n1")])
def test_a_power_cut_of_all_started_in_any_order(cluster: TestCluster, show: Show, order: tuple[str, ...]) -> None:
    writer = Writer(Client(cluster))
    with writer.writing():
        time.sleep(2)
        cut(cluster, *EVERYBODY)
    began = time.monotonic()
    for node in order:
        start(cluster, node)
    cluster.wait("the API answers", cluster.api_answers, seconds=120)
    answered = time.monotonic() - began
    show(f"all four cut, started as {', '.join(order)}: /readyz after {answered:.1f} s")
    wait_until_healthy(cluster)
    _nothing_is_lost(writer)


@pytest.mark.parametrize("missing", CONTROL)
def test_a_power_cut_of_all_with_one_control_node_missing(cluster: TestCluster, show: Show, missing: str) -> None:
    left = [node for node in CONTROL if node != missing]
    writer = Writer(Client(cluster))
    with writer.writing():
        time.sleep(2)
        cut(cluster, *EVERYBODY)
    began = time.monotonic()
    start(cluster, *(node for node in EVERYBODY if node != missing))
    cluster.wait("the API answers", cluster.api_answers, seconds=ANSWERS_SECONDS)
    answered = time.monotonic() - began
    schedules(cluster, f"without-{missing}", AGNHOST)
    show(f"all four cut, {missing} stays off: /readyz after {answered:.1f} s, a pod {time.monotonic() - began:.1f} s")
    _everything_is_there_but(cluster, missing, left)
    writer.client = Client(cluster)  # the kubeconfig leads to a node that is there since the API answered
    _nothing_is_lost(writer)
    start(cluster, missing)
    wait_until_healthy(cluster)
    _nothing_is_lost(writer)
    assert etcd_members(cluster, missing) == set(CONTROL)
    assert "up: unchanged" in cluster.up().stderr


def _everything_is_there_but(cluster: TestCluster, missing: str, left: Sequence[str]) -> None:
    """The others do without it, and wait for it: nobody has taken its member from etcd."""
    assert list(cluster.status()["absent"]) == [missing]
    assert etcd_members(cluster, left[0]) == set(CONTROL)
    cluster.wait("a member that is there leads etcd", lambda: etcd_leader(cluster, left) in left)
    for workload in (CONTROLLER_MANAGER, SCHEDULER):
        cluster.wait(f"{workload} leads, and where it says so", lambda w=workload: slot_that_leads(cluster, w))
        assert leader(cluster, workload) in left


def _nothing_is_lost(writer: Writer) -> None:
    assert len(writer.acknowledged) > 20
    assert writer.lost() == set()
