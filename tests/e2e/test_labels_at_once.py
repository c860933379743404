"""Several nodes that are labelled at once, and one whose power is cut on the way.

The first two tests build on each other; each of the others makes the control nodes first that it begins with.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from ha import cut, member_phases, nothing_failed, start, survived
from harness import TestCluster
from labels import (
    address_of,
    endpoints,
    etcd_is_on,
    is_control_node,
    is_worker,
    label,
    names_served,
    told,
    unlabel,
)

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(900, func_only=True)]

NODES = [
    {"name": f"n{number}", "host": "lab", "roles": ["control-plane", "worker"] if number == 1 else ["worker"]}
    for number in range(1, 6)
]
NEW = ("n2", "n3")


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-labels-five", nodes=NODES)
    cluster.up()
    return cluster


@pytest.mark.chain("at once")
def test_two_that_are_labelled_at_once_both_become_control_nodes_and_fail_no_request(cluster: TestCluster) -> None:
    with cluster.probed(seconds=900) as reports:
        label(cluster, *NEW)
        for node in NEW:
            cluster.wait(f"{node} is a control node", lambda: is_control_node(cluster, node), seconds=240)  # noqa: B023
        names = {name for node in NEW for name in (node, address_of(cluster, node))}
        for node in NEW:
            what = f"the certificate of {node} names both"
            cluster.wait(what, lambda: names <= names_served(cluster, node), seconds=300)  # noqa: B023
        cluster.wait("all three are members", lambda: etcd_is_on(cluster, "n1", *NEW), seconds=300)
    nothing_failed(reports[0])
    assert endpoints(cluster) == {"n1", *NEW}


@pytest.mark.chain("at once")
def test_both_become_workers_again_one_after_the_other(cluster: TestCluster) -> None:
    with cluster.probed(seconds=900) as reports:
        unlabel(cluster, *NEW)
        for node in NEW:
            cluster.wait(f"{node} is a worker", lambda: is_worker(cluster, node), seconds=300)  # noqa: B023
    nothing_failed(reports[0])
    assert endpoints(cluster) == {"n1"}
    cluster.wait("n1 has the only member", lambda: etcd_is_on(cluster, "n1"))


def test_a_node_that_is_cut_on_the_way_goes_on_when_it_returns(cluster: TestCluster) -> None:
    _control_nodes_are(cluster, "n1")
    _joins_though_it_is_cut(cluster, "n4", "its agent is at it", lambda: told(cluster, "n4"))
    assert endpoints(cluster) == {"n1", "n4"}
    cluster.wait("both are members", lambda: etcd_is_on(cluster, "n1", "n4"), seconds=180)


def test_a_node_whose_member_joins_as_it_is_cut_goes_on_when_it_returns(cluster: TestCluster) -> None:
    _control_nodes_are(cluster, "n1", "n4")
    joining = ("Joining", "Learner")
    _joins_though_it_is_cut(cluster, "n5", "its member joins", lambda: member_phases(cluster).get("n5") in joining)
    assert endpoints(cluster) == {"n1", "n4", "n5"}
    cluster.wait("all three are members", lambda: etcd_is_on(cluster, "n1", "n4", "n5"), seconds=180)


def _control_nodes_are(cluster: TestCluster, *nodes: str) -> None:
    """Where another test has left it so, or is not run, too."""
    others = [name for name in (str(node["name"]) for node in NODES) if name not in nodes]
    for node in nodes:
        if not is_control_node(cluster, node):
            label(cluster, node)
            cluster.wait(f"{node} is a control node", lambda: is_control_node(cluster, node), seconds=300)  # noqa: B023
    for node in others:
        if not is_worker(cluster, node):
            unlabel(cluster, node)
            cluster.wait(f"{node} is a worker", lambda: is_worker(cluster, node), seconds=300)  # noqa: B023
    cluster.wait("these have a member of etcd", lambda: etcd_is_on(cluster, *nodes), seconds=180)
    assert endpoints(cluster) == set(nodes)


def _joins_though_it_is_cut(cluster: TestCluster, node: str, what: str, moment: Callable[[], object]) -> None:
    """Its power goes at that moment; others serve on, and nothing is lost."""
    with cluster.probed(seconds=900) as reports:
        label(cluster, node)
        cluster.wait(what, moment, seconds=180)
        cut(cluster, node)
        start(cluster, node)
        cluster.wait(f"{node} is a control node", lambda: is_control_node(cluster, node), seconds=300)
    survived(reports[0])
