"""Recoveries whose new etcd takes no writes: which one it replaces is known all the same, so that no two serve."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autarky import places
from autarky.errors import UserError
from autarky.phases.recovery.starting import StartEtcd
from autarky.phases.recovery.state import FromMember, FromSnapshot, Recovered, began_in
from autarky.places import ETCD_FENCE
from fakes.recovering_host import DATABASE
from unit.phases.recovery.scenes import OLD, Scene, all_is_well

pytestmark = pytest.mark.looptime
NO_SPACE = "etcdserver: mvcc: database space exceeded"


def noted(scene: Scene) -> Recovered | None:
    return Recovered.read(scene.hosts["n1"].files.get(places.ETCD_RECOVERED, (None, 0))[0])


def takes_no_writes(scene: Scene) -> None:
    for host in scene.hosts.values():
        host.fails["put"] = NO_SPACE


@pytest.mark.parametrize("kind", ["snapshot", "member"])
async def test_rule_3_what_a_full_etcd_replaces_is_in_it_and_on_its_host(
    scene: Scene, snapshot: FromSnapshot, kind: str
) -> None:
    """Live objects may have all of its quota again when it starts."""
    takes_no_writes(scene)
    if kind == "member":
        scene.lost_quorum()
    await scene.run(FromMember() if kind == "member" else snapshot)
    [cluster] = scene.etcd.serving()
    found = noted(scene)
    assert scene.former() == {OLD}
    assert (found.cluster, found.replaced) == (f"{cluster:x}", {OLD})
    assert found.revision == scene.etcd.values[cluster]["revision"]
    if kind == "member":
        scene.on("n2", "n3")
        scene.etcd.agents_look()
    all_is_well(scene)


async def test_the_host_knows_it_before_the_new_etcd_may_start(scene: Scene, snapshot: FromSnapshot) -> None:
    await scene.run(snapshot)
    acts = [one for one in scene.etcd.acts if one.startswith("n1: ")]
    written = next(number for number, one in enumerate(acts) if places.ETCD_RECOVERED in one)
    assert acts.index("n1: place") < written < acts.index("n1: release-etcd")


async def test_data_that_an_earlier_release_has_made_is_noted_on_the_host_before_etcd_refuses_the_note(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    """It wrote nothing into that. The others stay fenced, and the error says what to do."""
    recovery, context = await scene.until(snapshot, StartEtcd)
    host = scene.hosts["n1"]
    del host.files[began_in(recovery.work)]
    path = f"{recovery.work}/new/{DATABASE}"
    host.files[path] = (host.files[path][0].replace(b"former-clusters", b"something-else"), 0o600)
    takes_no_writes(scene)
    with pytest.raises(UserError, match=f"n1: the new etcd does not take the note .*{NO_SPACE}") as refused:
        await StartEtcd(recovery).run(context, scene.notes)
    assert "`autarky etcd defrag` and `autarky etcd alarm --disarm`" in refused.value.fix
    assert recovery.placed
    assert noted(scene).replaced == {OLD}
    assert ETCD_FENCE in scene.hosts["n2"].files
    for one in scene.hosts.values():
        one.fails.clear()
    await scene.run(snapshot)
    assert scene.former() == {OLD}
    all_is_well(scene)


async def test_a_restore_says_before_that_the_backup_is_of_a_full_etcd(scene: Scene, snapshot: FromSnapshot) -> None:
    assert not [one for one in await scene.plan(snapshot) if "NOSPACE" in one]
    [said] = [one for one in await scene.plan(replace(snapshot, alarms=("NOSPACE",))) if "NOSPACE" in one]
    assert said.startswith("backup-1 is of an etcd that took no writes (alarm NOSPACE)")
    assert "spec.etcd.quotaBytes" in said
    [said] = [one for one in await scene.plan(replace(snapshot, alarms=("CORRUPT",))) if "CORRUPT" in one]
    assert "spec.etcd.quotaBytes" not in said
