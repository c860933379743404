"""A backup is of what etcd's quorum has: what a single member has is none, unless somebody says that it is enough."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autarky.archive.contents import CONTROL_PLANE, MOST_BESIDES, Contents, read
from autarky.archive.sealing import Part
from autarky.control.backup.decide.written_by import comes_up_with, excerpt
from autarky.errors import Refused, UserError
from autarky.etcd.snapshots import Intact, Tried
from autarky.upkeep import backup
from autarky.upkeep.backup import Marker, Snapshot, Taken, Unfit, archive_of, snapshot_taken
from fakes.backed_up_host import BackedUpHost

STANDBY = "host/var/lib/autarky/standby/kube-apiserver/current/pod.json"


async def taken(host: BackedUpHost, *, without_quorum: bool = False) -> Taken:
    async with snapshot_taken(host, "test", 1.1, lambda _: None, without_quorum=without_quorum) as found:
        assert host.left == [found.path]
        return found


def contents_of(
    one: Taken, *, revision: int, marker: str = "v1.37.1", plane: bytes | None = None, standby: bytes | None = None
) -> Contents:
    snapshot = Snapshot(Path(one.path), one, Intact(100, "00"), Tried(revision, 4))
    files = [] if standby is None else [Part(STANDBY, standby)]
    cluster = {} if plane is None else {CONTROL_PLANE: plane}
    _, [manifest, *_] = archive_of(
        Marker("demo", "ca", "n1", marker), snapshot, files, made="now", autarky="0.1", cluster=cluster
    )
    assert isinstance(manifest.content, bytes)
    return read(manifest.content)


async def test_files_that_nobody_would_read_again_make_no_backup() -> None:
    found = await taken(BackedUpHost("n1", quorum=700, own=700))
    with pytest.raises(UserError, match=r"bytes besides the snapshot(.|\n)*move what is none of autarky's out of"):
        contents_of(found, revision=700, standby=bytes(MOST_BESIDES + 1))
    assert contents_of(found, revision=700, standby=bytes(MOST_BESIDES)).etcd.revision == 700


async def test_a_member_that_reaches_the_quorum_is_backed_up_with_all_that_the_quorum_had() -> None:
    found = await taken(BackedUpHost("n1", quorum=700, own=700))
    assert found.least == 700
    assert contents_of(found, revision=700).etcd.quorum
    assert contents_of(found, revision=705).etcd.revision == 705, "written since"


@pytest.mark.parametrize(
    ("host", "seen"),
    [
        (BackedUpHost("n1", quorum=None), "n1: its member of etcd does not reach a quorum: .*deadline exceeded"),
        (BackedUpHost("n1", answers=False), "n1: its member of etcd does not answer"),
    ],
)
async def test_a_member_that_is_cut_off_gives_no_backup(host: BackedUpHost, seen: str) -> None:
    """It has what there was days ago, and nothing is wrong with its snapshot."""
    with pytest.raises(Unfit, match=seen) as refused:
        await taken(host)
    assert backup.HAS_ALL in str(refused.value)
    assert (host.saved, host.left) == (0, [])


async def test_while_members_differ_none_is_made_of_any() -> None:
    host = BackedUpHost("n1", alarms=[2])
    with pytest.raises(Refused, match="alarm CORRUPT") as refused:
        await taken(host)
    assert not isinstance(refused.value, Unfit), "another node has the same alarm"
    assert host.saved == 0


async def test_another_alarm_is_no_obstacle() -> None:
    """A database that is full is a reason to have a backup."""
    assert (await taken(BackedUpHost("n1", alarms=[1]))).least == 500


async def test_of_a_full_etcd_its_manifest_says_so() -> None:
    """Also without a quorum; where there is no alarm, an earlier release reads it as well."""
    for host in (BackedUpHost("n1", alarms=[1]), BackedUpHost("n1", quorum=None, own=500, alarms=[1])):
        found = contents_of(await taken(host, without_quorum=host.quorum is None), revision=500)
        assert found.etcd.alarms == ("NOSPACE",)
        assert json.loads(found.written())["etcd"]["alarms"] == ["NOSPACE"]
    without = contents_of(await taken(BackedUpHost("n1")), revision=500)
    assert without.etcd.alarms == ()
    assert "alarms" not in json.loads(without.written())["etcd"]


async def test_a_snapshot_that_is_older_than_what_the_quorum_had_before_counts_not() -> None:
    found = await taken(BackedUpHost("n1", quorum=700, own=699))
    with pytest.raises(Unfit, match="of revision 699, and the quorum had 700 before"):
        contents_of(found, revision=699)


async def test_without_a_quorum_it_is_made_where_somebody_wants_that_and_says_so() -> None:
    host = BackedUpHost("n1", quorum=None, own=42)
    found = await taken(host, without_quorum=True)
    assert found.least is None
    manifest = contents_of(found, revision=42)
    assert not manifest.etcd.quorum
    assert json.loads(manifest.written())["etcd"]["quorum"] is False


def test_an_archive_that_says_nothing_of_a_quorum_is_read() -> None:
    known = contents_of(Taken("x", 1, "3.6.16", 0xC1, ("n1",), 1), revision=1)
    said = json.loads(replace(known).written())
    del said["etcd"]["quorum"]
    assert read(json.dumps(said).encode()) == known


# --- with which version of Kubernetes it is to be read ----------------------------------------------------------------


def a_standby(version: str) -> bytes:
    server = {"name": "kube-apiserver", "image": f"registry.k8s.io/kube-apiserver:{version}"}
    return json.dumps({"spec": {"containers": [{"name": "wait", "image": "x:v9.9.9"}, server]}}).encode()


def a_plane(complete: str, *noted: str) -> bytes:
    upgrade = {"upgrade": {"versions": list(noted)}} if noted else {}
    return json.dumps({"spec": {"version": "v1.39.0"}, "status": {"version": complete, **upgrade}}).encode()


@pytest.mark.parametrize(
    ("marker", "plane", "standby", "version"),
    [
        ("v1.36.4", a_plane("v1.37.1"), None, "v1.37.1"),  # an upgrade through the API leaves the marker as it is
        ("v1.37.1", a_plane("v1.36.4"), a_standby("v1.36.4"), "v1.36.4"),  # and so does a way back
        ("v1.36.4", a_plane("v1.36.4", "v1.37.1"), a_standby("v1.36.4"), "v1.37.1"),  # under way, or soaking
        ("v1.36.4", a_plane("v1.37.1", "v1.36.4"), a_standby("v1.37.1"), "v1.37.1"),  # on the way back
        ("v1.36.4", a_plane("v1.36.4"), a_standby("v1.36.9"), "v1.36.9"),  # somebody has set an image
        ("v1.35.4", None, a_standby("v1.37.1"), "v1.37.1"),  # etcd has no quorum
        ("v1.36.4", b"[", a_standby("latest"), "v1.36.4"),
        ("v1.36.4", None, b"{", "v1.36.4"),
        ("v1.36.4", None, None, "v1.36.4"),
    ],
)
def test_it_is_to_be_read_with_the_version_that_has_written_it_not_with_that_of_the_hosts_marker(
    marker: str, plane: bytes | None, standby: bytes | None, version: str
) -> None:
    one = Taken("x", 1, "3.6.16", 0xC1, ("n1",), 1)
    assert contents_of(one, revision=1, marker=marker, plane=plane, standby=standby).kubernetes == version


@pytest.mark.parametrize(
    ("label", "standby", "version"),
    [
        ("v1.35.4", a_standby("v1.37.1"), "v1.37.1"),
        ("v1.37.1", a_standby("v1.36.4"), "v1.37.1"),
        ("v1.36.4", b"\xff", "v1.36.4"),
        ("latest", a_standby("v1.37.1"), "latest"),
    ],
)
def test_an_archive_that_has_its_version_from_the_marker_is_read_with_that_of_the_standby_in_it(
    label: str, standby: bytes, version: str
) -> None:
    """As earlier releases have made them."""
    known = contents_of(Taken("x", 1, "3.6.16", 0xC1, ("n1",), 1), revision=1)
    old = read(replace(known, kubernetes=label).written())
    plane = json.dumps({"spec": {"version": "v1.39.0"}}).encode()
    assert backup.version_of(old, {STANDBY: standby, CONTROL_PLANE: plane}) == version


def test_of_the_control_plane_a_backup_has_what_says_the_version() -> None:
    upgrade = {"versions": ["v1.37.1"]}
    status = {"version": "v1.36.4", "formerVersion": "v1.35.4", "upgrade": upgrade}
    plane = {"metadata": {"uid": "x"}, "spec": {"version": "v1.37.1"}, "status": {**status, "nodes": ["many"]}}
    assert excerpt(plane) == {"spec": {"version": "v1.37.1"}, "status": status}
    assert excerpt({"spec": {}, "status": None}) == {"spec": {}}
    assert excerpt(None) == {}


@pytest.mark.parametrize(
    ("label", "plane", "version"),
    [
        ("v1.37.1", a_plane("v1.37.1"), "v1.37.1"),
        ("v1.37.1", a_plane("v1.36.4", "v1.37.1"), "v1.36.4"),  # the operator goes on from there
        ("v1.36.9", a_plane("v1.36.4"), "v1.36.4"),  # an image that somebody has set, which autarky may not know
        ("v1.38.0", a_plane("v1.36.4"), "v1.38.0"),  # two minors back nobody reads it
        ("v1.37.1", None, "v1.37.1"),
        ("latest", a_plane("v1.36.4"), "latest"),
    ],
)
def test_new_machines_come_up_with_what_the_control_plane_in_it_has_had_completely(
    label: str, plane: bytes | None, version: str
) -> None:
    assert comes_up_with(label, plane) == version
