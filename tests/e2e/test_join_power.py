"""A worker that becomes a member of etcd by a label loses its power after single writes of its agent: it becomes one
when it is back, with no help, or a worker again, and nothing that was acknowledged is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from cuts_of_etcd import TIMEOUT, Share, cut_after_writes_of_agents, of_kinds, share, shown
from harness import Show, TestCluster
from labels import etcd_is_on, is_control_node, is_worker, label, unlabel
from power import Client, Writer
from recoveries import members_agree, nothing_is_left_over

__all__ = ["share"]
pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(TIMEOUT, func_only=True)]

NODES = [
    {"name": "n1", "host": "lab", "roles": ["control-plane", "worker"]},
    {"name": "n2", "host": "lab", "roles": ["worker"]},
]
KINDS = {"content": "(create|write|truncate|chmod|fsync) "}
SECONDS = 300.0


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-join-power", nodes=NODES)
    cluster.up()
    return cluster


def is_alone(cluster: TestCluster) -> bool:
    with suppress(AssertionError):  # two members, of which one was off
        return is_worker(cluster, "n2") and etcd_is_on(cluster, "n1")
    return False


def are_two(cluster: TestCluster) -> bool:
    with suppress(AssertionError):
        return is_control_node(cluster, "n2") and etcd_is_on(cluster, "n1", "n2")
    return False


@of_kinds(KINDS, one_of=10, most=2)
def test_a_member_that_joins_and_leaves_loses_its_power(cluster: TestCluster, share: Share, show: Show) -> None:
    writer = Writer(Client(cluster))

    def checked(*nodes: str) -> Callable[[], None]:
        def check() -> None:
            assert writer.lost() == set()
            members_agree(cluster, nodes)
            for node in nodes:
                nothing_is_left_over(cluster, node)

        return check

    def leaves() -> None:
        unlabel(cluster, "n2")
        cluster.wait("it is a worker", lambda: is_alone(cluster), seconds=SECONDS)

    def check() -> None:
        checked("n1", "n2")()
        leaves()
        checked("n1")()

    cuts = cut_after_writes_of_agents(
        cluster,
        share,
        node="n2",
        begin=lambda: label(cluster, "n2"),
        over=lambda: are_two(cluster),
        check=check,
        writer=writer,
        seconds=SECONDS,
    )
    shown(show, "a member that joins", cuts)
