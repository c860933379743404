"""Three control nodes lose their quorum, or are restored: nothing acknowledged is lost that need not be, and never are
there two clusters.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ha import CONTROL, cut, member_objects, nothing_lost, start, wait_until_healthy
from harness import TestCluster, kill_when
from one_etcd import one_etcd_at_a_time
from power import Client, Writer
from recoveries import (
    SPACE,
    data_of,
    documented,
    members_agree,
    nothing_is_left_over,
    runs_a_new_pod,
    typed,
    write,
    written,
)

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.chain,
    pytest.mark.rotation,
    pytest.mark.timeout(900, func_only=True),
]

API_SECONDS = 60.0
"""From the command to an API that answers, as is promised; with two processors for all hosts it is a quarter of it."""

SOON = {"spec": {"etcd": {"replaceAfterSeconds": 60}}}


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    roles = ["control-plane", "worker"]
    control = [{"name": name, "host": "lab", "roles": roles} for name in CONTROL]
    cluster = make_cluster("t-recovery", nodes=[*control, {"name": "n4", "host": "lab", "roles": ["worker"]}])
    cluster.up()
    cluster.kubectl("create", "namespace", SPACE)
    return cluster


def recover(cluster: TestCluster, *argv: str, status: int = 0) -> str:
    """What it says; ends with that status."""
    ended = cluster.autarky("etcd", "recover-quorum", "--cluster", cluster.name, "-o", "plain", *argv, check=False)
    assert ended.status == status, f"{ended.stdout}\n{ended.stderr}"
    return ended.stderr


def writer(cluster: TestCluster) -> Writer:
    return Writer(Client(cluster))


def settled(cluster: TestCluster) -> None:
    members_agree(cluster)
    wait_until_healthy(cluster)
    for node in CONTROL:
        nothing_is_left_over(cluster, node)


def test_with_a_quorum_it_is_refused_and_nothing_is_touched(cluster: TestCluster) -> None:
    before = {node: (data_of(cluster, node), cluster.static_pods(node)) for node in CONTROL}
    assert "etcd has a quorum" in recover(cluster, "--yes", status=6)
    assert {node: (data_of(cluster, node), cluster.static_pods(node)) for node in CONTROL} == before


def test_two_of_three_are_lost_and_come_back_to_another_etcd(cluster: TestCluster, tmp_path: Path) -> None:
    """One after the other, under load: what two acknowledged is at the end of the survivor's log, marked as committed
    or not. Then both come back at the same moment: they are the majority of the former etcd."""
    write(cluster, before="1")
    writes = writer(cluster)
    with writes.writing():
        cut(cluster, "n2")
        cluster.wait("it goes on without one", lambda: _acknowledges(writes), seconds=60)
        cut(cluster, "n3")
    acknowledged = len(writes.acknowledged)
    assert acknowledged > 20
    planned = recover(cluster, "--dry-run")
    assert "n2 does not answer" in planned
    assert cluster.static_pods("n1") != []
    _is_given_up_as_documented(cluster, tmp_path)
    with one_etcd_at_a_time(cluster, *CONTROL):
        began = time.monotonic()
        recover(cluster, "--yes")
        cluster.wait("the API answers", cluster.api_answers, seconds=API_SECONDS)
        assert time.monotonic() - began < API_SECONDS
        assert writes.lost() == set()
        assert written(cluster) == {"before": "1"}
        with writes.writing():
            start(cluster, "n2", "n3")
            members_agree(cluster)
            runs_a_new_pod(cluster, "after", "n2")
    assert len(writes.acknowledged) > acknowledged
    assert writes.lost() == set()
    settled(cluster)
    for node in ("n2", "n3"):
        assert len([name for name in data_of(cluster, node) if name.startswith("kept.")]) == 1


def _is_given_up_as_documented(cluster: TestCluster, tmp_path: Path) -> None:
    """Killed when it has fenced the member that is left; which then runs again."""
    pods = [name for name in cluster.static_pods("n1") if name.startswith("etcd-")]
    argv = ["etcd", "recover-quorum", "--cluster", cluster.name, "--yes", "-o", "plain"]
    fenced = "ls /var/lib/autarky/state/etcd-fenced.json 2>/dev/null || true"
    killed = kill_when(argv, lambda: cluster.wait("it is fenced", lambda: cluster.shell("n1", fenced), seconds=120))
    assert killed == -signal.SIGKILL
    assert not [name for name in cluster.static_pods("n1") if name.startswith("etcd-")]
    [given_up] = documented("A recovery was interrupted")
    typed(cluster, tmp_path, given_up)
    assert [name for name in cluster.static_pods("n1") if name.startswith("etcd-")] == pods
    nothing_is_left_over(cluster, "n1")


def _acknowledges(writes: Writer) -> bool:
    """Twenty more than now."""
    goal = len(writes.acknowledged) + 20
    time.sleep(3)
    return len(writes.acknowledged) >= goal


def test_hosts_that_are_deleted_are_replaced_by_new_ones_as_documented(cluster: TestCluster, tmp_path: Path) -> None:
    writes = writer(cluster)
    with writes.writing():
        cluster.wait("it acknowledges", lambda: len(writes.acknowledged) > 20, seconds=60)
        cluster.autarky("lab", "remove", "--lab", cluster.name, "n2", "n3")
    cluster.wait("the API is gone", lambda: not cluster.api_answers(), seconds=60)
    recovery, replacement = documented("Two of three are gone")
    assert documented("One machine is gone")[0] == replacement
    typed(cluster, tmp_path, recovery)
    assert writes.lost() == set()
    typed(cluster, tmp_path, replacement)
    assert writes.lost() == set()
    settled(cluster)
    assert nodes_of(cluster) == [*CONTROL, "n4"]


def test_another_node_takes_the_place_of_one_that_is_gone(cluster: TestCluster, tmp_path: Path) -> None:
    """With no command: its label is enough. What is documented then forgets the machine."""
    cluster.kubectl("patch", "controlplane", "cluster", "--type=merge", "-p", json.dumps(SOON))
    with cluster.probed() as reports:
        before = _member_id(cluster, "n3")
        cut(cluster, "n3")
        cluster.kubectl("label", "node", "n4", "node-role.kubernetes.io/control-plane=")
        members_agree(cluster, ["n1", "n2", "n4"])
    nothing_lost(reports[0])
    _joins_as_another_member(cluster, "n3", before)
    cluster.autarky("lab", "remove", "--lab", cluster.name, "n3")
    _, commands = documented("One machine is gone")
    typed(cluster, tmp_path, commands)
    members_agree(cluster, ["n1", "n2", "n4"])
    assert nodes_of(cluster) == ["n1", "n2", "n4"]


def _joins_as_another_member(cluster: TestCluster, node: str, before: str) -> None:
    """A machine that was replaced comes back, and is a control node: with the data that it had it starts no more."""
    with one_etcd_at_a_time(cluster, *CONTROL, "n4"):
        start(cluster, node)
        members_agree(cluster, [*CONTROL, "n4"])
    assert [name for name in data_of(cluster, node) if name.startswith("kept.")]
    assert _member_id(cluster, node) != before


def _member_id(cluster: TestCluster, node: str) -> str:
    return str(member_objects(cluster)[node]["status"]["memberID"])


def nodes_of(cluster: TestCluster) -> list[str]:
    found = json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]
    return sorted(node["metadata"]["name"] for node in found)
