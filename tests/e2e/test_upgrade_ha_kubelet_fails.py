"""An upgrade of three control nodes and a worker on which the kubelet of one control node exits whenever it is started:
that node goes back by itself, the command and the plan stop there and say why, and the kubelets of the others are left
alone. With the right image, and asked for again, all get it; and then all goes back.

The node is the first one of the control nodes that gets its turn, so that two others would follow: their kubelets are
what must not be touched. The worker has its turn before them.

The tests of this module build on each other, in order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from ha import CONTROL, EVERYBODY, WORKER, nothing_failed, wait_until_healthy
from harness import Show, TestCluster
from kubelets import (
    BACK_SECONDS,
    CURRENT,
    WENT_BACK,
    bring_program,
    forget_generations,
    is_ready,
    kubelet_of,
    kubelet_process,
    orders_given,
    report_of,
    says_by_an_event,
    trial,
    uptime,
)
from level_0 import restarts
from rollouts import condition, patch_plane, quiet
from skew import skew_is_kept
from slots import events_by_name
from upgrades import everything_is_of, kubelets, plane_status, unchanged_containers, version_of
from workloads import a_workload_goes_on, never_drained

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.chain,
    pytest.mark.shares("three_and_one"),
    pytest.mark.rotation,
    pytest.mark.needs("v1.37.1"),
    pytest.mark.timeout(900),
]

FORMER, NEXT = "v1.36.4", "v1.37.1"
EXITS = "return 1;"
ITS_WORDS = "this one never works"
"""Of the kubelet that exits (`bring_program`)."""
OTHERS_SECONDS = 30.0
"""In which the next node would have got its turn, and begun: each gets it 10 s after the one before has ended."""
Containers = dict[str, tuple[str, int]]


@pytest.fixture(scope="module")
def cluster(three_and_one: TestCluster) -> Iterator[TestCluster]:
    """No node is drained from the first test to the last: with another policy between them, what has failed would be
    tried again."""
    quiet(three_and_one)
    with never_drained(three_and_one):
        yield three_and_one


def in_turn(cluster: TestCluster) -> list[str]:
    """The control nodes, as the operator lets their kubelets go: who has had fewer orders first, then by name."""
    return sorted(CONTROL, key=lambda name: (orders_given(cluster, name), name))


@dataclass(frozen=True)
class Trial:
    """began: by the clock of the host's script. containers: of all nodes, right after that."""

    began: float
    containers: Containers


@contextmanager
def trials_are_noted(cluster: TestCluster) -> Iterator[dict[str, dict[str, Trial]]]:
    """Node → order → its trial; of all in the block, as the hosts' disks say."""
    found: dict[str, dict[str, Trial]] = {}
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            for name in EVERYBODY:
                seen = trial(cluster, name)
                if seen is not None and seen[0] not in found.get(name, {}):
                    found.setdefault(name, {})[seen[0]] = Trial(seen[1], restarts(cluster))

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        try:
            yield found
        finally:
            over.set()
        watching.result()


def left_alone(cluster: TestCluster, names: list[str]) -> dict[str, tuple[str, int]]:
    """Node → its kubelet's process, and how many orders it has had."""
    return {name: (kubelet_process(cluster, name), orders_given(cluster, name)) for name in names}


def in_force(cluster: TestCluster, name: str) -> tuple[str, str]:
    """The generation, and the program of the kubelet that runs."""
    running = "readlink /proc/$(systemctl show kubelet --property=MainPID --value)/exe"
    found = cluster.shell(name, f"readlink /var/lib/autarky/kubelet/current; {running}").split()
    return found[0], found[1]


def failed(cluster: TestCluster) -> dict[str, str]:
    """Node → why, of those whose kubelet has failed, as the ControlPlane says."""
    return {one["node"]: one["why"] for one in plane_status(cluster)["kubelets"].get("failed", [])}


def test_a_kubelet_that_exits_on_one_control_node_stops_the_plan_and_touches_no_other(
    cluster: TestCluster, show: Show
) -> None:
    wait_until_healthy(cluster)
    assert kubelets(cluster) == dict.fromkeys(EVERYBODY, FORMER)
    bad, *rest = in_turn(cluster)
    forget_generations(cluster, NEXT, bad)  # of an upgrade by another module
    bring_program(cluster, NEXT, EXITS, bad)
    former, others, of_worker = in_force(cluster, bad), left_alone(cluster, rest), kubelet_process(cluster, WORKER)
    said_before, unchanged = events_by_name(cluster, WENT_BACK), unchanged_containers(cluster)
    with (
        skew_is_kept(cluster),
        cluster.probed(850, inside=WORKER) as reports,
        a_workload_goes_on(cluster, least=120, sets_drain=False),
        trials_are_noted(cluster) as trials,
    ):
        command = ("upgrade", NEXT, "--cluster", cluster.name, "-o", "plain")
        ended = cluster.autarky(*command, check=False, timeout=750)
        assert ended.status == 2, (ended, {name: list(found) for name, found in trials.items()})
        took = _until_it_is_back(cluster, bad, trials)
        show(f"{bad} was back and Ready {took:.0f} s after the trial of its kubelet began")
        assert took <= BACK_SECONDS

        time.sleep(OTHERS_SECONDS)
        assert sorted(trials) == sorted([bad, WORKER]), {name: list(found) for name, found in trials.items()}
        [tried] = trials[bad].values()
        assert left_alone(cluster, rest) == others
        changed = _changed(tried.containers, restarts(cluster))
        assert not changed, f"since the kubelet of {bad} was on trial: {changed}"
    nothing_failed(reports[0])

    assert in_force(cluster, bad) == former
    assert kubelets(cluster) == {**dict.fromkeys(CONTROL, FORMER), WORKER: NEXT}
    of_it = report_of(cluster, WORKER)
    assert (of_it["state"], of_it["version"]) == ("Done", NEXT), of_it
    assert kubelet_process(cluster, WORKER) != of_worker
    assert unchanged_containers(cluster) == unchanged

    why = _is_reported(cluster, bad, said_before)
    _is_in_the_last_words(ended.stderr, bad, why)
    _is_in_the_plan(cluster, bad, rest, why)
    wait_until_healthy(cluster)


def _until_it_is_back(cluster: TestCluster, bad: str, trials: dict[str, dict[str, Trial]]) -> float:
    """Seconds since its trial began."""

    def is_back() -> bool:
        said = report_of(cluster, bad)
        return said.get("state") == "WentBack" and kubelet_of(cluster, bad) == FORMER and is_ready(cluster, bad)

    cluster.wait(f"{bad} has its former kubelet, and is Ready", is_back, seconds=2 * BACK_SECONDS)
    until = uptime()
    assert bad in trials, f"nobody saw its trial: {list(trials)}"
    return until - min(one.began for one in trials[bad].values())


def _changed(before: Containers, after: Containers) -> dict[str, Any]:
    names = sorted(before.keys() | after.keys())
    return {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}


def _is_reported(cluster: TestCluster, bad: str, said_before: dict[str, str]) -> str:
    """By the Node's annotation and an event; why it went back."""
    said = report_of(cluster, bad)
    assert (said["state"], said["version"]) == ("WentBack", FORMER), said
    assert "interrupted" not in said, said
    why = str(said["why"])
    assert why.startswith("the kubelet has exited "), said
    says_by_an_event(cluster, WENT_BACK, f"the kubelet is {FORMER} again: {why}", said_before, bad)
    new = events_by_name(cluster, WENT_BACK).keys() - said_before.keys()
    assert all(event.startswith(f"{bad}.") for event in new), new
    assert ITS_WORDS in cluster.shell(bad, "cat /var/lib/autarky/kubelet/last-words")
    return why


def _is_in_the_last_words(stderr: str, bad: str, why: str) -> None:
    _, ends, words = stderr.rpartition("upgrade: failed after")
    assert ends, stderr
    assert f"node {bad}: its kubelet is not healthy with Kubernetes {NEXT} ({why})" in words, stderr
    assert ITS_WORDS in words, stderr


def _is_in_the_plan(cluster: TestCluster, bad: str, rest: list[str], why: str) -> None:
    """It is stopped, and says why: the ControlPlane and `upgrade status`."""
    cluster.wait("the operator knows", lambda: failed(cluster) == {bad: why}, seconds=30)
    found = plane_status(cluster)["kubelets"]
    pools = {pool["name"]: pool for pool in found["pools"]}
    stopped = {"name": "control-nodes", "wanted": [NEXT], "done": 0, "total": 3, "stopped": f"{bad}: {why}"}
    assert pools == {
        "control-nodes": stopped,
        "workers": {"name": "workers", "wanted": [NEXT], "done": 1, "total": 1},
    }, found
    assert {one["node"]: one["why"] for one in found["waits"]} == dict.fromkeys(rest, f"{bad} failed before"), found
    assert not found.get("changing"), found
    current = condition(cluster, CURRENT)
    assert (current["status"], current["reason"]) == ("False", "Failed"), current
    assert f"{bad} failed: {why}" in current["message"], current
    said = cluster.autarky("upgrade", "status", "--cluster", cluster.name).stdout
    assert f"kubelets of control-nodes: 0 of 3 have {NEXT}; stopped by {bad}: {why}" in said, said
    assert f"kubelet of {bad} failed: {why}" in said, said
    assert all(f"kubelet of {name} waits: {bad} failed before" in said for name in rest), said


def test_with_the_right_image_and_asked_for_again_all_kubelets_get_it(cluster: TestCluster) -> None:
    """The image alone changes nothing: what failed is not tried again before somebody asks."""
    wait_until_healthy(cluster)
    [(bad, why)] = failed(cluster).items()
    given = {name: orders_given(cluster, name) for name in EVERYBODY}
    with (
        cluster.probed(600, inside=WORKER) as reports,
        a_workload_goes_on(cluster, least=30, sets_drain=False),
    ):
        containers = restarts(cluster)
        cluster.autarky("payload", "push", NEXT, "--cluster", cluster.name, timeout=300)
        assert {name: orders_given(cluster, name) for name in EVERYBODY} == given
        assert failed(cluster) == {bad: why}
        with _asked_for_again(cluster):
            cluster.wait(
                "each kubelet has what is wanted", lambda: condition(cluster, CURRENT)["status"] == "True", seconds=300
            )
        wait_until_healthy(cluster)
        changed = _changed(containers, restarts(cluster))
        assert not changed, changed
    nothing_failed(reports[0])
    everything_is_of(cluster, NEXT, CONTROL, EVERYBODY)
    for name in CONTROL:
        said = report_of(cluster, name)
        assert (said["state"], said["version"]) == ("Done", NEXT), (name, said)
    assert orders_given(cluster, WORKER) == given[WORKER], "the worker had it already"


@contextmanager
def _asked_for_again(cluster: TestCluster) -> Iterator[None]:
    """By another text than before, which is there again once all have what they were asked for."""
    before = _asked(cluster)
    patch_plane(cluster, kubelets={"asked": f"{time.time():.0f}"})
    yield
    patch_plane(cluster, kubelets={"asked": before or None})


def _asked(cluster: TestCluster) -> str:
    return cluster.kubectl("get", "controlplane", "cluster", "-o", "jsonpath={.spec.kubelets.asked}")


def test_then_all_goes_back_and_nobody_notices(cluster: TestCluster) -> None:
    wait_until_healthy(cluster)
    unchanged = unchanged_containers(cluster)
    with (
        skew_is_kept(cluster),
        cluster.probed(850, inside=WORKER) as reports,
        a_workload_goes_on(cluster, least=120, sets_drain=False),
    ):
        cluster.autarky("upgrade", "rollback", "--cluster", cluster.name, "--yes")
        cluster.wait("it is complete", lambda: version_of(cluster) == FORMER, seconds=700, pause=2)
        wait_until_healthy(cluster)
    nothing_failed(reports[0])
    everything_is_of(cluster, FORMER, CONTROL, EVERYBODY)
    assert unchanged_containers(cluster) == unchanged
    cluster.wait("each kubelet has what is wanted", lambda: condition(cluster, CURRENT)["status"] == "True", seconds=60)
    quiet(cluster)
