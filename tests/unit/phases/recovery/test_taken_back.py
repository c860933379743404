"""Which recovery is taken back, and by whom; and which versions can read what is put in place."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from autarky import places
from autarky.control.backup.decide.fitting import OWN_VERSION
from autarky.control.backup.decide.written_by import STANDBY_POD
from autarky.errors import Refused, UserError
from autarky.payload import etcd_version
from autarky.phases.binaries import STORE
from autarky.phases.recovery.judging import JudgeVersions
from autarky.phases.recovery.programs import newest_etcd
from autarky.phases.recovery.state import FromKept, FromMember, FromSnapshot, Recovered
from fakes.recovering_host import RecoveringHost
from unit.phases.recovery.scenes import OLD, Scene, not_hosted

pytestmark = pytest.mark.looptime


def noted(scene: Scene, name: str = "n1") -> Recovered:
    found = Recovered.read(scene.hosts[name].files[places.ETCD_RECOVERED][0])
    assert found is not None
    return found


def note(scene: Scene, **changes: Any) -> Recovered:
    found = replace(noted(scene), **changes)
    scene.hosts["n1"].files[places.ETCD_RECOVERED] = (found.file().content, 0o600)
    return found


# --- which one --------------------------------------------------------------------------------------------------------


async def test_what_was_taken_back_is_not_taken_back_again_by_the_same_command(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    await scene.run(snapshot)
    assert noted(scene).kind == "snapshot"
    await scene.run(FromKept())
    assert noted(scene).kind == "kept"
    with pytest.raises(Refused, match=rf"the last recovery, of {noted(scene).at}, has taken one back") as refused:
        await scene.run(FromKept())
    assert f"`autarky restore --undo --again --made {noted(scene).at}`" in str(refused.value)
    assert scene.etcd.acts == []
    note(scene, kind="")  # of an older release
    with pytest.raises(Refused, match="has taken one back"):
        await scene.plan(FromKept())
    await scene.run(FromKept(again=True))
    [cluster] = scene.etcd.serving()
    assert "/registry/pods/demo/restored" in scene.etcd.values[cluster]["keys"]


async def test_an_old_one_is_taken_back_only_by_its_date(scene: Scene, snapshot: FromSnapshot) -> None:
    await scene.run(snapshot)
    at = note(scene, at="2026-12-24T12:00:00Z").at
    with pytest.raises(Refused, match=f"the last recovery is that of {at}: more than a day") as refused:
        await scene.run(FromKept())
    assert f"`autarky restore --undo --made {at}`" in str(refused.value)
    with pytest.raises(Refused, match="and none of 2026-12-25"):
        await scene.run(FromKept(made="2026-12-25T12:00:00Z"))
    assert scene.etcd.acts == []
    await scene.run(FromKept(made=at))
    assert noted(scene).made_of == f"made of what was there before {at}"


async def test_what_it_loses_is_said_with_its_date_and_how_much_that_is(scene: Scene, snapshot: FromSnapshot) -> None:
    await scene.run(snapshot)
    [cluster] = scene.etcd.serving()
    scene.etcd.values[cluster]["revision"] = noted(scene).revision + 1234
    [said] = await scene.plan(FromKept())
    assert said.startswith(f"the recovery of {noted(scene).at} is taken back: its etcd on n1 was made of backup-1, and")
    assert "what was written since (1,234 changes) is lost" in said


async def test_a_time_that_cannot_be_understood_is_an_old_one(scene: Scene, snapshot: FromSnapshot) -> None:
    await scene.run(snapshot)
    note(scene, at="yesterday")
    with pytest.raises(Refused, match="more than a day"):
        await scene.plan(FromKept())
    assert await scene.plan(FromKept(made="yesterday")) != []


async def test_where_a_restore_begins_without_data_to_keep_it_is_said_that_there_is_no_way_back(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    """Before it, and to whoever asks for one."""
    await not_hosted(scene)
    has_no_member(scene, "n3")
    said = "n3 has no data of etcd to keep, and so this restore cannot be taken back: name a member's node"
    assert await scene.plan(replace(snapshot, node="n3")) == [f"{said}, with --on n1 or n2"]
    assert await scene.plan(replace(snapshot, node="n2")) == []
    await scene.run(replace(snapshot, node="n3"))
    assert noted(scene, "n3").kept == ""
    with pytest.raises(UserError, match="cannot be taken back: n3, where its etcd began, had no data") as refused:
        await scene.plan(FromKept())
    assert f"{places.ETCD_DATA}/kept.*" in str(refused.value)


def has_no_member(scene: Scene, name: str) -> None:
    host = scene.hosts[name]
    host.take_away_pods()
    host.process = False
    for path in host._below(f"{places.ETCD_DATA}/member"):
        del host.files[path]
    del host.files[places.ETCD_CLUSTER]
    del scene.etcd.voters[OLD][name]


async def test_without_a_quorum_it_begins_by_itself_where_there_is_data_to_keep(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    has_no_member(scene, "n1")
    scene.etcd.voters[OLD] |= {"n4": 4, "n5": 5}
    recovery, _ = await scene.until(snapshot, JudgeVersions)
    assert recovery.seat == "n2"


async def test_one_that_a_later_one_has_replaced_is_not_the_last_one(scene: Scene, snapshot: FromSnapshot) -> None:
    """Its node was off then, and nobody looks after members there."""
    await not_hosted(scene)
    await scene.run(replace(snapshot, node="n1"))
    scene.off("n1")
    await scene.run(replace(snapshot, node="n2"))
    scene.on("n1")
    recovery, _ = await scene.until(FromKept(), JudgeVersions)
    assert (recovery.seat, recovery.data) == ("n2", noted(scene, "n2").kept)


# --- versions ---------------------------------------------------------------------------------------------------------


async def test_the_versions_that_have_written_the_kept_data_are_noted_and_judged(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    await scene.run(snapshot)
    context = scene.make()
    own = str(etcd_version(context.release)).removeprefix("v")
    assert (noted(scene).kubernetes, noted(scene).etcd) == (str(context.cluster.kubernetes_version), own)
    for changes in ({"kubernetes": "v1.35.0"}, {"etcd": "3.99.0"}):
        before = noted(scene)
        note(scene, **changes)
        with pytest.raises(Refused, match=OWN_VERSION):
            await scene.run(FromKept())
        assert scene.etcd.acts == []
        note(scene, kubernetes=before.kubernetes, etcd=before.etcd)
    note(scene, kubernetes="", etcd="")  # of an older release
    await scene.run(FromKept())


def with_standby(scene: Scene, **versions: str) -> None:
    """Node → the version of the API server that has served there."""
    for name, version in versions.items():
        containers = [{"name": "kube-apiserver", "image": f"registry.k8s.io/kube-apiserver:{version}"}]
        content = json.dumps({"spec": {"containers": containers}}).encode()
        scene.hosts[name].files[STANDBY_POD] = (content, 0o600)


async def test_a_backup_is_compared_with_what_the_hosts_have_not_with_the_file(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    """After an upgrade through the API file and markers name the version from before."""
    in_file = str(scene.make().cluster.kubernetes_version)
    with_standby(scene, n1="v1.99.1", n2="v1.99.1", n3="v1.99.1")
    for version in (in_file, "v1.98.4"):
        with pytest.raises(Refused, match=rf"with Kubernetes {version}, and this cluster has v1\.99\.1:"):
            await scene.run(replace(snapshot, kubernetes=version))
        assert scene.etcd.acts == []
    await scene.run(replace(snapshot, kubernetes="v1.99.1"))
    assert noted(scene).kubernetes == "v1.99.1"
    await scene.run(FromKept())


async def test_in_the_middle_of_an_upgrade_a_backup_from_before_it_fits_and_one_of_it(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    with_standby(scene, n1="v1.98.4", n2="v1.99.1")
    for version in ("v1.98.4", "v1.99.1"):
        recovery, context = await scene.until(replace(snapshot, kubernetes=version), JudgeVersions)
        assert await JudgeVersions(recovery).plan(context) == []
    await scene.run(replace(snapshot, kubernetes="v1.98.4"))
    assert noted(scene).kubernetes == "v1.99.1", "what is kept may have been written by the later one"


async def test_where_no_host_says_what_it_has_the_file_does(scene: Scene, snapshot: FromSnapshot) -> None:
    scene.hosts["n1"].files[STANDBY_POD] = (b"{", 0o600)
    in_file = str(scene.make().cluster.kubernetes_version)
    with pytest.raises(Refused, match=f"this cluster has {in_file}:"):
        await scene.run(replace(snapshot, kubernetes="v1.98.4"))
    await scene.run(replace(snapshot, kubernetes=in_file))


def with_program(host: RecoveringHost, version: str, *names: str) -> None:
    """That version of etcd's programs, of etcd alone where none is named. Those from before stay in the store."""
    for name in names or ("etcd",):
        content = f"{name} Version: {version}".encode()
        target = f"{STORE}/{name}-{sha256(content).hexdigest()[:16]}"
        host.files[target] = (content, 0o755)
        host.links[f"{places.BIN}/{name}"] = target


async def test_a_backup_of_the_etcd_that_the_cluster_has_been_brought_to_is_restored(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    """By an edit of the ControlPlane: no file on this machine says so."""
    written = replace(snapshot, etcd="3.7.3")
    with_program(scene.hosts["n1"], "3.7.3")
    scene.hosts["n1"].images["registry.k8s.io/etcd:3.7.3-0"] = "sha256:1"
    assert await newest_etcd(scene.make(), scene.hosts["n1"]) == "3.7.3"
    await scene.run(written)
    [cluster] = scene.etcd.serving()
    assert "/registry/pods/demo/restored" in scene.etcd.values[cluster]["keys"]


async def test_one_of_a_newer_etcd_than_its_hosts_have_is_refused_before_anything_is_touched(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    own = str(etcd_version(scene.make().release)).removeprefix("v")
    for version in ("", "3.5.35"):
        if version:
            with_program(scene.hosts["n1"], version)
        with pytest.raises(Refused, match=rf"its snapshot is of etcd 3\.99\.0, and this cluster has etcd {own}"):
            await scene.run(replace(snapshot, etcd="3.99.0"))
        assert scene.etcd.acts == []


async def test_a_members_own_data_is_read_by_the_etcd_that_is_there(scene: Scene) -> None:
    scene.lost_quorum()
    await scene.run(FromMember())
