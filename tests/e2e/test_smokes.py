"""Of what the rotation does at length on one node, one round in every run of CI: the next minor and back, a bad image,
a power cut at rest and one in a rollout.

The moments are fresh ones in each run; AUTARKY_SEED makes the same ones again. Each test begins with a cluster that is
settled, and leaves the control plane's version as it was.
"""

from __future__ import annotations

import time
from random import Random

import pytest
from ha import nothing_failed
from harness import Show, TestCluster
from power import Client, Writer, comes_back, cut, settled
from rollouts import (
    API,
    SYSTEM,
    explanations,
    goes_back,
    judged_after,
    quiet,
    ready,
    rolled_out,
    runs_version,
    set_image,
    template,
    undisturbed,
    version_wanted,
)

pytestmark = [pytest.mark.e2e, pytest.mark.shares("one_node"), pytest.mark.timeout(600)]

NEXT = "v1.37.1"
ROLLOUT_SECONDS = 30.0
"""About what a rollout of the API server takes, with its standby's withdrawal."""
WRITES = 10
"""More than so many are acknowledged before a cut, which else shows nothing."""


@pytest.fixture
def cluster(one_node: TestCluster) -> TestCluster:
    quiet(one_node)
    return one_node


@pytest.fixture
def random(request: pytest.FixtureRequest, seed: str) -> Random:
    return Random(f"{seed} {request.node.name}")  # noqa: S311 # no secret


@pytest.mark.needs("v1.37.1")
def test_the_api_server_goes_to_the_next_minor_by_set_image_and_back_by_undo_and_no_request_fails(
    cluster: TestCluster,
) -> None:
    cluster.autarky("payload", "push", NEXT, "--cluster", cluster.name)
    former, told = version_wanted(cluster, API), explanations(cluster, API)
    with cluster.probed() as reports:
        set_image(cluster, API, NEXT)
        _has_rolled_out(cluster, NEXT)
        cluster.kubectl(*SYSTEM, "rollout", "undo", API)
        _has_rolled_out(cluster, former)
    nothing_failed(reports[0], writes=100)
    assert {found["server"].partition(" ")[0] for found in reports[0]["servers"]} == {former, NEXT}
    assert explanations(cluster, API) == told


def _has_rolled_out(cluster: TestCluster, version: str) -> None:
    rolled_out(cluster, API)
    runs_version(cluster, API, version, {"n1"})
    cluster.wait("everything is settled", lambda: settled(cluster), seconds=150)


def test_an_image_that_cannot_be_had_goes_back_and_no_request_fails(cluster: TestCluster) -> None:
    with judged_after(cluster, 20), undisturbed(cluster):
        back = goes_back(cluster, API, lambda: set_image(cluster, API, "v1.36.99"))
    assert "kube-apiserver:v1.36.99" in back.explanation


def test_a_power_cut_at_rest_loses_nothing_and_tears_no_file(
    cluster: TestCluster, show: Show, seed: str, random: Random
) -> None:
    writer, moment = Writer(Client(cluster)), random.uniform(2, 5)
    show(f"cut after {moment:.2f} s of writing (AUTARKY_SEED={seed})")
    with writer.writing():
        time.sleep(moment)
        cut(cluster)
    comes_back(cluster)  # looks for torn files
    assert len(writer.acknowledged) > WRITES
    assert writer.lost() == set()


def test_a_power_cut_at_a_random_moment_of_a_rollout_ends_in_the_new_revision_and_loses_nothing(
    cluster: TestCluster, show: Show, seed: str, random: Random
) -> None:
    writer, moment = Writer(Client(cluster)), random.uniform(0, ROLLOUT_SECONDS)
    show(f"cut {moment:.2f} s after the rollout has begun (AUTARKY_SEED={seed})")
    before, told = template(cluster, API), explanations(cluster, API)
    with writer.writing():
        cluster.kubectl(*SYSTEM, "rollout", "restart", API)
        wanted = template(cluster, API)
        time.sleep(moment)
        cut(cluster)
    comes_back(cluster)
    assert len(writer.acknowledged) > WRITES
    assert writer.lost() == set()
    cluster.wait("the rollout has completed", lambda: ready(cluster, API), seconds=120)
    cluster.wait("everything is settled", lambda: settled(cluster), seconds=120)
    assert before != wanted == template(cluster, API), "what was on its way is what is wanted"
    assert explanations(cluster, API) == told
