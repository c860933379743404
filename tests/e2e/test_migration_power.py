"""The node and the machine of the etcd outside lose their power after single writes of a move of etcd, in and out: the
same command ends it, and nothing that was acknowledged is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cuts_of_etcd import TIMEOUT, Share, cut_in_command, of_kinds, share, shown
from harness import Show, TestCluster
from migrations import dialled, members
from power import RETURN_SECONDS, Client, Writer
from slots import settled

__all__ = ["share"]
pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(TIMEOUT, func_only=True)]

NODE = {"name": "n1", "host": "lab", "roles": ["control-plane", "worker"]}
INSIDE: dict[str, Any] = {"selfHosted": "1-4", "nodes": [NODE]}
OUTSIDE: dict[str, Any] = {"selfHosted": "2-4", "nodes": [NODE], "etcd": {"external": {"lab": "etcd1"}}}
HOSTS = ("n1", "etcd1")
KINDS = {"content": "(create|write|truncate|chmod|fsync) "}


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-migration-power", **OUTSIDE)
    cluster.up()
    return cluster


@of_kinds(KINDS, one_of=6)
def test_a_move_of_etcd_in_and_out_is_ended_by_the_same_command(cluster: TestCluster, share: Share, show: Show) -> None:
    writer, cuts = Writer(Client(cluster)), []
    for spec in (INSIDE, OUTSIDE):
        cluster.spec = spec
        argv = ["etcd", "migrate", "-f", str(cluster.file), "--yes", "-o", "plain"]
        with writer.writing():
            write = cut_in_command(cluster, argv, share, (), HOSTS)
        assert write is not None, "none of these writes was made"
        cluster.autarky("lab", "start", "--lab", cluster.name, *HOSTS, "-o", "plain")
        cluster.wait("the API answers", Client(cluster).answers, seconds=RETURN_SECONDS)
        assert writer.lost() == set()
        with writer.writing():
            cluster.autarky(*argv)
        cluster.announcements_end()
        cuts.append((0.0, 0.0, write))
        assert list(members(cluster, "n1" if spec is INSIDE else "etcd1")) == ["n1" if spec is INSIDE else "etcd1"]
        assert ("https://127.0.0.1:2378" in dialled(cluster)) is (spec is INSIDE)
        assert len(dialled(cluster)) == 1
        assert writer.lost() == set()
        cluster.wait("everything is healthy", lambda: settled(cluster), seconds=240)
    shown(show, "a move of etcd", cuts)
