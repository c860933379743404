"""Level 0 on three control nodes and a worker: another kubelet on all of them by `kubectl set image`, one control node
at a time; a bad one that stops at the first, though all pods are of it; and power cuts at random moments of that. The
moments are fresh ones in each run; AUTARKY_SEED makes the same ones again.

The tests of this module build on each other, in order.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from ha import CONTROL, EVERYBODY, RETURN_SECONDS, WORKER, nothing_failed, start, three_and_one, wait_until_healthy
from hand_over_cuts import Cuts
from harness import Show, TestCluster
from kubelets import bring_hosted
from level_0 import (
    DAEMON_SET,
    EXITS,
    FAILED_SECONDS,
    comes_into_force,
    follows,
    hosted_reports,
    nodes_stay_ready,
    set_kubelet,
    watched,
)
from power import Client, Writer
from rollouts import judged, judged_after, last_good, version_wanted
from slots import SYSTEM
from workloads import a_workload_goes_on

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.chain,
    pytest.mark.rotation,
    pytest.mark.needs("v1.37.1"),
    pytest.mark.timeout(600),
]

FORMER, NEXT = "v1.36.4", "v1.37.1"
BAD = "v1.37.90"
UNSEEN_SECONDS = 8.0
"""The most between two looks, beside four nodes that start kubelets."""
LATEST_SECONDS = 60.0
"""After another kubelet is asked for: by then about half of the nodes have it."""
HELD_SECONDS = 60.0
"""After a bad kubelet has failed on one control node: another one that had its turn then would have failed by now.
The operator looks every 10 s at least, an agent every 5 s, and three tries of one that exits take 20 s."""
SHORTEST_OFF, LONGEST_OFF = 2.0, 15.0
"""Seconds without power."""


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    spec = {**three_and_one(), "kubernetesVersion": NEXT.removeprefix("v"), "selfHosted": "0-4"}
    cluster = make_cluster("t-level-0-ha", **spec)
    cluster.up()
    comes_into_force(cluster, NEXT, EVERYBODY, seconds=180)
    wait_until_healthy(cluster)
    cluster.wait("the first one is good", lambda: last_good(cluster, DAEMON_SET), seconds=150)
    cluster.autarky("payload", "push", FORMER, "--cluster", cluster.name, timeout=500)
    follows(cluster, False)
    return cluster


@contextmanager
def one_control_node_at_a_time(cluster: TestCluster) -> Iterator[dict[str, set[str]]]:
    """In each look at most one control node's hosted kubelet is on trial. Gives version → the nodes whose hosted one
    was seen to be of it, on trial or after that, until now."""
    trials, tried = list[list[str]](), dict[str, set[str]]()

    def look() -> None:
        said = hosted_reports(cluster)
        trials.append([name for name in CONTROL if said[name].get("state") == "Proving"])
        for name, one in said.items():
            if one.get("state") in ("Proving", "InForce", "Failed"):
                tried.setdefault(one["version"], set()).add(name)

    with watched("trials", look, pause=0.5, most=UNSEEN_SECONDS):
        yield tried
    assert any(trials), "no trial was seen"
    assert all(len(names) <= 1 for names in trials), [names for names in trials if len(names) > 1]


@pytest.mark.parametrize("version", [FORMER, NEXT])
def test_all_kubelets_change_by_kubectl_set_image_and_nobody_notices(
    cluster: TestCluster, show: Show, version: str
) -> None:
    with (
        cluster.probed(400, inside=WORKER) as reports,
        a_workload_goes_on(cluster, least=30),
        nodes_stay_ready(cluster, EVERYBODY, unseen=UNSEEN_SECONDS),
        one_control_node_at_a_time(cluster),
    ):
        began = time.monotonic()
        set_kubelet(cluster, version)
        comes_into_force(cluster, version, EVERYBODY, seconds=300)
        show(f"{version} on {len(EVERYBODY)} nodes after {time.monotonic() - began:.0f} s")
        wait_until_healthy(cluster)
    nothing_failed(reports[0])


def test_a_bad_kubelet_is_tried_on_one_control_node_alone_and_taken_back(cluster: TestCluster) -> None:
    """And on one worker, whose failure says nothing about control nodes. All pods are of it: nothing but its turn keeps
    a control node from trying it, since nobody takes it back meanwhile."""
    for name in EVERYBODY:
        bring_hosted(cluster, BAD, EXITS, name)
    judged(cluster)
    with (
        cluster.probed(600, inside=WORKER) as reports,
        judged_after(cluster, 30),
        nodes_stay_ready(cluster, EVERYBODY, unseen=UNSEEN_SECONDS),
        one_control_node_at_a_time(cluster) as tried,
    ):
        with judged_after(cluster, 2 * int(FAILED_SECONDS)):
            set_kubelet(cluster, BAD)
            _replace_all_pods(cluster)  # at once: the first one of it would begin its trial after some seconds
            _all_wait_for_the_one_where_it_failed(cluster)
            held = time.monotonic()
            while time.monotonic() < held + HELD_SECONDS:
                assert version_wanted(cluster, DAEMON_SET) == BAD, f"taken back after {time.monotonic() - held:.0f} s"
                time.sleep(2)
            on = tried[BAD].intersection(CONTROL)
            assert len(on) == 1, f"tried on {sorted(on)}: {hosted_reports(cluster)}"
        cluster.wait("it is taken back", lambda: version_wanted(cluster, DAEMON_SET) == NEXT, seconds=120)
        comes_into_force(cluster, NEXT, EVERYBODY, seconds=180)
        wait_until_healthy(cluster)
    nothing_failed(reports[0])


def _replace_all_pods(cluster: TestCluster) -> None:
    cluster.kubectl(*SYSTEM, "delete", "pods", "-l", "k8s-app=kubelet", "--wait=false")


def _all_wait_for_the_one_where_it_failed(cluster: TestCluster) -> None:
    """On one control node the bad one has failed; pods of it wait on all others, and the operator says for what."""
    reports, waits = dict[str, dict[str, Any]](), dict[str, str]()

    def they_wait() -> bool:
        reports.update(hosted_reports(cluster))
        waits.clear()
        waits.update(_said_to_wait(cluster))
        states = {name: reports[name].get("state") for name in CONTROL if reports[name].get("version") == BAD}
        failed = [name for name, state in states.items() if state == "Failed"]
        others = {name for name, state in states.items() if state == "Waiting"}
        if len(failed) != 1 or others != {*CONTROL} - {*failed}:
            return False
        return all(waits.get(name) == f"{failed[0]} failed before" for name in others)

    try:
        cluster.wait(f"{BAD} has failed on one control node, and the others wait", they_wait, seconds=180)
    except AssertionError as error:
        raise AssertionError(f"{error}; the nodes say {reports}, the operator {waits}") from error


def _said_to_wait(cluster: TestCluster) -> dict[str, str]:
    """Node → why its hosted kubelet gets no turn, as the operator says."""
    plane = json.loads(cluster.kubectl("get", "controlplane", "cluster", "-o", "json"))
    hosted = plane.get("status", {}).get("kubelets", {}).get("hosted", {})
    return {one["node"]: one["why"] for one in hosted.get("waits", [])}


def test_pods_that_are_replaced_all_at_once_take_over_one_control_node_at_a_time(cluster: TestCluster) -> None:
    with (
        cluster.probed(400, inside=WORKER) as reports,
        nodes_stay_ready(cluster, EVERYBODY, unseen=UNSEEN_SECONDS),
        one_control_node_at_a_time(cluster),
    ):
        _replace_all_pods(cluster)
        comes_into_force(cluster, NEXT, EVERYBODY, seconds=180)
        wait_until_healthy(cluster)
    nothing_failed(reports[0])


def test_power_cuts_at_random_moments_of_hand_overs_end_with_what_is_wanted(
    cluster: TestCluster, show: Show, seed: str
) -> None:
    show(f"AUTARKY_SEED={seed}")
    random, writer = Random(f"{seed} hand-overs"), Writer(Client(cluster))  # noqa: S311 # no secret
    some = [*random.sample(CONTROL, 2), WORKER]
    rounds = (([random.choice(CONTROL)], FORMER), (some, NEXT), (EVERYBODY, FORMER))
    cuts = Cuts(cluster, len(rounds))
    for names, version in rounds:
        moment, off = random.uniform(0, LATEST_SECONDS), random.uniform(SHORTEST_OFF, LONGEST_OFF)
        before = len(writer.acknowledged)
        with writer.writing():
            set_kubelet(cluster, version)
            at = cuts.cut(version, moment, *names)
        assert len(writer.acknowledged) > before, "nothing was written that could be lost"
        time.sleep(off)
        began = time.monotonic()
        start(cluster, *names)
        cluster.wait("the API answers", writer.client.answers, seconds=RETURN_SECONDS)
        comes_into_force(cluster, version, EVERYBODY, seconds=300)
        wait_until_healthy(cluster)
        took = time.monotonic() - began
        show(f"{version}: cut at {at}; for {off:.1f} s: on all nodes {took:.0f} s later")
        assert writer.lost() == set()
    assert cuts.one_was_in_a_trial, cuts.states
