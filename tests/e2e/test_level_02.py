"""Levels 02-4: the kubelet and the control plane are hosted, etcd is outside of the cluster.

The tests of this module build on each other, in order: the first one moves to these levels.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hand_over_cuts import Cuts
from harness import Show, TestCluster, one_node
from level_0 import (
    EXITS_IN_FORCE,
    comes_back_hosted,
    comes_into_force,
    follows,
    gives_way_to_the_host_s,
    in_force,
    nodes_stay_ready,
    set_kubelet,
)
from power import NODE, Client, Writer, table
from rollouts import judged_after, patch_plane, undisturbed
from workloads import a_workload_goes_on

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.chain,
    pytest.mark.rotation,
    pytest.mark.needs("v1.37.1"),
    pytest.mark.timeout(600),
]

FORMER, NEXT = "v1.36.4", "v1.37.1"
LONGEST_SECONDS = 20.0
"""From `kubectl set image` on: the pod is replaced, waits for its turn, and takes over."""


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    """Made with level 0 on the host, which `up` moves."""
    spec = one_node(kubernetesVersion=NEXT.removeprefix("v"), etcd={"external": {"lab": "etcd1"}})
    cluster = make_cluster("t-level-02", **spec, selfHosted="2-4")
    cluster.up()
    assert in_force(cluster) == "host"
    return cluster


def test_up_moves_the_kubelet_and_the_api_moves_it_back_and_forth(cluster: TestCluster) -> None:
    cluster.spec = {**cluster.spec, "selfHosted": "02-4"}
    with nodes_stay_ready(cluster):
        cluster.up()
        comes_into_force(cluster, NEXT)
    assert cluster.status()["healthy"], cluster.status()
    with nodes_stay_ready(cluster), undisturbed(cluster):
        patch_plane(cluster, selfHosted="2-4")
        cluster.wait("the host's is in force", lambda: in_force(cluster) == "host", seconds=90)
        patch_plane(cluster, selfHosted="02-4")
        comes_into_force(cluster, NEXT, seconds=120)


def test_another_version_comes_by_kubectl_set_image(cluster: TestCluster) -> None:
    comes_into_force(cluster, NEXT)
    cluster.autarky("payload", "push", FORMER, "--cluster", cluster.name, timeout=300)
    follows(cluster, False)
    for version in (FORMER, NEXT):
        with nodes_stay_ready(cluster), a_workload_goes_on(cluster, least=20), undisturbed(cluster):
            set_kubelet(cluster, version)
            comes_into_force(cluster, version)


def test_a_kubelet_that_exits_in_force_gives_way_to_the_host_s(cluster: TestCluster) -> None:
    follows(cluster, False)
    comes_into_force(cluster, NEXT)
    with judged_after(cluster, 45):
        gives_way_to_the_host_s(cluster, "v1.37.90", EXITS_IN_FORCE, "it has exited", has_lock=True)


def test_power_cuts_at_drawn_moments_of_a_hand_over_end_with_what_is_wanted(
    cluster: TestCluster, show: Show, seed: str
) -> None:
    show(f"AUTARKY_SEED={seed}")
    random, writer = Random(f"{seed} hand-over 02-4"), Writer(Client(cluster))  # noqa: S311 # no secret
    rows, cuts = list[tuple[object, ...]](), Cuts(cluster, 2)
    follows(cluster, False)
    comes_into_force(cluster, NEXT)
    for version in (FORMER, NEXT):
        moment, before = random.uniform(0, LONGEST_SECONDS), len(writer.acknowledged)
        with writer.writing():
            set_kubelet(cluster, version)
            at = cuts.cut(version, moment, NODE)
        assert len(writer.acknowledged) > before, "nothing was written that could be lost"
        back = comes_back_hosted(cluster, version)
        assert writer.lost() == set()
        rows.append((back.answers, back.settled, at, version))
    show(table("cut in a hand-over of 02-4", ("answers", "in force", "at", "to"), rows))
    assert cuts.one_was_in_a_trial, cuts.states
