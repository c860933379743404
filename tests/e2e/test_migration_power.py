"""The node and the machine of the etcd outside lose their power after single writes of a move of etcd, in and out: the
same command ends it, and nothing that was acknowledged is lost.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from cuts_of_etcd import TIMEOUT, Share, cut_in_command, redrawn
from harness import Show, TestCluster
from migrations import dialled, members
from parts import Draw
from power import RETURN_SECONDS, Client, Writer
from slots import settled

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(TIMEOUT, func_only=True)]

NODE = {"name": "n1", "host": "lab", "roles": ["control-plane", "worker"]}
INSIDE: dict[str, Any] = {"selfHosted": "1-4", "nodes": [NODE]}
OUTSIDE: dict[str, Any] = {"selfHosted": "2-4", "nodes": [NODE], "etcd": {"external": {"lab": "etcd1"}}}
HOSTS = ("n1", "etcd1")
DRAWN_OF = 6
"""One of so many writes is drawn."""


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-migration-power", **OUTSIDE)
    cluster.up()
    return cluster


def command(cluster: TestCluster, *, into: bool) -> list[str]:
    cluster.spec = INSIDE if into else OUTSIDE
    return ["etcd", "migrate", "-f", str(cluster.file), "--yes", "-o", "plain"]


@pytest.mark.parametrize("into", [True, False], ids=["in", "out"])
def test_a_move_of_etcd_is_ended_by_the_same_command(
    cluster: TestCluster, seed: str, show: Show, *, into: bool
) -> None:
    """Where the move before it was not made, it is made without a cut."""
    share, writer = Share("", Draw(seed, DRAWN_OF, ()), 1), Writer(Client(cluster))
    for passes in itertools.count(1):
        if ("https://127.0.0.1:2378" in dialled(cluster)) is into:
            cluster.autarky(*command(cluster, into=not into))
        argv = command(cluster, into=into)
        with writer.writing():
            found = cut_in_command(cluster, argv, share, (), HOSTS)
        if found.cut_after is not None:
            break
        share = redrawn(share, found, passes)
    assert len(writer.acknowledged) > 20
    show(f"the power was cut after: {found.cut_after}")
    cluster.autarky("lab", "start", "--lab", cluster.name, *HOSTS, "-o", "plain")
    cluster.wait("the API answers", Client(cluster).answers, seconds=RETURN_SECONDS)
    assert writer.lost() == set()
    with writer.writing():
        cluster.autarky(*argv)
    cluster.announcements_end()
    host = "n1" if into else "etcd1"
    assert list(members(cluster, host)) == [host]
    assert len(dialled(cluster)) == 1
    assert ("https://127.0.0.1:2378" in dialled(cluster)) is into
    assert writer.lost() == set()
    cluster.wait("everything is healthy", lambda: settled(cluster), seconds=240)
