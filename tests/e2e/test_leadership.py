"""Scheduler and controller-manager on three control nodes: whoever leads, their pods get the lease back, and that
costs neither a rollout nor a condition.

Each test begins with a cluster that is healthy, and leaves it so, with three replicas.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from ha import (
    CONTROL,
    EVERYBODY,
    WORKER,
    etcd_leader,
    etcd_members,
    nothing_failed,
    three_and_one,
    wait_until_healthy,
)
from harness import Show, TestCluster
from labels import is_control_node, is_worker, label, standbys_that_serve, unlabel
from leases import leader, slot_that_leads
from rollouts import (
    CONTROLLER_MANAGER,
    SCHEDULER,
    adding_flag,
    component,
    condition,
    edit,
    explanations,
    last_good,
    scale,
    template,
)

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(900, func_only=True)]

LEVEL_3 = (CONTROLLER_MANAGER, SCHEDULER)


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-leaders", **three_and_one())
    cluster.up()
    return cluster


@pytest.mark.parametrize("replicas", [1, 5])
def test_level_3_scaled_to_nothing_and_back_is_led_by_its_pods(cluster: TestCluster, show: Show, replicas: int) -> None:
    """A standby on a node without a pod led for ever. Five replicas are more than there are nodes for."""
    with _nothing_was_judged_and_nothing_failed(cluster) as unjudged:
        show(f"scaled to {replicas}: {_scaled_to_nothing_and_back(cluster, replicas)}")
        _scaled_to_three(cluster)
        unjudged()


@pytest.mark.parametrize("replicas", [1, 5])
def test_after_level_3_was_scaled_to_nothing_and_back_it_rolls_out_and_every_standby_follows(
    cluster: TestCluster, show: Show, replicas: int
) -> None:
    """Each later rollout went back after 90 s, while a standby led. That of one replica comes while there is one."""
    with _nothing_was_judged_and_nothing_failed(cluster) as unjudged:
        show(f"scaled to {replicas}: {_scaled_to_nothing_and_back(cluster, replicas)}")
        if replicas > len(CONTROL):
            _scaled_to_three(cluster)
        unjudged()
        _rolls_out_and_every_standby_follows(cluster, f"--v={replicas}", CONTROL)
        _scaled_to_three(cluster)
        unjudged()


def test_a_standby_that_leads_on_a_node_that_a_label_made_gives_way_as_well(cluster: TestCluster, show: Show) -> None:
    """Its kubelet may not read the Secrets of pods that it does not have: yet its standbys follow those of others."""
    wait_until_healthy(cluster)
    before = _judged(cluster)
    with cluster.probed(1200, inside=WORKER) as reports, _no_pods_on(cluster, WORKER):
        label(cluster, WORKER)
        cluster.wait("it is a control node", lambda: is_control_node(cluster, WORKER), seconds=400)
        wait_until_healthy(cluster)
        _rolls_out_and_every_standby_follows(cluster, "--v=3", EVERYBODY)
        _scaled_to_nothing(cluster)
        _standbys_lead_on(cluster, WORKER)
        show(f"scaled to 3 while {WORKER} leads: {_scaled_so_that_pods_lead(cluster, 3)}")
        _no_standby_is_left(cluster)
        _rolls_out_and_every_standby_follows(cluster, "--v=4", EVERYBODY)
        wait_until_healthy(cluster)
        unlabel(cluster, WORKER)
        cluster.wait("it is a worker again", lambda: is_worker(cluster, WORKER), seconds=400)
        assert _judged(cluster) == before
    nothing_failed(reports[0])
    assert etcd_members(cluster, "n1") == set(CONTROL)
    wait_until_healthy(cluster)


@contextmanager
def _nothing_was_judged_and_nothing_failed(cluster: TestCluster) -> Iterator[Callable[[], None]]:
    """During the block, from a healthy cluster on; what is yielded says at any moment that no rollout was judged."""
    wait_until_healthy(cluster)
    before = _judged(cluster)

    def unjudged() -> None:
        assert _judged(cluster) == before

    with cluster.probed(1200, inside=WORKER) as reports:
        yield unjudged
    nothing_failed(reports[0])
    assert etcd_leader(cluster) in CONTROL
    assert etcd_members(cluster, "n1") == set(CONTROL)


def _judged(cluster: TestCluster) -> dict[str, Any]:
    """All that was ever said of rollouts that failed. The conditions with their times: nor did they come and go."""
    conditions = {kind: condition(cluster, kind) for kind in ("RolledBack", "RolloutFailed")}
    assert {one["status"] for one in conditions.values()} == {"False"}
    return {**conditions, **{workload: explanations(cluster, workload) for workload in LEVEL_3}}


def _scaled_to_nothing_and_back(cluster: TestCluster, replicas: int) -> str:
    """Led by standbys, then by pods, and by these for good. How long that took, in words."""
    _scaled_to_nothing(cluster)
    # So that no pod comes to where the standby is; five pods come to every node.
    with _no_pods_on(cluster, *({leader(cluster, one) for one in LEVEL_3} if replicas == 1 else ())):
        took = _scaled_so_that_pods_lead(cluster, replicas)
        _no_standby_is_left(cluster)
    return took


def _scaled_to_nothing(cluster: TestCluster) -> None:
    for workload in LEVEL_3:
        scale(cluster, workload, 0)
    for workload in LEVEL_3:
        _is_led_by(cluster, workload, "standby")


def _scaled_so_that_pods_lead(cluster: TestCluster, replicas: int) -> str:
    """How long that took, in words."""
    for workload in LEVEL_3:
        scale(cluster, workload, replicas)
    began, took = time.monotonic(), []
    for workload in LEVEL_3:
        _is_led_by(cluster, workload, "hosted")
        took.append(f"{component(workload)} is led by a pod after {time.monotonic() - began:.1f} s")
    return ", ".join(took)


def _is_led_by(cluster: TestCluster, workload: str, slot: str) -> None:
    what = f"{workload} is led by its {slot} slot"
    cluster.wait(what, lambda: slot_that_leads(cluster, workload) == slot, seconds=180)


def _scaled_to_three(cluster: TestCluster) -> None:
    for workload in LEVEL_3:
        scale(cluster, workload, 3)
    wait_until_healthy(cluster)
    for workload in LEVEL_3:
        _is_led_by(cluster, workload, "hosted")


def _no_standby_is_left(cluster: TestCluster) -> None:
    """And none comes back: the pods that lead now go on leading."""
    cluster.wait("no standby is active", lambda: not standbys_that_serve(cluster), seconds=180)
    deadline = time.monotonic() + 30  # longer than any standby waits for a lease
    while time.monotonic() < deadline:
        assert standbys_that_serve(cluster) == []
    for workload in LEVEL_3:
        _is_led_by(cluster, workload, "hosted")


@contextmanager
def _no_pods_on(cluster: TestCluster, *nodes: str) -> Iterator[None]:
    for node in nodes:
        cluster.kubectl("cordon", node)
    try:
        yield
    finally:
        for node in nodes:
            cluster.kubectl("uncordon", node)


def _standbys_lead_on(cluster: TestCluster, node: str) -> None:
    """Those of all other control nodes are killed for as long as they would lead."""
    with ExitStack() as killing:
        for other in CONTROL:
            killing.enter_context(_level_3_killed_again_and_again(cluster, other))
        for workload in LEVEL_3:
            cluster.wait(f"{node} leads {workload}", lambda w=workload: leader(cluster, w) == node, seconds=180)
    assert {slot_that_leads(cluster, workload) for workload in LEVEL_3} == {"standby"}


@contextmanager
def _level_3_killed_again_and_again(cluster: TestCluster, node: str) -> Iterator[None]:
    unit = "kill-level-3"
    loop = "while :; do pkill -KILL -x kube-scheduler; pkill -KILL -x kube-controller; sleep 1; done"
    cluster.shell(node, f'systemd-run --quiet --collect --unit={unit} sh -c "{loop}"')
    try:
        yield
    finally:
        cluster.shell(node, f"systemctl stop {unit} 2>/dev/null || true")


def _rolls_out_and_every_standby_follows(cluster: TestCluster, flag: str, nodes: tuple[str, ...]) -> None:
    good = {workload: last_good(cluster, workload) for workload in LEVEL_3}
    for workload in LEVEL_3:
        edit(cluster, workload, adding_flag(workload, flag))
    for workload in LEVEL_3:
        cluster.wait(
            f"the new revision of {workload} is good", lambda w=workload: last_good(cluster, w) != good[w], seconds=300
        )
        assert flag in template(cluster, workload)["spec"]["containers"][0]["command"]
        for node in nodes:
            current = f"grep -c -e '{flag}\"' /var/lib/autarky/standby/{component(workload)}/current/pod.json || true"
            cluster.wait(
                f"the standby of {workload} on {node} is of the new revision",
                lambda n=node, c=current: cluster.shell(n, c).strip() == "1",
                seconds=180,
            )
