"""autarky itself, from the tree that landed last to this one, back, and here again: agents and operator follow the
command that runs `up`, and nobody notices.

Nothing else is started again, nor any pod of a user's: where a change has more to do, LAST says so, and why, until the
tree with that change is LAST itself. What takes a cluster over from older ones is in test_across_releases.py.

The tests of this module build on each other, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from earlier import Release, tree_of
from harness import AGNHOST, TestCluster, one_node
from judgement import nothing_failed
from rollouts import quiet
from skew import skew_is_kept
from slots import SYSTEM
from test_across_releases import at_rest, restarted, running
from upgrades import everything_is_of, version_of
from workloads import NAME as WORKLOAD
from workloads import a_workload_goes_on

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.chain,
    pytest.mark.rotation,
    pytest.mark.needs("v1.37.1"),
    pytest.mark.timeout(900),
]

LAST = Release(
    "the tree that landed last",
    "f1123211445df02236e33ea259869e1f1080ea09",
    {
        "node-agent": "its image is made of the package's sources",
        "node-agent (standby)": "it follows the hosted one",
        "autarky-operator": "its image is that of the agents",
    },
)
"""What may be started again in either direction: of the host's own, what has all that it needs is not a second time."""
AGENTS = {"node-agent", "node-agent (standby)", "autarky-operator"}
NODES, NEXT = ("n1",), "v1.37.1"
END_SECONDS, FOLLOW_SECONDS = 480.0, 120.0
NOTHING = ["nothing would change"]


@dataclass(frozen=True)
class Trees:
    """One cluster, by the commands of this tree and by those of the last one, which has made it. image: of the last
    one's agents."""

    here: TestCluster
    last: TestCluster
    image: str


@pytest.fixture(scope="module")
def trees(make_cluster: Callable[..., TestCluster]) -> Trees:
    here = make_cluster("t-last-release", **one_node())
    last = TestCluster(here.name, here.spec, tree_of(LAST))
    last.up()
    here.kubectl("create", "deployment", "of-a-user", f"--image={AGNHOST}", "--", "/usr/local/bin/agnhost", "pause")
    at_rest(here, NODES)
    return Trees(here, last, agents_image(here))


def test_commands_of_this_tree_look_at_a_cluster_of_the_last_one(trees: Trees) -> None:
    """And plan what is different, and no more."""
    assert trees.here.status()["healthy"]
    planned = plan(trees.here)
    assert planned[-1] not in NOTHING
    would_bring_its_agents(planned)


def test_up_of_this_tree_takes_the_cluster_over_and_nobody_notices(trees: Trees) -> None:
    with nobody_notices(trees):
        trees.here.up()
    is_of_this_tree(trees)


def test_commands_of_the_last_tree_look_at_a_cluster_of_this_one(trees: Trees) -> None:
    """And plan what is different, and no more."""
    assert trees.last.status()["healthy"]
    planned = plan(trees.last)
    assert planned[-1] not in NOTHING
    would_bring_its_agents(planned)


def test_an_upgrade_by_commands_of_the_last_tree_is_carried_out_by_agents_of_this_one(trees: Trees) -> None:
    goes_there_and_back(trees.here, by=trees.last)


def test_up_of_the_last_tree_takes_it_back_and_nobody_notices(trees: Trees) -> None:
    with nobody_notices(trees):
        trees.last.up()
    assert agents_image(trees.here) == trees.image
    assert plan(trees.last) == NOTHING


def test_an_upgrade_by_commands_of_this_tree_is_carried_out_by_agents_of_the_last_one(trees: Trees) -> None:
    goes_there_and_back(trees.here, by=trees.here)


def test_up_of_this_tree_takes_it_over_once_more_and_nobody_notices(trees: Trees) -> None:
    with nobody_notices(trees):
        trees.here.up()
    is_of_this_tree(trees)


# --- upgrading -------------------------------------------------------------------------------------------


def goes_there_and_back(cluster: TestCluster, *, by: TestCluster) -> None:
    """Each command understands what the operator says on the way."""
    former = version_of(cluster)
    with skew_is_kept(cluster), cluster.probed() as reports:
        for argv, wanted in (((NEXT,), NEXT), (("rollback", "--yes"), former)):
            by.autarky("upgrade", *argv, "--cluster", cluster.name, "-o", "plain", timeout=END_SECONDS)
            cluster.wait(f"it is of {wanted}", lambda w=wanted: version_of(cluster) == w, END_SECONDS, pause=1)
            everything_is_of(cluster, wanted, follow_within=FOLLOW_SECONDS)
            said = by.autarky("upgrade", "status", "--cluster", cluster.name).stdout
            assert wanted in said, said
    nothing_failed(reports[0], writes=100)
    quiet(cluster)
    at_rest(cluster, NODES)


# --- looking ---------------------------------------------------------------------------------------------


@contextmanager
def nobody_notices(trees: Trees) -> Iterator[None]:
    """In the block, and until everything is at rest with the agents that it brings: no request fails, and no pod of a
    user's is touched. Of the cluster's own the agents are started again, and nothing else that LAST does not name."""
    cluster = trees.here
    before, ended = running(cluster, NODES), restarted(cluster)
    with a_workload_goes_on(cluster), cluster.probed() as reports:
        yield
        at_rest(cluster, NODES)
        now = running(cluster, NODES)
    nothing_failed(reports[0], writes=100)
    assert "of-a-user" in before
    there = (before.keys() | now.keys()) - {WORKLOAD}  # comes with the block, and goes
    others = {name for name in there if before.get(name) != now.get(name)}
    assert AGENTS <= others <= LAST.anew.keys(), {name: (before.get(name), now.get(name)) for name in others}
    assert restarted(cluster) - ended == set()


def is_of_this_tree(trees: Trees) -> None:
    assert agents_image(trees.here) != trees.image
    assert plan(trees.here) == NOTHING


def would_bring_its_agents(planned: list[str]) -> None:
    """But neither API servers, nor kube-proxy, nor the pod network."""
    applied = {line.removeprefix("apply ") for line in planned if line.startswith("apply ")}
    assert applied >= {
        "DaemonSet kube-system/node-agent",
        "Deployment kube-system/autarky-operator",
    }, planned
    daemon_sets = {one for one in applied if one.startswith("DaemonSet ")}
    assert daemon_sets == {"DaemonSet kube-system/node-agent"}, planned


def plan(cluster: TestCluster) -> list[str]:
    said = cluster.autarky("plan", "-f", str(cluster.file)).stdout
    return [line.strip() for line in said.splitlines()]


def agents_image(cluster: TestCluster) -> str:
    path = "jsonpath={.spec.template.spec.containers[?(@.name=='node-agent')].image}"
    return cluster.kubectl(*SYSTEM, "get", "ds/node-agent", "-o", path)
