"""What the scenarios of a move of etcd share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from harness import TestCluster
from judgement import only_writes_under_way_failed
from power import Client, Writer
from slots import settled


def members(cluster: TestCluster, host: str) -> dict[str, Any]:
    """Name → member, as the member on that host lists them."""
    pki = "/etc/kubernetes/pki/etcd"
    certificates = f"--cacert={pki}/ca.crt --cert={pki}/server.crt --key={pki}/server.key"
    said = cluster.shell(host, f"/var/lib/autarky/bin/etcdctl {certificates} member list -w json")
    return {one["name"]: one for one in json.loads(said)["members"]}


def dialled(cluster: TestCluster) -> set[str]:
    """By the API servers that run, and by the standby."""
    said = cluster.shell(
        "n1",
        "for p in $(pgrep -x kube-apiserver); do tr '\\0' '\\n' </proc/$p/cmdline; done | grep ^--etcd-servers;"
        " grep -o -- '--etcd-servers=[^\"]*' /var/lib/autarky/standby/kube-apiserver/current/pod.json",
    )
    return {line.partition("=")[2] for line in said.split()}


def moved(cluster: TestCluster, spec: Mapping[str, Any], *options: str) -> None:
    """With the probe and the ledger running: nothing that was acknowledged is lost."""
    cluster.spec = spec
    writer = Writer(Client(cluster))
    with cluster.probed() as reports, writer.writing():
        cluster.autarky("etcd", "migrate", "-f", str(cluster.file), "--yes", "-o", "plain", *options)
    only_writes_under_way_failed(reports[0], moves=2)
    assert len(writer.acknowledged) > 100
    assert writer.lost() == set()
    cluster.wait("everything is healthy", lambda: settled(cluster), seconds=120)
