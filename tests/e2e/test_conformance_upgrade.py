"""Upstream's own end-to-end tests in the middle of an upgrade, while API servers of two minors serve side by side, and
when it is complete.

The middle lasts for as long as it is needed by one edit of the DaemonSet: with `updateStrategy: OnDelete` its
controller replaces no pod by itself. The operator leaves that as it is. It has no limit for pods that are not replaced
(`control.rollout.decide.verdict` judges those of the new revision only), so the step goes on until they are.

The tests of this module build on each other, in order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from conformance import GROUP, put_images, upstream_tests
from conformance import VERSION as FORMER
from conformance_report import Outcome
from direct import asked, hosted_version
from ha import CONTROL, EVERYBODY, WORKER, three_and_one, wait_until_healthy
from harness import Show, TestCluster
from rollouts import API, HOSTED, PROXY, component, condition, explanations, live, patch_plane, quiet, version_wanted
from skew import SERVERS, skew_is_kept
from slots import SYSTEM, hosted_on
from test_conformance import FOCUS, assert_passed
from upgrades import everything_is_of, standbys, state_of, version_of

from autarky.model import ports

NEXT = "v1.37.1"

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.chain,
    pytest.mark.rotation,
    pytest.mark.needs(FORMER, group=GROUP),
    pytest.mark.needs(NEXT),
    pytest.mark.timeout(900),
]

FIRST = "n1"
"""The control node whose API server is replaced."""
SECOND = "n2"
IN_THE_MIDDLE = {**dict.fromkeys(CONTROL, FORMER), FIRST: NEXT}
BOTH_MINORS, NEXT_MINOR = (36, 37), (37,)
LONGEST_GAP = 10.0
"""Seconds between two looks at what serves: there is one each second, which takes longer while all processors are
busy."""
FOLLOW_SECONDS = 300.0
"""The kubelets come last, one control node after the other."""
BY_HAND = {"type": "OnDelete", "rollingUpdate": None}
ONE_BY_ONE = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}
_NAMESPACES_MADE = re.compile(
    r'^apiserver_request_total\{(?=[^}]*\bresource="namespaces")(?=[^}]*\bverb="POST")[^}]*\} (\S+)$', re.MULTILINE
)


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-conformance-2", kubernetesVersion=FORMER, **three_and_one())
    cluster.up()
    put_images(cluster)
    cluster.autarky("payload", "push", NEXT, "--cluster", cluster.name, timeout=600)
    wait_until_healthy(cluster)
    quiet(cluster)
    return cluster


def test_an_upgrade_waits_in_its_middle_for_as_long_as_nobody_replaces_the_other_api_servers(
    cluster: TestCluster,
) -> None:
    with skew_is_kept(cluster):
        are_replaced(cluster, BY_HAND)
        patch_plane(cluster, version=NEXT)
        # The operator goes by what nodes report of their images, up to a minute late.
        cluster.wait("the first step is taken", lambda: version_wanted(cluster, API) == NEXT, seconds=180)
        cluster.kubectl(*SYSTEM, "delete", "pod", *hosted_on(FIRST), "--wait=false")
        cluster.wait("it serves", lambda: hosted_versions(cluster) == IN_THE_MIDDLE, seconds=150, pause=2)
        cluster.wait(f"the standby of {FIRST} follows", lambda: standby_servers(cluster) == IN_THE_MIDDLE, seconds=150)
        wait_until_healthy(cluster)
    is_in_the_middle(cluster)


@pytest.mark.parametrize("node", [FIRST, SECOND], ids=["1.37", "1.36"])
def test_the_focus_list_passes_through_an_api_server_of_either_minor_beside_one_of_the_other(
    cluster: TestCluster, node: str, show: Show, tmp_path: Path, seed: str
) -> None:
    """Both serve in each second of it. A program of upstream's asks on few connections, which lead to one server each:
    so it asks from a control node, where that is the node's own."""
    is_in_the_middle(cluster)
    before = namespaces_made(cluster)
    with (
        skew_is_kept(cluster, least=60, gap=LONGEST_GAP) as looks,
        upstream_tests(cluster, FOCUS, tmp_path, seed, inside=node) as run,
    ):
        found = run.outcomes()
    is_in_the_middle(cluster)
    made = {name: number - before[name] for name, number in namespaces_made(cluster).items()}
    show(f"{said_of(found)} from {node}; namespaces made through {made}; {looks.number} looks, {looks.gap:.1f} s apart")
    assert looks.sets[SERVERS] == {BOTH_MINORS}
    assert_passed(found)
    assert run.process.returncode == 0
    # Each spec makes one or more, and nobody else does.
    assert made[node] >= len(FOCUS) // 2, f"the specs were not tried with the API server of {node}: {made}"


def test_the_upgrade_ends_when_the_other_api_servers_are_replaced(cluster: TestCluster) -> None:
    with skew_is_kept(cluster):
        are_replaced(cluster, ONE_BY_ONE)
        cluster.wait("it is complete", lambda: version_of(cluster) == NEXT, seconds=480, pause=2)
        wait_until_healthy(cluster)
        everything_is_of(cluster, NEXT, CONTROL, EVERYBODY, follow_within=FOLLOW_SECONDS)
    assert explanations(cluster, API) == []
    cluster.wait("no edit is left", lambda: condition(cluster, "Drifted").get("status") == "False")


def test_the_focus_list_passes_when_the_upgrade_is_complete(
    cluster: TestCluster, show: Show, tmp_path: Path, seed: str
) -> None:
    everything_is_of(cluster, NEXT, CONTROL, EVERYBODY)
    with (
        skew_is_kept(cluster, least=60, gap=LONGEST_GAP) as looks,
        upstream_tests(cluster, FOCUS, tmp_path, seed) as run,
    ):
        found = run.outcomes()
    show(f"{said_of(found)} from {WORKER}")
    assert looks.sets[SERVERS] == {NEXT_MINOR}
    assert_passed(found)
    assert run.process.returncode == 0


# --- the middle ------------------------------------------------------------------------------------------


def are_replaced(cluster: TestCluster, strategy: dict[str, Any]) -> None:
    """How the DaemonSet's controller replaces API servers from now on."""
    edit = json.dumps({"spec": {"updateStrategy": strategy}})
    cluster.kubectl(*SYSTEM, "patch", API, "--type=merge", "-p", edit)


def is_in_the_middle(cluster: TestCluster) -> None:
    """By what serves, by what the operator says, and by what it has done: no edit is undone, nothing went back, and no
    later step was taken."""
    assert hosted_versions(cluster) == IN_THE_MIDDLE
    assert state_of(cluster) == "Upgrading kube-apiserver"
    assert live(cluster, API)["spec"]["updateStrategy"]["type"] == "OnDelete"
    assert explanations(cluster, API) == []
    wanted = {workload: version_wanted(cluster, workload) for workload in (*HOSTED, PROXY)}
    assert wanted == {**dict.fromkeys(wanted, FORMER), API: NEXT}


def hosted_versions(cluster: TestCluster) -> dict[str, str]:
    """Control node → the version that its hosted API server says of itself; "" where none answers."""
    return {node: hosted_version(cluster, component(API), node) for node in CONTROL}


def standby_servers(cluster: TestCluster) -> dict[str, str]:
    """Control node → the version of its standby."""
    return {node: versions.get(component(API), "") for node, versions in standbys(cluster).items()}


def namespaces_made(cluster: TestCluster) -> dict[str, float]:
    """Control node → how many requests to make one its hosted API server has had."""
    found = {}
    for node in CONTROL:
        metrics = asked(cluster, node, ports.API_HOSTED, "/metrics")
        assert metrics, f"the API server of {node} says nothing of its requests"
        found[node] = sum(map(float, _NAMESPACES_MADE.findall(metrics)))
    return found


def said_of(found: Sequence[Outcome]) -> str:
    specs = [one for one in found if one.is_spec]
    return f"{len(specs)} of {len(FOCUS)} specs in {sum(one.seconds for one in specs):.0f} s"
