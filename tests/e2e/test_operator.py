"""Bad rollouts of the control plane go back by themselves, and the API of the only node never stops answering.

The tests of this module build on each other, in order. More of them are in test_bad_rollouts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from harness import TestCluster
from leases import lease_watched
from rollouts import (
    API,
    NEVER_READY,
    SCHEDULER,
    adding_flag,
    edit,
    goes_back,
    judged_after,
    quiet,
    set_image,
    undisturbed,
)

pytestmark = [pytest.mark.e2e, pytest.mark.shares("one_node"), pytest.mark.chain, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster(one_node: TestCluster) -> Iterator[TestCluster]:
    quiet(one_node)
    with judged_after(one_node, 20):
        yield one_node


def test_a_flag_with_which_the_only_api_server_is_never_ready_goes_back_and_fails_no_request(
    cluster: TestCluster,
) -> None:
    with undisturbed(cluster):
        back = goes_back(cluster, API, lambda: edit(cluster, API, adding_flag(API, NEVER_READY)))
    # 15 s to drain the old one, 20 s of limit; the failed one ends at once, though it does not heed SIGTERM.
    assert back.ready_seconds - back.template_seconds < 30
    assert "container kube-apiserver runs and is not ready. Its last words:" in back.explanation
    assert "the server could not find the requested" in back.explanation


def test_a_bad_flag_of_the_scheduler_goes_back_and_the_old_one_leads_on(cluster: TestCluster) -> None:
    with lease_watched(cluster, SCHEDULER) as renewals:
        back = goes_back(cluster, SCHEDULER, lambda: edit(cluster, SCHEDULER, adding_flag(SCHEDULER, "--no-such-flag")))
    assert "unknown flag: --no-such-flag" in back.explanation
    assert len(set(renewals.holders)) == 1


def test_rule_4_a_scheduler_of_a_newer_minor_goes_back_at_once_and_the_old_one_leads_on(cluster: TestCluster) -> None:
    """Judged by its tag: the image need not even be there."""
    with lease_watched(cluster, SCHEDULER) as renewals:
        back = goes_back(cluster, SCHEDULER, lambda: set_image(cluster, SCHEDULER, "v1.37.1"))
    assert "kube-scheduler v1.37.1 is newer than the oldest API server that runs" in back.explanation
    assert len(set(renewals.holders)) == 1


def test_the_control_plane_says_what_went_back(cluster: TestCluster) -> None:
    status = json.loads(cluster.kubectl("get", "controlplane", "cluster", "-o", "json"))["status"]
    conditions = {condition["type"]: condition for condition in status["conditions"]}
    assert conditions["RolledBack"]["status"] == "True"
    assert "kube-scheduler" in conditions["RolledBack"]["message"]


def test_doctor_finds_nothing_wrong_afterwards_and_names_a_kubelet_that_is_stopped(cluster: TestCluster) -> None:
    cluster.wait("nothing is wrong", lambda: "nothing is wrong" in _doctor(cluster))
    cluster.shell("n1", "systemctl stop kubelet")
    assert "n1: kubelet does not run" in _doctor(cluster).splitlines()[0]
    cluster.shell("n1", "systemctl start kubelet")


def _doctor(cluster: TestCluster) -> str:
    return cluster.autarky("doctor", "--cluster", cluster.name, check=False).stdout
