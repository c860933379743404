"""A release whose load balancer is another pod: `up` starts it beside the one that serves, one node after the other,
and goes back where it does not answer.

The tests build on each other, in order. HAProxy passes no session on: a request that is under way just then through the
former one fails, and no connection is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from balancers import runs_its_configuration
from earlier import Tree, edited_tree
from harness import TestCluster
from judgement import NEW, longest_outage, nothing_lost
from rollouts import quiet

pytestmark = [pytest.mark.e2e, pytest.mark.chain, pytest.mark.rotation, pytest.mark.timeout(600)]

NODES = ("n1", "n2")
MODULE = "control/load_balancer/manifests/haproxy.py"
SHORT_SECONDS = 1.0
UNDER_WAY = 60
"""Requests at most: the probe has a few at any moment in each of its streams, and each API server some with etcd, when
a load balancer ends; there are two."""
LOAD_SECONDS = 850


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    nodes = [{"name": "n1", "host": "lab", "roles": ["control-plane", "worker"]}, {"name": "n2", "host": "lab"}]
    cluster = make_cluster("t-nllb-2", nodes=nodes)
    cluster.up()
    quiet(cluster)
    return cluster


def test_one_that_does_not_answer_is_taken_back_and_no_other_node_is_touched(
    cluster: TestCluster, tmp_path: Path
) -> None:
    before = {node: balancers(cluster, node) for node in NODES}
    bad = of(cluster, edited_tree(MODULE, '"-W", "-db"', '"-W", "-db", "--no-such-option"', tmp_path))
    with barely_noticed(cluster):
        ended = bad.up(check=False)
    assert ended.status != 0
    assert "node n1: the new load balancer was removed, and the former one stays" in ended.stderr
    assert {node: balancers(cluster, node) for node in NODES} == before


def test_another_one_takes_over_beside_the_former_one(cluster: TestCluster, tmp_path: Path) -> None:
    before = {node: balancers(cluster, node) for node in NODES}
    with barely_noticed(cluster):
        of(cluster, edited_tree(MODULE, 'requests("20m", "32Mi")', 'requests("20m", "33Mi")', tmp_path)).up()
        quiet(cluster)
    for node in NODES:
        now = balancers(cluster, node)
        assert len(now) == 1, f"{node}: {now}"
        assert now.isdisjoint(before[node])
        cluster.wait("it runs its configuration", lambda node=node: runs_its_configuration(cluster, node))


# --- doing and looking -------------------------------------------------------------------------------------


def of(cluster: TestCluster, tree: Tree) -> TestCluster:
    return TestCluster(cluster.name, cluster.spec, tree)


def balancers(cluster: TestCluster, node: str) -> frozenset[str]:
    """The processes of HAProxy that nobody has started but the container runtime: one each."""
    masters = cluster.shell(node, "for one in $(pgrep -x haproxy); do ps -o pid=,ppid= -p $one; done")
    parents = dict(line.split() for line in masters.splitlines())
    return frozenset(pid for pid, parent in parents.items() if parent not in parents)


@contextmanager
def barely_noticed(cluster: TestCluster) -> Iterator[None]:
    """New connections through the load balancers of both nodes: none waits long, and of what is under way little
    fails."""
    with cluster.probed(LOAD_SECONDS, inside="n1") as one, cluster.probed(LOAD_SECONDS, inside="n2") as two:
        yield
    for report in (*one, *two):
        nothing_lost(report)
        assert longest_outage(report, NEW) <= SHORT_SECONDS, report["verdict"]
        assert report["failed_requests"] <= UNDER_WAY, report["verdict"]
