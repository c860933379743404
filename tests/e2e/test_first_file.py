"""A mistake in the arguments of the first file: the next file makes it good, and no `down` is needed.

Nobody but `up` cares for a standby then: the node has not pivoted yet, and what is in place never served.
"""

from __future__ import annotations

import pytest
from harness import TestCluster, kill_when
from power import settled

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.rotation,
    pytest.mark.shares("one_node", up=False),
    pytest.mark.timeout(600),
]

ARGUMENT = "no-such-flag"
LEVEL_3 = ("kube-controller-manager", "kube-scheduler")


@pytest.fixture
def cluster(one_node: TestCluster) -> TestCluster:
    """Nothing of it is there."""
    one_node.down()
    return one_node


@pytest.mark.parametrize(
    "components", [("kube-apiserver",), LEVEL_3, ("kube-scheduler",)], ids=["API server", "level 3", "scheduler"]
)
def test_a_bad_argument_in_the_first_file_is_made_good_by_the_next_one(
    cluster: TestCluster, components: tuple[str, ...]
) -> None:
    bad = TestCluster(
        cluster.name, {**cluster.spec, "extraArgs": {component: {ARGUMENT: "1"} for component in components}}
    )

    def met() -> None:
        """By each of them: it was started at least twice; the scheduler's in the pivot, when its node has an agent."""
        for component in components:
            what = f"the mistake is met by the temporary {component}"
            cluster.wait(what, lambda component=component: _starts(cluster, component) > 1, seconds=240)
        if components == ("kube-scheduler",):
            cluster.wait("the pivot has begun", lambda: _has_agent(cluster), seconds=120)

    assert kill_when(["up", "-f", str(bad.file), "-o", "plain"], met) < 0
    cluster.up()
    cluster.wait("everything is settled", lambda: settled(cluster), seconds=120)
    assert ARGUMENT not in cluster.shell("n1", "cat /etc/kubernetes/manifests/*")
    assert "up: unchanged" in cluster.up().stderr


def _has_agent(cluster: TestCluster) -> bool:
    return any(name.startswith("node-agent-standby-") for name in cluster.static_pods("n1"))


def _starts(cluster: TestCluster, component: str) -> int:
    """How often its standby has ended with the mistake, as its logs say: once a start."""
    if not cluster.has_host("n1"):
        return 0
    logs = f"cat /var/log/pods/*_{component}-standby-*/*/*.log 2>/dev/null"
    return int(cluster.shell("n1", f"{logs} | grep -c 'unknown flag: --{ARGUMENT}' || true"))
