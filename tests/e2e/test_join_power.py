"""A worker that becomes a member of etcd by a label, and a worker again without it, loses its power after single writes
of its agents, or the member that admits and removes it does: with no help it becomes what it should when that is back.
There is one etcd at any time, and nothing that was acknowledged is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest
from copies import lost
from cuts_of_etcd import TIMEOUT, Share, cut_after_writes_of_agents, of_kinds, share, share_of, shown
from harness import Show, TestCluster
from labels import etcd_is_on, is_control_node, is_worker, label, unlabel
from one_etcd import one_etcd_at_a_time
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


@dataclass(frozen=True)
class Change:
    """Of what n2 is. members: of etcd, when it is over."""

    begin: Callable[[TestCluster, str], None]
    over: Callable[[TestCluster], bool]
    members: tuple[str, ...]


JOINS, LEAVES = Change(label, are_two, ("n1", "n2")), Change(unlabel, is_alone, ("n1",))
either = pytest.mark.parametrize(("change", "back"), [(JOINS, LEAVES), (LEAVES, JOINS)], ids=["joins", "leaves"])


def is_made(cluster: TestCluster, change: Change) -> None:
    """Without a cut, unless it has been made already."""
    if not change.over(cluster):
        change.begin(cluster, "n2")
        cluster.wait(f"etcd is on {change.members}", lambda: change.over(cluster), seconds=SECONDS)


def cut_in(cluster: TestCluster, change: Change, back: Change, share: Share, show: Show, *, node: str) -> None:
    """node: whose agents are followed, and whose power is cut."""
    writer = Writer(Client(cluster))

    def check() -> None:
        for one in (change, back):
            is_made(cluster, one)
            assert lost(cluster, writer) == set()
            members_agree(cluster, one.members)
            for member in one.members:
                nothing_is_left_over(cluster, member)

    is_made(cluster, back)
    with one_etcd_at_a_time(cluster, "n1", "n2"):
        cuts = cut_after_writes_of_agents(
            cluster,
            share,
            node=node,
            begin=lambda: change.begin(cluster, "n2"),
            over=lambda: change.over(cluster),
            check=check,
            writer=writer,
            seconds=SECONDS,
        )
    shown(show, f"a change to {change.members}, of {node}", cuts)


@of_kinds(KINDS, one_of=10, most=1)
@either
def test_a_member_that_joins_or_leaves_loses_its_power(
    cluster: TestCluster, change: Change, back: Change, share: Share, show: Show
) -> None:
    cut_in(cluster, change, back, share, show, node="n2")


@either
def test_the_member_that_admits_or_removes_it_loses_its_power(
    cluster: TestCluster, change: Change, back: Change, seed: str, show: Show
) -> None:
    """Of its agents' writes here there are few: they note who the members are."""
    cut_in(cluster, change, back, share_of("", seed, one_of=4, most=1), show, node="n1")
