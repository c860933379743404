"""Another version of etcd by the cluster file, on one node: what etcd cannot be moved to is refused before anything is
touched; the next minor reaches the only member under load; then `up` changes nothing, and without the line etcd stays.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from etcd_versions import NEWER, etcd_now, is_alone, static_etcd, up_changes_nothing, wanted
from harness import TestCluster, one_node
from judgement import only_writes_under_way_failed
from slots import settled

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.chain,
    pytest.mark.rotation,
    pytest.mark.timeout(900, func_only=True),
]


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-etcd-version-file", **one_node())
    cluster.up()
    cluster.wait("a template is asked for of the member", lambda: wanted(cluster)["n1"] != "None")
    return cluster


def with_version(cluster: TestCluster, version: str | None) -> Mapping[str, Any]:
    """The cluster's spec with that version of etcd; None: with none."""
    others = {name: value for name, value in cluster.spec.items() if name != "etcd"}
    return others if version is None else {**others, "etcd": {"version": version}}


def asked_for(cluster: TestCluster) -> Any:
    """By the ControlPlane."""
    plane = json.loads(cluster.kubectl("get", "controlplane", "cluster", "-o", "json"))
    return plane["spec"].get("etcd", {}).get("version")


def test_what_etcd_cannot_be_moved_to_is_refused_with_the_way_that_it_can_take(cluster: TestCluster) -> None:
    """Minors that are skipped are refused as well, but two that are known lie beside that of the release."""
    has = etcd_now(cluster)["n1"]["version"]
    before, pods, kept = wanted(cluster), static_etcd(cluster), cluster.spec
    ways = {
        "3.5.35": ("an older minor cannot read", f'version: "{has}" in spec.etcd of the file'),
        "3.9.0": ("is not known to this autarky", f"v{NEWER}"),
    }
    for version, texts in ways.items():
        cluster.spec = with_version(cluster, version)
        for refused in (cluster.up(check=False), cluster.up("--dry-run", check=False)):
            assert refused.status == 2, refused
            assert [text for text in texts if text not in refused.stderr] == [], refused
    cluster.spec = kept
    assert (asked_for(cluster), wanted(cluster), static_etcd(cluster)) == (None, before, pods)
    assert "etcd:3.5.35-0" not in cluster.shell("n1", "/var/lib/autarky/bin/ctr -n k8s.io images ls -q")
    up_changes_nothing(cluster)


def test_the_files_newer_minor_reaches_the_only_member_while_it_serves(cluster: TestCluster) -> None:
    has, before = etcd_now(cluster)["n1"]["version"], wanted(cluster)
    cluster.autarky("payload", "etcd", "get", NEWER)
    cluster.spec = with_version(cluster, NEWER)
    assert f"etcd goes from {has} to {NEWER}, one member after the other" in cluster.up("--dry-run").stdout
    assert (asked_for(cluster), wanted(cluster)) == (None, before)
    with cluster.probed() as reports:
        cluster.up()
        # It has waited for all of it.
        assert wanted(cluster) != before
        assert etcd_now(cluster)["n1"]["version"] == NEWER
        is_alone(cluster)
    only_writes_under_way_failed(reports[0], moves=2)
    assert asked_for(cluster) == NEWER
    cluster.wait("everything is healthy", lambda: settled(cluster), seconds=120)
    up_changes_nothing(cluster)


def test_without_the_line_etcd_stays_and_the_former_minor_is_refused(cluster: TestCluster) -> None:
    before, pods = wanted(cluster), static_etcd(cluster)
    cluster.spec = with_version(cluster, None)
    cluster.up()
    up_changes_nothing(cluster)
    assert (asked_for(cluster), wanted(cluster), static_etcd(cluster)) == (NEWER, before, pods)
    cluster.spec = with_version(cluster, "3.6.16")
    refused = cluster.up(check=False)
    assert (refused.status, "an older minor cannot read" in refused.stderr) == (2, True), refused
    cluster.spec = with_version(cluster, None)
    assert (asked_for(cluster), etcd_now(cluster)["n1"]["version"]) == (NEWER, NEWER)
