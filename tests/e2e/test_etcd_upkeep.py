"""`autarky etcd` on three control nodes: looking and looking after, also with the API down and without a quorum."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ha import CONTROL, etcd_leader, nothing_failed
from harness import Ended, TestCluster

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(600, func_only=True)]

BULK = 40
"""ConfigMaps of 500 kB: what they leave behind when they are deleted is worth a defragmentation."""


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    roles = ["control-plane", "worker"]
    cluster = make_cluster("t-etcd-upkeep", nodes=[{"name": n, "host": "lab", "roles": roles} for n in CONTROL])
    cluster.up()
    return cluster


def etcd(cluster: TestCluster, *argv: str, check: bool = True) -> Ended:
    return cluster.autarky("etcd", *argv, "--cluster", cluster.name, check=check)


def etcd_status(cluster: TestCluster) -> dict[str, Any]:
    """Also of an etcd that is not well."""
    ended = etcd(cluster, "status", "-o", "json", check=False)
    assert ended.stdout, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    assert ended.status == (0 if found["healthy"] else 1)
    return found


def sizes(cluster: TestCluster) -> dict[str, tuple[int, int]]:
    return {one["name"]: (one["size"], one["in_use"]) for one in etcd_status(cluster)["members"]}


def alarms(cluster: TestCluster) -> list[list[str]]:
    """Of each member."""
    return [one["alarms"] for one in etcd_status(cluster)["members"]]


@contextmanager
def hung(cluster: TestCluster, program: str, *nodes: str) -> Iterator[None]:
    """These processes answer nothing."""
    for node in nodes:
        cluster.shell(node, f"pkill -x -STOP {program}")
    try:
        yield
    finally:
        for node in nodes:
            cluster.shell(node, f"pkill -x -CONT {program}")


def test_each_member_is_shown_and_the_leader_moves_where_it_is_wanted(cluster: TestCluster) -> None:
    found = etcd_status(cluster)
    assert [one["name"] for one in found["members"]] == list(CONTROL)
    assert found["healthy"]
    assert found["findings"] == []
    target = next(node for node in CONTROL if node != etcd_leader(cluster))
    with cluster.probed() as reports:
        etcd(cluster, "move-leader", target)
    nothing_failed(reports[0])
    assert etcd_leader(cluster) == target
    assert [one["name"] for one in etcd_status(cluster)["members"] if one["leads"]] == [target]
    table = etcd(cluster, "members").stdout.splitlines()
    assert [line.split()[0] for line in table] == ["MEMBER", *CONTROL]
    refused = etcd(cluster, "move-leader", "n9", check=False)
    assert refused.status == 2
    assert "its members are: n1, n2, n3" in refused.stderr


def test_free_space_is_given_back_under_load(cluster: TestCluster, tmp_path: Path) -> None:
    content = tmp_path / "content"
    content.write_text("x" * 500_000)
    for number in range(BULK):
        cluster.kubectl("create", "configmap", f"bulk-{number}", f"--from-file=content={content}")
    cluster.kubectl("delete", "configmap", *(f"bulk-{number}" for number in range(BULK)))
    with cluster.probed() as reports:
        etcd(cluster, "compact", "--keep", "10")
        before = sizes(cluster)
        etcd(cluster, "defrag")
    nothing_failed(reports[0])
    after = sizes(cluster)
    assert all(size - in_use > BULK * 400_000 for size, in_use in before.values()), before
    assert all(size < before[node][0] - BULK * 400_000 for node, (size, _) in after.items()), (before, after)


def test_a_snapshot_is_fetched_and_is_said_to_be_no_backup(cluster: TestCluster, tmp_path: Path) -> None:
    target = tmp_path / "etcd.db"
    said = etcd(cluster, "snapshot", str(target))
    assert "this is no backup" in said.stderr
    assert target.stat().st_mode & 0o777 == 0o600
    assert b"/registry/namespaces/kube-system" in target.read_bytes()
    assert etcd(cluster, "snapshot", str(target), check=False).status == 2
    for node in CONTROL:
        assert cluster.shell(node, "ls -A /var/lib/autarky/scratch 2>/dev/null || true") == ""


def test_it_works_while_no_api_server_answers(cluster: TestCluster, tmp_path: Path) -> None:
    with hung(cluster, "kube-apiserver", *CONTROL):
        assert etcd_status(cluster)["healthy"]
        etcd(cluster, "snapshot", str(tmp_path / "etcd.db"))
        etcd(cluster, "defrag", "n1")
        target = next(node for node in CONTROL if node != etcd_leader(cluster))
        etcd(cluster, "move-leader", target)
        assert etcd_leader(cluster) == target
        etcd(cluster, "compact", "--keep", "10")
        etcd(cluster, "alarm", "--disarm")
        for command in ("status", "members"):
            lines = etcd(cluster, command).stdout.splitlines()
            assert {line.split()[0] for line in lines if line} >= {*CONTROL}
        assert [one["member"] for one in json.loads(etcd(cluster, "members", "-o", "json").stdout)] == list(CONTROL)
        assert json.loads(etcd(cluster, "alarm", "-o", "json").stdout) == []
    cluster.wait("the API answers", cluster.api_answers, seconds=120)


def test_without_a_quorum_it_looks_and_refuses_to_act(cluster: TestCluster) -> None:
    with hung(cluster, "etcd", "n2", "n3"):
        found = etcd_status(cluster)
        assert not found["quorum"]
        assert "etcd has no quorum" in found["findings"][0]
        assert {one["name"] for one in found["members"] if one["error"]} >= {"n2", "n3"}
        refused = etcd(cluster, "defrag", check=False)
        assert refused.status == 6
        assert "etcd has no quorum" in refused.stderr
    cluster.wait("the API answers", cluster.api_answers, seconds=120)
    cluster.wait("etcd is healthy", lambda: etcd_status(cluster)["healthy"], seconds=120)


def test_while_a_member_does_not_answer_no_other_one_is_defragmented(cluster: TestCluster) -> None:
    follower = next(node for node in CONTROL if node != etcd_leader(cluster))
    with hung(cluster, "etcd", follower):
        done = etcd(cluster, "defrag", "-o", "plain", check=False)
    assert "waiting: all members of etcd are healthy" in done.stderr
    assert f"{follower}: " in done.stderr
    assert done.status == 0  # its kubelet has restarted it meanwhile
    cluster.wait("etcd is healthy", lambda: etcd_status(cluster)["healthy"], seconds=120)


def test_an_alarm_without_a_cause_is_cleared_and_the_documented_commands_do_no_harm(cluster: TestCluster) -> None:
    """It is raised by hand: `test_etcd_full` has a real one, and the agent beside etcd's leader acts on both."""
    member = next(one for one in etcd_status(cluster)["members"] if one["name"] == "n1")
    body = json.dumps({"action": "ACTIVATE", "memberID": str(int(member["id"], 16)), "alarm": "NOSPACE"})
    pki = "/etc/kubernetes/pki/etcd"
    cluster.shell(
        "n1",
        f"curl -sf --cacert {pki}/ca.crt --cert {pki}/server.crt --key {pki}/server.key"
        f" https://127.0.0.1:2379/v3/maintenance/alarm -d '{body}'",
    )
    cluster.wait("the alarm is cleared", lambda: not any(alarms(cluster)), seconds=90)
    reasons = ("get", "events", "-n", "default", "--field-selector=reason=EtcdAlarmCleared", "-o", "name")
    cluster.wait("there is an event of it", lambda: cluster.kubectl(*reasons) != "", seconds=30)
    etcd(cluster, "compact", "--keep", "0")
    etcd(cluster, "defrag")
    etcd(cluster, "alarm", "--disarm")
    assert etcd(cluster, "alarm").stdout.split() == ["MEMBER", "ALARM"]
    cluster.kubectl("create", "configmap", "now")
    assert etcd_status(cluster)["healthy"]
