"""The benchmark of backups: what of its figures is limited."""

from __future__ import annotations

import json
from hashlib import sha256

import pytest
from _figures import table
from backup import CLUSTER, PARTS, Measured, _unpack, figures, parts_of

from autarky.archive import Lock, fresh_identity
from autarky.archive.contents import SNAPSHOT, Contents, EtcdSeen, FileSeen
from autarky.archive.sealing import Part, seal

MEASURED = Measured(
    database=1_200_000_000,
    archive=700_000_000,
    backup=90.0,
    worker=80_000_000,
    trial=300_000_000,
    before={"kept-alive": 5.0, "new-connections": 10.0, "writes": 20.0},
    during={"kept-alive": 9.0, "new-connections": 19.0, "writes": 39.0},
    restore=40.0,
    parts=dict.fromkeys(PARTS.values(), 5.0),
    alone=12.0,
)


def missed(**other: object) -> list[str]:
    return [one.name for one in figures([Measured(**{**vars(MEASURED), **other})]) if not one.kept]


def test_what_is_as_wanted_is_kept():
    assert missed() == []


@pytest.mark.parametrize(
    ("other", "name"),
    [
        ({"worker": 100_000_001}, "memory: the backup's program"),
        ({"during": {**MEASURED.during, "kept-alive": 10.1}}, "p99 of a GET, beside at rest"),
        ({"during": {**MEASURED.during, "writes": 40.1}}, "p99 of a write, beside at rest"),
        ({"restore": 42.1}, "restore, beside etcdutl snapshot restore"),
    ],
)
def test_each_limit_that_is_missed_is_named(other, name):
    assert missed(**other) == [name]


@pytest.mark.parametrize(
    ("other", "name"),
    [
        ({"database": 0}, "the snapshot"),
        ({"archive": 0}, "the archive"),
        ({"worker": 0}, "the memory of the backup's program"),
        ({"trial": 0}, "the memory of the etcd that tries the snapshot"),
        ({"before": {**MEASURED.before, "writes": 0.0}}, "the 99th percentile of writes at rest"),
        ({"during": {**MEASURED.during, "kept-alive": 0.0}}, "the 99th percentile of kept-alive during the backup"),
        ({"during": {**MEASURED.during, "writes": float("nan")}}, "the 99th percentile of writes during the backup"),
    ],
)
def test_what_was_not_measured_is_no_figure_within_its_limit(other, name):
    with pytest.raises(SystemExit, match=f"nothing was measured of {name}$"):
        missed(**other)


def test_the_table_says_the_difference_and_the_limits():
    text = table(figures([MEASURED]), "without")
    assert "without" in text.splitlines()[0]
    assert "at most 100 MB" in text
    assert "+28.0, at most +30 s" in text


def test_the_time_of_a_restore_is_told_apart_by_its_events():
    ended = [{"kind": "operation-ended", "seconds": 24.5}]
    ended += [{"kind": "phase-ended", "phase": name, "seconds": 2} for name in (*PARTS, "judge-versions")]
    ended += [{"kind": "operation-ended", "seconds": 90.5}]
    log = "\n".join(["what etcd says", *map(json.dumps, ended)])
    assert parts_of(log) == {PARTS["open the backup"]: 24.5, **dict.fromkeys([*PARTS.values()][1:], 2.0)}


def test_the_quota_is_larger_than_what_is_written():
    quota = int(CLUSTER.spec["extraArgs"]["etcd"]["quota-backend-bytes"])
    assert quota > 2 * 1024**3


def test_the_snapshot_of_an_archive_is_what_is_restored_alone(tmp_path):
    identity, recipient = fresh_identity()
    files = {"host/etc/x": b"of the host", SNAPSHOT: b"of etcd" * 1000}
    seen = {name: FileSeen(len(content), sha256(content).hexdigest()) for name, content in files.items()}
    etcd = EtcdSeen("3.6.16", "abc", 5, 6, 7)
    contents = Contents("one", "ca", "2026-11-27T00:00:00Z", "n1", "0.1.0", "1.36.0", etcd, seen)
    archive, snapshot = tmp_path / "archive", tmp_path / "snapshot.db"
    with archive.open("wb") as written:
        parts = [Part("manifest.json", contents.written()), *(Part(name, content) for name, content in files.items())]
        seal(parts, Lock((recipient,)), written)
    _unpack(archive, identity, snapshot)
    assert snapshot.read_bytes() == files[SNAPSHOT]
