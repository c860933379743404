"""A release of autarky whose node agents and operators are no good, on one node: they go back by themselves, the former
ones act meanwhile, nothing of the control plane notices, and the release that corrects it is applied completely.

The cases of this module build on each other, in order.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from earlier import broken_tree
from harness import TestCluster, one_node
from leases import lease_watched
from rollouts import condition, explanations, quiet, template, undisturbed
from slots import SYSTEM, always_an_agent_acts, parked_agent_is_a_copy
from upgrades import reasons

pytestmark = [pytest.mark.e2e, pytest.mark.chain, pytest.mark.rotation, pytest.mark.timeout(900)]

OPERATOR = "deploy/autarky-operator"
AGENTS = ("ds/node-agent", OPERATOR)
LEASE_SECONDS = 15.0
"""Of the operators' lease. One that was not renewed for so long may have another holder."""
EXITS = "raise SystemExit('no such thing')"
EXITS_AGAIN_AND_AGAIN = "import os, threading; threading.Timer(8, os._exit, [1]).start()"
HANGS = "import time; time.sleep(10**6)"


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-bad-agents", **one_node())
    cluster.up()
    return cluster


@pytest.mark.parametrize(
    "at_the_start", [EXITS, EXITS_AGAIN_AND_AGAIN, HANGS], ids=["exit", "exit again and again", "hang"]
)
def test_agents_that_are_no_good_go_back_and_the_former_ones_act_meanwhile(
    cluster: TestCluster, tmp_path: Path, at_the_start: str
) -> None:
    quiet(cluster)
    cluster.wait("all agents act", lambda: acts_again(cluster), seconds=240)
    good = {workload: template(cluster, workload) for workload in AGENTS}
    told = {workload: len(explanations(cluster, workload)) for workload in AGENTS}
    bad = TestCluster(cluster.name, cluster.spec, broken_tree(at_the_start, tmp_path / "bad"))
    with lease_watched(cluster, OPERATOR) as renewals, always_an_agent_acts(cluster), undisturbed(cluster):
        ended = bad.up(check=False)
        cluster.wait(
            "both are as before",
            lambda: {workload: template(cluster, workload) for workload in AGENTS} == good,
            seconds=240,
        )
        cluster.wait("the former ones act", lambda: acts_again(cluster), seconds=120)
    assert renewals.longest_gap < LEASE_SECONDS
    assert len(set(renewals.holders)) == 1, "another operator than the former one has led"
    assert ended.status != 0
    assert "has gone back" in ended.stderr, ended.stderr
    assert {workload: len(explanations(cluster, workload)) for workload in AGENTS} == {
        workload: count + 1 for workload, count in told.items()
    }
    said = condition(cluster, "RolledBack")["message"]
    assert all(workload in said for workload in AGENTS), said
    assert "RolledBack" in reasons(cluster)
    corrected = TestCluster(cluster.name, cluster.spec, broken_tree(f"CORRECTS = {at_the_start!r}", tmp_path / "next"))
    corrected.up()
    quiet(cluster)
    assert corrected.autarky("plan", "-f", str(cluster.file)).stdout.splitlines() == ["nothing would change"]
    now = {workload: image(cluster, workload) for workload in AGENTS}
    assert len({*now.values(), *(one["spec"]["containers"][0]["image"] for one in good.values())}) == 2, now


def image(cluster: TestCluster, workload: str) -> str:
    return str(template(cluster, workload)["spec"]["containers"][0]["image"])


def acts_again(cluster: TestCluster) -> bool:
    """The hosted agent acts on the node, its standby is a copy of it, and the operator is available."""
    node = json.loads(cluster.kubectl("get", "node", "n1", "-o", "json"))["metadata"]
    agent = json.loads(node["annotations"]["autarky.dev/slots"])["agent"]
    pods = cluster.kubectl(
        *SYSTEM,
        "get",
        "pods",
        "-l",
        "k8s-app=node-agent,autarky.dev/slot=hosted",
        "-o",
        "jsonpath={.items[*].metadata.uid}",
    )
    ready = cluster.kubectl(*SYSTEM, "get", "deploy/autarky-operator", "-o", "jsonpath={.status.availableReplicas}")
    return pods.split() == [agent] and ready == "1" and parked_agent_is_a_copy(cluster)
