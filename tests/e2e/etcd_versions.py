"""What the scenarios of a change of etcd's version or arguments share."""

from __future__ import annotations

import json
from typing import Any

from ha import member_objects
from harness import TestCluster

NEWER = "3.7.3"
"""A minor newer than that of the release."""
CHANGE_SECONDS = 400


def command_line(cluster: TestCluster, node: str) -> list[str]:
    """Of the process of the node's member."""
    return cluster.shell(node, "tr '\\0' '\\n' </proc/$(pgrep -x etcd)/cmdline").split("\n")


def etcd_now(cluster: TestCluster) -> dict[str, Any]:
    """Name → what `etcd status` says of that member."""
    found = cluster.autarky("etcd", "status", "--cluster", cluster.name, "-o", "json", check=False).stdout
    return {one["name"]: one for one in json.loads(found)["members"]}


def all_changed(cluster: TestCluster) -> bool:
    """Every member says that it is made from the template that it should be made from, and nothing is left to do."""
    for obj in member_objects(cluster).values():
        spec, status = obj["spec"], obj.get("status") or {}
        if status.get("phase") != "Member" or status.get("message") or status.get("second"):
            return False
        if not spec.get("revision") or status.get("revision") != spec["revision"]:
            return False
    return True


def wait_until_changed(cluster: TestCluster, before: dict[str, str]) -> None:
    """before: the revisions that the members should have had."""
    cluster.wait("another template is asked for", lambda: wanted(cluster) != before, seconds=60)
    cluster.wait("all are made from it", lambda: all_changed(cluster), seconds=CHANGE_SECONDS, pause=1)
    assert wanted(cluster) != before, condition(cluster, "SpecApplied")["message"]


def up_changes_nothing(cluster: TestCluster) -> None:
    """Once everything is available again after a change."""
    cluster.wait("nothing is left to do", lambda: "nothing would change" in cluster.up("--dry-run").stdout, seconds=120)
    assert "nothing was changed" in cluster.up().stdout


def wanted(cluster: TestCluster) -> dict[str, str]:
    return {name: str(obj["spec"].get("revision")) for name, obj in member_objects(cluster).items()}


def condition(cluster: TestCluster, kind: str) -> dict[str, Any]:
    plane = json.loads(cluster.kubectl("get", "controlplane", "cluster", "-o", "json"))
    found: dict[str, Any] = next(one for one in plane["status"]["conditions"] if one["type"] == kind)
    return found
