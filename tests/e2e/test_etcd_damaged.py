"""Bytes flip in the database of one of three members: it is found, isolated and replaced with no command, and nothing
that was acknowledged is lost. How long each took is printed (`pytest --log-cli-level=INFO`).
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from agreement import difference
from etcd_versions import etcd_now
from ha import CONTROL, ETCDCTL, etcd_leader, member_objects, wait_until_healthy
from harness import TestCluster
from power import Client, Writer
from recoveries import data_of, members_agree

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(900)]

LOG = logging.getLogger(__name__)
MARK, FLIPPED = b"one-way-" * 6, b"another-" * 6
"""In the value of a key. As long: what is flipped is the value of a key, and no page's form."""
PATH = "/api/v1/namespaces/default/configmaps"
REPLACED_SECONDS = 300.0
"""It is started three times, which takes half a minute, removed, and joins again."""
FOUND_SECONDS = 420.0
"""etcd's leader looks once in a minute whether there was a compaction."""
PAGE = 4096
NO_COMPACTION = {"kube-apiserver": {"etcd-compaction-interval": "0"}}
"""But for the tests' own: a member that was down during one cannot be compared with the others at its start. It goes on
then, and is found at the next one, as in the last test."""


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    roles = ["control-plane", "worker"]
    nodes = [{"name": name, "host": "lab", "roles": roles} for name in CONTROL]
    cluster = make_cluster("t-etcd-damaged", nodes=nodes, extraArgs=NO_COMPACTION)
    cluster.up()
    wait_until_healthy(cluster)
    cluster.wait("all are known by their ids", lambda: all(member_id(cluster, node) for node in CONTROL), seconds=90)
    return cluster


def database(cluster: TestCluster, node: str) -> Path:
    return Path(f"/proc/{cluster.host_process(node)}/root/var/lib/etcd/member/snap/db")


def other_keys(file: Path) -> None:
    """The file has its form, and one value is another."""
    found = [place.start() for place in re.finditer(re.escape(MARK), file.read_bytes())]
    assert found, "the key is not in the database"
    _overwrite(file, found, FLIPPED)


def no_database(file: Path) -> None:
    """Neither of the two first pages says where the others are."""
    _overwrite(file, [0, PAGE], b"\xff" * PAGE)


def _overwrite(file: Path, places: list[int], content: bytes) -> None:
    """In place, as a disk does it."""
    with file.open("r+b") as opened:
        for place in places:
            opened.seek(place)
            opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())


def writes_the_mark(cluster: TestCluster, node: str) -> str:
    """The name of a ConfigMap with it, once it is in that member's database."""
    name = f"marked-{time.time_ns()}"
    assert Client(cluster).send("POST", PATH, {"metadata": {"name": name}, "data": {"way": MARK.decode()}})
    cluster.wait("its database has it", lambda: MARK in database(cluster, node).read_bytes(), seconds=30)
    return name


def way(cluster: TestCluster, name: str) -> str:
    return cluster.kubectl("get", "configmap", name, "-o", "jsonpath={.data.way}")


def member_id(cluster: TestCluster, node: str) -> str:
    """While it has its vote; "" else, and while nobody answers."""
    try:
        status = member_objects(cluster)[node].get("status", {})
    except (AssertionError, ValueError):
        return ""
    return str(status.get("memberID", "")) if status.get("phase") == "Member" else ""


def follower(cluster: TestCluster) -> str:
    leader = etcd_leader(cluster)
    return max(node for node in CONTROL if node != leader)


def is_isolated(cluster: TestCluster, member: str) -> bool:
    """Whether etcd accuses the member with that id (alarm CORRUPT), and takes no requests. Asked of a member, which is
    fast: the alarm is cleared some seconds after the member was removed."""
    listed = cluster.shell("n1", f"{ETCDCTL} alarm list || true")
    return re.search(rf"memberID:{int(member, 16)}\s+alarm:CORRUPT", listed) is not None


def is_replaced(cluster: TestCluster, node: str, before: str) -> bool:
    return member_id(cluster, node) not in ("", before)


def events(cluster: TestCluster, node: str) -> dict[str, str]:
    fields = f"involvedObject.kind=EtcdMember,involvedObject.name={node}"
    found = json.loads(cluster.kubectl("get", "events", "-n", "default", f"--field-selector={fields}", "-o", "json"))
    return {one["reason"]: one["message"] for one in found["items"]}


@pytest.mark.parametrize("damage", [other_keys, no_database], ids=["other-keys", "no-database"])
def test_a_member_that_cannot_start_from_its_damaged_data_is_replaced(
    cluster: TestCluster, damage: Callable[[Path], None]
) -> None:
    node = follower(cluster)
    before, name, kept = member_id(cluster, node), writes_the_mark(cluster, node), data_of(cluster, node)
    writer = Writer(Client(cluster))
    with writer.writing():
        cluster.shell(node, "systemctl stop kubelet; pkill -KILL -x etcd; sleep 1")
        damage(database(cluster, node))
        cluster.shell(node, "systemctl start kubelet")
        began = time.monotonic()
        cluster.wait("it does not serve", lambda: etcd_now(cluster)[node]["error"], seconds=30)
        cluster.wait("it is another member", lambda: is_replaced(cluster, node, before), seconds=REPLACED_SECONDS)
        LOG.info(f"{damage.__name__}: replaced after {time.monotonic() - began:.0f} s")
        members_agree(cluster)
    assert len(writer.acknowledged) > 100
    assert writer.lost() == set()
    assert way(cluster, name) == MARK.decode()
    assert len(set(data_of(cluster, node)) - set(kept)) == 1, "what it had is kept"
    cluster.wait("there is an event", lambda: "EtcdMemberLost" in events(cluster, node), seconds=60)
    assert "of no use" in events(cluster, node)["EtcdMemberLost"]
    wait_until_healthy(cluster)


def test_a_member_whose_keys_change_while_it_runs_is_found_at_a_compaction(cluster: TestCluster) -> None:
    """etcd then takes no writes until the member is gone."""
    node = follower(cluster)  # never n1, which is asked
    before, name = member_id(cluster, node), writes_the_mark(cluster, node)
    assert difference(cluster, "n1") == ""
    writer = Writer(Client(cluster))
    cluster.announce()
    with writer.writing():
        other_keys(database(cluster, node))
        cluster.wait("its keys differ", lambda: "hashes" in difference(cluster, "n1"), seconds=30)
        cluster.autarky("etcd", "compact", "--keep", "0", "--cluster", cluster.name)
        began = time.monotonic()
        cluster.wait("it is isolated", lambda: is_isolated(cluster, before), seconds=FOUND_SECONDS)
        LOG.info(f"found {time.monotonic() - began:.0f} s after the compaction")
        cluster.wait("it is another member", lambda: is_replaced(cluster, node, before), seconds=REPLACED_SECONDS)
        LOG.info(f"replaced {time.monotonic() - began:.0f} s after the compaction")
        members_agree(cluster)
        wait_until_healthy(cluster)
    assert len(writer.acknowledged) > 100
    assert writer.lost() == set()
    assert way(cluster, name) == MARK.decode()
    assert not [one for member in etcd_now(cluster).values() for one in member["alarms"]]
    cluster.wait("there is an event", lambda: _replaced_for_its_keys(cluster), seconds=60)


def _replaced_for_its_keys(cluster: TestCluster) -> bool:
    """Told by the agent beside etcd's leader, on its own member."""
    return any("EtcdMemberReplaced" in events(cluster, node) for node in CONTROL)
