"""Three control nodes are restored under load: nobody acknowledges what is lost, and the restore is taken back."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from ha import CONTROL, wait_until_healthy
from harness import TestCluster
from one_etcd import one_etcd_at_a_time
from power import Client, Writer
from recoveries import (
    SPACE,
    Keys,
    backed_up,
    data_of,
    documented,
    members_agree,
    nothing_is_left_over,
    restore,
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


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    roles = ["control-plane", "worker"]
    cluster = make_cluster("t-restore-ha", nodes=[{"name": n, "host": "lab", "roles": roles} for n in CONTROL])
    cluster.up()
    cluster.kubectl("create", "namespace", SPACE)
    return cluster


def settled(cluster: TestCluster) -> None:
    members_agree(cluster)
    wait_until_healthy(cluster)
    for node in CONTROL:
        nothing_is_left_over(cluster, node)


def of_etcd(cluster: TestCluster) -> dict[str, list[str]]:
    """Its data and its static pods, by node."""
    pods = {node: [name for name in cluster.static_pods(node) if name.startswith("etcd-")] for node in CONTROL}
    return {node: [*data_of(cluster, node), *pods[node]] for node in CONTROL}


def test_a_restore_under_load_is_taken_back_and_made_again(cluster: TestCluster, tmp_path: Path) -> None:
    """Whatever was acknowledged before the old etcd ended is there when the restore is taken back. A kubelet has seen
    later revisions than the restored etcd would have by itself: it follows all the same."""
    keys = Keys(tmp_path)
    write(cluster, before="1")
    archive = backed_up(cluster, keys, tmp_path / "archive")
    archive.with_name("archive.json").unlink()
    write(cluster, after="1")
    archive.rename(tmp_path / "backup.tar.gz.age")
    keys.file.rename(tmp_path / "backup-key.txt")
    shown, put_back, taken_back = documented("Somebody deleted everything")
    assert f"1 configmaps ({SPACE}/after)" in typed(cluster, tmp_path, shown)
    writes = Writer(Client(cluster))
    with writes.writing(), one_etcd_at_a_time(cluster, *CONTROL):
        cluster.wait("it acknowledges", lambda: len(writes.acknowledged) > 20, seconds=60)
        typed(cluster, tmp_path, put_back)
    since = _since_the_longest_pause(writes.acknowledged)
    acknowledged, writes.acknowledged = writes.acknowledged - since, since
    assert since, "the restored etcd has acknowledged nothing"
    assert writes.lost() == set(), "somebody has acknowledged what the restored etcd does not have"
    assert written(cluster) == {"before": "1"}
    runs_a_new_pod(cluster, "first", "n3")
    settled(cluster)
    assert len(acknowledged) > 20
    typed(cluster, tmp_path, taken_back)
    assert written(cluster) == {"before": "1", "after": "1"}
    writes.acknowledged = acknowledged
    assert writes.lost() == set()
    settled(cluster)
    typed(cluster, tmp_path, put_back)
    assert written(cluster) == {"before": "1"}
    for node in CONTROL:
        runs_a_new_pod(cluster, f"again-{node}", node)
    settled(cluster)


def _since_the_longest_pause(names: set[str]) -> set[str]:
    """Those that were written after it: by the restored etcd."""
    moments = sorted(int(name.rpartition("-")[2]) for name in names)
    pauses = [(after - before, after) for before, after in pairwise(moments)]
    _, begun = max(pauses)
    return {name for name in names if int(name.rpartition("-")[2]) >= begun}


def test_what_does_not_fit_is_refused_before_anything_is_touched(cluster: TestCluster, tmp_path: Path) -> None:
    keys, others = Keys(tmp_path), tmp_path / "others"
    others.mkdir()
    archive = backed_up(cluster, keys, tmp_path / "archive")
    before = of_etcd(cluster)
    wrong = Keys(others)
    content = archive.read_bytes()
    archive.with_name("archive.json").unlink()
    for refused, argv in (
        ("does not open", [str(archive), "--identity", str(wrong.file)]),
        ("give --identity", [str(archive)]),
        ("is no control node that answers", [str(archive), "--identity", str(keys.file), "--on", "n9"]),
    ):
        ended = restore(cluster, *argv, "--yes", check=False)
        assert ended.status == 2, ended
        assert refused in ended.stderr
        assert of_etcd(cluster) == before
    archive.write_bytes(content[: len(content) // 2])
    assert restore(cluster, str(archive), "--identity", str(keys.file), "--yes", check=False).status == 2
    assert of_etcd(cluster) == before
