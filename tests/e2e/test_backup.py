"""Backups of one node: made by the cluster, by a schedule, and to this machine; verified with and without a key."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ha import nothing_failed
from harness import Ended, TestCluster
from s3 import BUCKET, KEY_ID, RELEASE, SECRET_KEY, S3Server, s3_server

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.chain,
    pytest.mark.rotation,
    pytest.mark.timeout(600, func_only=True),
]

DIRECTORY = "/var/lib/autarky/backups"
SECRET = "the-secret-that-no-archive-shows"  # noqa: S105 # what a search for it looks for


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-backup", nodes=[{"name": "n1", "host": "lab", "roles": ["control-plane", "worker"]}])
    cluster.up()
    cluster.kubectl("create", "secret", "generic", "precious", f"--from-literal=key={SECRET}")
    return cluster


@pytest.fixture(scope="module")
def identity(cluster: TestCluster, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """(file, recipient)"""
    file = tmp_path_factory.mktemp("keys") / "identity"
    return file, backup(cluster, "keygen", str(file), named=False).stdout.strip()


def backup(cluster: TestCluster, *argv: str, check: bool = True, named: bool = True) -> Ended:
    of_cluster = ("--cluster", cluster.name) if named else ()
    return cluster.autarky("backup", *argv, *of_cluster, check=check)


def listed(cluster: TestCluster) -> dict[str, dict[str, Any]]:
    """Name → status."""
    found = json.loads(backup(cluster, "list", "-o", "json").stdout)
    return {one["metadata"]["name"]: one.get("status") or {} for one in found}


def files(cluster: TestCluster) -> list[str]:
    return cluster.shell("n1", f"ls {DIRECTORY} 2>/dev/null || :").split()


def leftovers(cluster: TestCluster) -> str:
    """Of work that has ended: pods, and snapshots in the clear."""
    pods = cluster.kubectl("-n", "kube-system", "get", "pods", "-l", "autarky.dev/backup", "-o", "name")
    return pods + cluster.shell("n1", "ls /var/lib/autarky/scratch 2>/dev/null || :")


@contextmanager
def api_down(cluster: TestCluster) -> Iterator[None]:
    cluster.shell("n1", "pkill -x -STOP kube-apiserver")
    try:
        yield
    finally:
        cluster.shell("n1", "pkill -x -CONT kube-apiserver")


def test_nothing_is_written_that_nobody_could_be_kept_from_reading(cluster: TestCluster) -> None:
    refused = backup(cluster, "create", check=False)
    assert refused.status == 2
    assert "there is nothing to encrypt it with" in refused.stderr
    assert listed(cluster) == {}


def test_a_backup_is_made_in_the_cluster_while_nothing_fails(cluster: TestCluster, identity: tuple[Path, str]) -> None:
    with cluster.probed() as reports:
        made = backup(cluster, "create", "first", "--recipient", identity[1])
    nothing_failed(reports[0])
    assert "verified" in made.stderr
    status = listed(cluster)["first"]
    assert status["phase"] == "Complete"
    assert status["node"] == "n1"
    assert status["keys"] > 100
    assert sorted(files(cluster)) == sorted([status["file"], status["file"].replace(".tar.gz.age", ".json")])
    assert cluster.shell("n1", f"stat -c %a {DIRECTORY}/{status['file']}").strip() == "600"
    assert cluster.shell("n1", f"grep -al {SECRET} {DIRECTORY}/* || :") == ""
    cluster.wait("what the work has left is gone", lambda: leftovers(cluster) == "")


def test_it_is_verified_without_and_with_the_key(cluster: TestCluster, identity: tuple[Path, str]) -> None:
    without = backup(cluster, "verify", "first")
    assert "has the digest that it was written with" in without.stderr
    given = backup(cluster, "verify", "first", "--identity", str(identity[0]))
    keys = listed(cluster)["first"]["keys"]
    assert f"serves {keys:,} keys" in given.stderr


def test_a_damaged_archive_is_found(cluster: TestCluster, identity: tuple[Path, str]) -> None:
    file = f"{DIRECTORY}/{listed(cluster)['first']['file']}"
    cluster.shell("n1", f"cp {file} /tmp/intact; printf x | dd of={file} bs=1 seek=100000 conv=notrunc status=none")
    try:
        found = backup(cluster, "verify", "first", check=False)
        assert found.status == 2
        assert "is not what was written" in found.stderr
    finally:
        cluster.shell("n1", f"cp /tmp/intact {file}; rm /tmp/intact")
    backup(cluster, "verify", "first")


def test_with_the_api_down_a_backup_comes_to_this_machine(
    cluster: TestCluster, identity: tuple[Path, str], tmp_path: Path
) -> None:
    file = tmp_path / "home.tar.gz.age"
    phrase = tmp_path / "phrase"
    phrase.write_text("correct horse battery\n")
    with api_down(cluster):
        backup(cluster, "create", "--to", str(file), "--passphrase-file", str(phrase), "--recipient", identity[1])
    assert file.stat().st_mode & 0o777 == 0o600
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong\n")
    refused = backup(cluster, "verify", str(file), "--passphrase-file", str(wrong), check=False, named=False)
    assert refused.status == 2
    assert "does not open" in refused.stderr
    opened = backup(cluster, "verify", str(file), "--passphrase-file", str(phrase), named=False)
    assert "an etcd that was started from it serves" in opened.stderr
    contents = json.loads(backup(cluster, "show", str(file), "--passphrase-file", str(phrase), named=False).stdout)
    assert contents["cluster"] == cluster.name
    assert {"host/etc/kubernetes/pki/ca.key", "host/etc/kubernetes/pki/etcd/ca.key"} <= contents["files"].keys()
    assert "cluster/cluster.json" in contents["files"]


def test_a_schedule_asks_for_backups_and_gives_old_ones_up(cluster: TestCluster, identity: tuple[Path, str]) -> None:
    schedule = {
        "apiVersion": "autarky.dev/v1alpha1",
        "kind": "BackupSchedule",
        "metadata": {"name": "often"},
        "spec": {"every": "1m", "keep": {"count": 1}, "template": {"encryption": {"recipients": [identity[1]]}}},
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(schedule))

    def complete() -> list[str]:
        return sorted(n for n, one in listed(cluster).items() if n.startswith("often-") and one.get("verified"))

    cluster.wait("the first one is complete", lambda: len(complete()) == 1, seconds=120)
    first = complete()[0]
    cluster.wait("the second one has replaced it", lambda: complete() not in ([first], []), seconds=180, pause=1)
    cluster.wait("the first one is gone", lambda: first not in listed(cluster), seconds=60)
    cluster.kubectl("patch", "backupschedule", "often", "--type=merge", "-p", '{"spec":{"paused":true}}')
    cluster.wait("its archive is gone", lambda: not [one for one in files(cluster) if first in one], seconds=60)
    assert listed(cluster)["first"]["phase"] == "Complete"


def s3_backup(cluster: TestCluster, name: str, server: S3Server, recipient: str) -> dict[str, Any]:
    """Asked for with kubectl; its status when it has come to an end."""
    where = {"bucket": BUCKET, "endpoint": server.endpoint, "prefix": "of/tests", "credentialsSecret": "s3"}
    obj = {
        "apiVersion": "autarky.dev/v1alpha1",
        "kind": "Backup",
        "metadata": {"name": name},
        "spec": {"target": {"s3": where}, "encryption": {"recipients": [recipient]}},
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(obj))
    cluster.wait(
        f"{name} has ended", lambda: listed(cluster)[name].get("phase") in ("Complete", "Failed"), seconds=240, pause=1
    )
    return listed(cluster)[name]


def credentials(cluster: TestCluster, server: S3Server, secret_key: str) -> None:
    cluster.kubectl("-n", "kube-system", "delete", "secret", "s3", "--ignore-not-found")
    given = (f"--from-literal=accessKeyID={KEY_ID}", f"--from-literal=secretAccessKey={secret_key}")
    authority = f"--from-file=caCertificates={server.ca}"
    cluster.kubectl("-n", "kube-system", "create", "secret", "generic", "s3", *given, authority)


@pytest.mark.needs(RELEASE, group="s3")
def test_archives_go_to_a_server_that_speaks_s3_and_are_removed_there(
    cluster: TestCluster, identity: tuple[Path, str], tmp_path: Path
) -> None:
    gateway = cluster.shell("n1", "ip -4 route show default").split()[2]
    with s3_server(gateway, tmp_path) as server:
        credentials(cluster, server, "wrong")
        refused = s3_backup(cluster, "refused", server, identity[1])
        assert refused["phase"] == "Failed"
        assert BUCKET in refused["message"]
        assert server.objects() == []
        credentials(cluster, server, SECRET_KEY)
        made = s3_backup(cluster, "away", server, identity[1])
        assert made["phase"] == "Complete", made
        file = f"of/tests/{made['file']}"
        assert server.objects() == sorted([file, file.replace(".tar.gz.age", ".json")])
        local = tmp_path / made["file"]
        local.write_bytes((server.directory / BUCKET / file).read_bytes())
        given = backup(cluster, "verify", str(local), "--identity", str(identity[0]), named=False)
        assert f"serves {made['keys']:,} keys" in given.stderr
        cluster.kubectl("patch", "backup", "away", "--type=merge", "-p", '{"spec":{"state":"Removed"}}')
        cluster.wait("it is gone", lambda: "away" not in listed(cluster), seconds=120)
        assert server.objects() == []


def test_deleting_the_objects_removes_no_archive(cluster: TestCluster) -> None:
    cluster.kubectl("delete", "backupschedule", "often")
    file = listed(cluster)["first"]["file"]
    cluster.kubectl("delete", "backups", "--all")
    assert listed(cluster) == {}
    assert file in files(cluster)
