"""What the scenarios of a move of etcd share."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping
from typing import Any

from harness import Show, TestCluster
from judgement import only_writes_under_way_failed
from power import Client, Writer
from slots import settled

from autarky.phases.migration.looking import SCRIPT


def members(cluster: TestCluster, host: str) -> dict[str, Any]:
    """Name → member, as the member on that host lists them."""
    pki = "/etc/kubernetes/pki/etcd"
    certificates = f"--cacert={pki}/ca.crt --cert={pki}/server.crt --key={pki}/server.key"
    said = cluster.shell(host, f"/var/lib/autarky/bin/etcdctl {certificates} member list -w json")
    return {one["name"]: one for one in json.loads(said)["members"]}


def dialled(cluster: TestCluster) -> set[str]:
    """By the API servers of the control plane that run on n1, and by its standby: as a move looks at them."""
    return set(cluster.shell("n1", f"bash -c {shlex.quote(SCRIPT)} look dialled").split())


def moved(cluster: TestCluster, show: Show, spec: Mapping[str, Any], *options: str) -> None:
    """With the probe and the ledger running: nothing that was acknowledged is lost."""
    cluster.spec = spec
    writer = Writer(Client(cluster))
    with cluster.probed() as reports, writer.writing():
        began = time.monotonic()
        cluster.autarky("etcd", "migrate", "-f", str(cluster.file), "--yes", "-o", "plain", *options)
        show(f"etcd was moved {'out of' if 'etcd' in spec else 'into'} the cluster in {time.monotonic() - began:.0f} s")
    only_writes_under_way_failed(reports[0], moves=1)
    assert len(writer.acknowledged) > 100
    assert writer.lost() == set()
    cluster.wait("everything is healthy", lambda: settled(cluster), seconds=120)
