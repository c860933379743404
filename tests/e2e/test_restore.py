"""The drill: one node is backed up, restored, restored again, and the restore is taken back."""

from __future__ import annotations

from pathlib import Path

import pytest
from etcd_versions import up_changes_nothing
from harness import TestCluster
from recoveries import SPACE, Keys, backed_up, nothing_is_left_over, restore, restored, runs_a_new_pod, write, written
from slots import settled

pytestmark = [pytest.mark.e2e, pytest.mark.shares("one_node"), pytest.mark.timeout(600)]


def test_a_backup_is_restored_twice_and_the_restore_is_taken_back(one_node: TestCluster, tmp_path: Path) -> None:
    cluster, keys = one_node, Keys(tmp_path)
    cluster.kubectl("create", "namespace", SPACE)
    # The controller manager writes it a while later, and then it would count as created since the backup.
    cluster.wait("the namespace has its CA", lambda: "kube-root-ca.crt" in _configmaps(cluster))
    write(cluster, kept="1", changed="1", deleted="1")
    archive = backed_up(cluster, keys, tmp_path / "archive")
    write(cluster, changed="2", created="2")
    cluster.kubectl("-n", SPACE, "delete", "configmap", "deleted")
    after = {"kept": "1", "changed": "2", "created": "2"}
    said = restore(cluster, str(archive), "--identity", str(keys.file), "--dry-run").stderr
    for sentence in (
        f"gone after the restore: 1 configmaps ({SPACE}/created)",
        f"as they were: 1 configmaps ({SPACE}/ch",
        f"back after the restore: 1 configmaps ({SPACE}/deleted)",
    ):
        assert sentence in said, [line for line in said.splitlines() if "since the backup" in line]
    assert written(cluster) == after
    restored(cluster, archive, keys)
    assert written(cluster) == {"kept": "1", "changed": "1", "deleted": "1"}
    runs_a_new_pod(cluster, "first", "n1")
    restore(cluster, "--undo", "--yes")
    assert written(cluster) == after
    restored(cluster, archive, keys)
    assert written(cluster) == {"kept": "1", "changed": "1", "deleted": "1"}
    runs_a_new_pod(cluster, "second", "n1")
    cluster.wait("everything is settled", lambda: settled(cluster), seconds=150)
    nothing_is_left_over(cluster, "n1")
    up_changes_nothing(cluster)  # the restored etcd runs as `up` would have it
    cluster.kubectl("delete", "namespace", SPACE)


def _configmaps(cluster: TestCluster) -> str:
    return cluster.kubectl("-n", SPACE, "get", "configmaps", "-o", "name")
