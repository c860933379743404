"""What the scenarios of a move of etcd share."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping
from typing import Any

from copies import announced_pause, clients_noticed, lost, said
from ha import ETCDCTL
from harness import Ended, Show, TestCluster
from judgement import NEW, figures, longest_outage, only_writes_under_way_failed
from one_etcd import one_etcd_at_a_time
from power import Client, Writer
from slots import settled

from autarky.phases.migration.looking import SCRIPT

_MOVE_SECONDS = 800.0
"""Of a command that moves three members: less than the time that a case has."""
_ASK_EVERY = 0.25
"""Seconds, whichever member is asked: with six of them they would else take what is measured."""


def members(cluster: TestCluster, host: str, etcdctl: str = ETCDCTL) -> dict[str, Any]:
    """Name → member, as the member on that host lists them. etcdctl: how it is called there."""
    return {one["name"]: one for one in json.loads(cluster.shell(host, f"{etcdctl} member list -w json"))["members"]}


def dialled(cluster: TestCluster, node: str = "n1") -> set[str]:
    """By the API servers of the control plane that run on the node, and by its standby: as a move looks at them."""
    found = cluster.shell(node, f"bash -c {shlex.quote(SCRIPT)} look dialled").split()
    return {url for line in found for url in line.split(",")}


def moved(
    cluster: TestCluster, show: Show, spec: Mapping[str, Any], *options: str, outside: Mapping[str, str]
) -> Ended:
    """With the probe and the ledger running, and all members asked: nothing that was acknowledged is lost, there is one
    etcd at a time, and where members join and leave nothing fails; where it is copied, the pause has the bound that was
    announced. outside: the hosts of the etcd outside, each with how `etcdctl` is called there."""
    cluster.spec = spec
    writer = Writer(Client(cluster))
    nodes = [node["name"] for node in spec["nodes"]]
    pause = _ASK_EVERY * (len(nodes) + len(outside))
    with (
        cluster.probed() as reports,
        writer.writing(),
        one_etcd_at_a_time(cluster, *nodes, others=outside, pause=pause),
    ):
        began = time.monotonic()
        command = ["etcd", "migrate", "-f", str(cluster.file), "--yes", "-o", "plain", *options]
        done = cluster.autarky(*command, timeout=_MOVE_SECONDS)
        seconds = time.monotonic() - began
    [report] = reports
    where = "out of" if "etcd" in spec else "into"
    show(f"etcd was moved {where} the cluster in {seconds:.0f} s: {figures(report)}")
    assert len(writer.acknowledged) > 100
    if "--copy" in options:
        announced = announced_pause(said(done))
        show(str(announced))
        clients_noticed(announced, writer)
        assert longest_outage(report, NEW) <= announced.bound
    else:
        only_writes_under_way_failed(report, moves=1)
    assert lost(cluster, writer) == set()
    cluster.wait("everything is healthy", lambda: settled(cluster), seconds=120)
    return done
