"""What the scenarios of a change of etcd's version or arguments share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ha import member_objects
from harness import TestCluster
from kubelets import bring_broken
from recoveries import data_of, members_agree

from autarky.model.components import ETCD
from autarky.payload import default_version, load_release

NEWER = "3.7.3"
"""A minor newer than that of the release."""
CHANGE_SECONDS = 400
NEVER_WORKS = "this one never works"
"""What etcd in such an image says."""


def command_line(cluster: TestCluster, node: str) -> list[str]:
    """Of the process of the node's member."""
    return cluster.shell(node, "tr '\\0' '\\n' </proc/$(pgrep -x etcd)/cmdline").split("\n")


def etcd_now(cluster: TestCluster) -> dict[str, Any]:
    """Name → what `etcd status` says of that member."""
    found = cluster.autarky("etcd", "status", "--cluster", cluster.name, "-o", "json", check=False).stdout
    return {one["name"]: one for one in json.loads(found)["members"]}


def own_image() -> str:
    """That of the release."""
    return load_release(default_version()).image(ETCD).reference


def image_of_another_patch(cluster: TestCluster, *nodes: str) -> str:
    """That of the release by another name, which these nodes have from now on: we have one patch of its minor, and only
    another patch can be left again. Members are made from it as from any other."""
    own = own_image()
    patched = f"{own.rpartition('.')[0]}.99-0"
    for node in nodes:
        cluster.shell(node, f"/var/lib/autarky/bin/ctr -n k8s.io images tag --force {own} {patched}")
    return patched


def patch_of(image: str) -> str:
    """The version, as the ControlPlane has it."""
    return image.rpartition(":")[2].removesuffix("-0")


def is_made_of(cluster: TestCluster, node: str, image: str) -> bool:
    """The node's member."""
    return f'"{image}"' in cluster.shell(node, "cat /etc/kubernetes/manifests/etcd-*.json")


@contextmanager
def a_newer_image_that_never_works(cluster: TestCluster, node: str) -> Iterator[None]:
    """In the place of NEWER's, which the node must not have yet: `payload etcd push` leaves alone what it finds there.
    Afterwards the node has none."""
    image = f"registry.k8s.io/etcd:{NEWER}-0"
    bring_broken(cluster, image, "etcd", node)
    try:
        yield
    finally:
        cluster.shell(node, f"/var/lib/autarky/bin/ctr -n k8s.io images rm {image}")


def static_etcd(cluster: TestCluster, node: str = "n1") -> list[str]:
    """Those of the only member of a node, and of a second one beside it."""
    return [name for name in cluster.static_pods(node) if "etcd" in name]


def is_alone(cluster: TestCluster) -> None:
    """The only member, n1: on its own ports, and nothing is left of the second one, whose data goes last."""
    assert list(etcd_now(cluster)) == ["n1"]
    assert all(name.startswith("etcd-") for name in static_etcd(cluster))
    cluster.wait("the second one's data is gone", lambda: "second" not in data_of(cluster, "n1"))
    assert "2479" not in cluster.shell("n1", "cat /var/lib/autarky/nllb/haproxy.cfg")
    members_agree(cluster, ("n1",))


def all_changed(cluster: TestCluster) -> bool:
    """Every member says that it is made from the template that it should be made from, and nothing is left to do. Where
    no member is known nobody says so."""
    found = member_objects(cluster)
    for obj in found.values():
        spec, status = obj["spec"], obj.get("status") or {}
        if status.get("phase") != "Member" or status.get("message") or status.get("second"):
            return False
        if not spec.get("revision") or status.get("revision") != spec["revision"]:
            return False
    return bool(found)


def another_is_wanted(cluster: TestCluster, before: dict[str, str]) -> bool:
    """Another template, of the same members. before: the revisions that they should have had."""
    now = wanted(cluster)
    return now != before and now.keys() == before.keys()


def is_changed(cluster: TestCluster, before: dict[str, str]) -> bool:
    """Whether the same members are all made from another template; not where nobody says so."""
    with suppress(AssertionError):  # no answer
        return another_is_wanted(cluster, before) and all_changed(cluster)
    return False


def wait_until_changed(cluster: TestCluster, before: dict[str, str]) -> None:
    """before: the revisions that the members should have had."""
    cluster.wait("another template is asked for", lambda: another_is_wanted(cluster, before), seconds=60)
    cluster.wait("all are made from it", lambda: all_changed(cluster), seconds=CHANGE_SECONDS, pause=1)
    assert another_is_wanted(cluster, before), condition(cluster, "SpecApplied")["message"]


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
