"""A recovery that was interrupted, and what comes weeks later: nothing but its own command goes on with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autarky.engine.phase import Warn
from autarky.engine.runner import run_operation
from autarky.errors import AutarkyError, Refused
from autarky.phases.recovery.abandoning import AbandonRecovery
from autarky.phases.recovery.joining import ReturnMembers
from autarky.phases.recovery.making import MakeData
from autarky.phases.recovery.state import Fence, FromKept, FromMember, FromSnapshot, Recovery
from autarky.places import ETCD_FENCE, ETCD_FENCED
from autarky.workflows.recovery import abandoning
from unit.phases.recovery.scenes import OLD, Scene, abandon, all_is_well, fence, killed_after_fencing_n2

pytestmark = pytest.mark.looptime
WAS_INTERRUPTED = r"a recovery made of backup-1 was interrupted on 2027-01-15T08:00:0\d"


# --- with a quorum ----------------------------------------------------------------------------------------------------


async def test_an_etcd_that_serves_is_not_replaced_by_what_somebody_began_weeks_ago(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    await killed_after_fencing_n2(scene, snapshot)
    assert scene.etcd.serving() == [OLD]
    other = replace(snapshot, name="backup-2")
    for source in (FromMember(), FromMember("n1"), FromKept(), other):
        with pytest.raises(Refused, match=WAS_INTERRUPTED) as refused:
            await scene.run(source)
        assert "`autarky etcd recover-quorum --abandon`" in str(refused.value)
        assert scene.etcd.acts == []
    assert scene.etcd.serving() == [OLD]


async def test_the_same_command_begins_from_scratch_with_what_there_is_now(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    """It has shown again what that takes away; and the revision of the new etcd is above those of today."""
    recovery = await killed_after_fencing_n2(scene, snapshot)
    scene.etcd.values[OLD]["revision"] = 5_000_000_000
    again = await scene.run(snapshot)
    assert again.id != recovery.id
    all_is_well(scene)
    [cluster] = scene.etcd.serving()
    assert scene.etcd.values[cluster]["revision"] > 5_000_000_000


# --- without one ------------------------------------------------------------------------------------------------------


async def test_where_the_quorum_is_lost_weeks_later_the_backup_is_named_and_not_used(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    await killed_after_fencing_n2(scene, snapshot)
    scene.off("n3")
    assert scene.etcd.serving() == []
    with pytest.raises(Refused, match=WAS_INTERRUPTED):
        await scene.run(FromMember())
    assert scene.etcd.acts == []
    await abandon(scene)
    assert scene.etcd.serving() == [OLD], "n2 is back"
    scene.off("n2")
    await scene.run(FromMember())
    [cluster] = scene.etcd.serving()
    assert "/registry/pods/demo/web" in scene.etcd.values[cluster]["keys"]


async def test_the_same_command_finishes_it(scene: Scene, snapshot: FromSnapshot) -> None:
    recovery = await killed_after_fencing_n2(scene, snapshot)
    scene.off("n3")
    assert (await scene.run(snapshot)).id == recovery.id
    scene.on("n3")
    scene.etcd.agents_look()
    all_is_well(scene)


async def test_a_seat_that_was_lost_and_comes_back_is_not_taken_up_again(scene: Scene, snapshot: FromSnapshot) -> None:
    """It dies while the others are fenced, with what is complete on it; somebody goes on with n2."""
    recovery = await killed_after_fencing_n2(scene, snapshot)
    await fence(scene, recovery, "n3")
    await fence(scene, recovery, "n1")
    scene.off("n1")
    await scene.run(FromMember("n2"))
    [cluster] = scene.etcd.serving()
    scene.on("n1")
    assert f"/var/lib/etcd/recovery.{recovery.id}/ready" in scene.hosts["n1"].files
    assert ETCD_FENCE in scene.hosts["n1"].files
    with pytest.raises(Refused, match="etcd has a quorum"):
        await scene.run(FromMember())
    assert scene.etcd.acts == []
    assert scene.etcd.serving() == [cluster]
    scene.off("n3")
    assert scene.etcd.serving() == [], "n2 is one of two"
    said = await scene.plan(snapshot)
    assert any(one.endswith("a later one has replaced it: it is not resumed") for one in said)
    again = await scene.run(snapshot)
    assert again.id != recovery.id
    assert cluster in scene.former()


# --- its data is in its place -----------------------------------------------------------------------------------------


async def placed_on_n1(scene: Scene) -> Recovery:
    scene.lost_quorum()
    recovery, _ = await scene.until(FromMember(), ReturnMembers)
    return recovery


async def test_from_then_on_it_is_finished_whatever_is_asked_for(scene: Scene, snapshot: FromSnapshot) -> None:
    recovery = await placed_on_n1(scene)
    said = await scene.plan(snapshot)
    assert "backup-1 is not restored by this run: give the command again when it has ended" in said
    assert (await scene.run(FromMember())).id == recovery.id


async def test_whoever_asked_for_something_else_hears_that_it_was_not_done(scenes, snapshot: FromSnapshot) -> None:
    """An undo of what was cut would seem to have succeeded, and has completed it."""
    not_done = {
        "nothing is taken back by this run: give `autarky restore --undo` again when it has ended": FromKept(),
        "backup-1 is not restored by this run: give the command again when it has ended": snapshot,
    }
    for sentence, source in not_done.items():
        scene = scenes()
        recovery = await placed_on_n1(scene)
        assert sentence in await scene.plan(source)
        with pytest.raises(Refused, match=r"the recovery made of the data of n1 .* has been finished, and") as refused:
            await scene.run(source)
        assert "to go on: run" in str(refused.value)
        all_is_well(scene)
        assert (await scene.run(source)).id != recovery.id
        all_is_well(scene)


async def test_an_undo_that_was_cut_is_finished_by_an_undo(scene: Scene, snapshot: FromSnapshot) -> None:
    await scene.run(snapshot)
    recovery, _ = await scene.until(FromKept(), ReturnMembers)
    [said] = await scene.plan(FromKept())
    assert said.startswith("an interrupted recovery is resumed")
    assert (await scene.run(FromKept())).id == recovery.id


async def test_but_not_beside_another_etcd_that_has_a_quorum(scene: Scene) -> None:
    """n2 and n3 came back before it was noted which etcd the new one replaces."""
    await placed_on_n1(scene)
    n1 = scene.hosts["n1"]
    n1.take_away_pods()
    n1.process = False
    for name in ("n2", "n3"):
        scene.hosts[name].off, scene.hosts[name].process = False, True
    scene.etcd.hosted = False
    assert scene.etcd.serving() == [OLD]
    scene.etcd.acts.clear()
    with pytest.raises(Refused, match=r"another etcd serves on n2 \(192\.0\.2\.12\), n3") as refused:
        await scene.run(FromMember())
    assert "power off n2 (192.0.2.12), n3 (192.0.2.13), and run the same command again" in str(refused.value)
    assert scene.etcd.acts == []


async def test_it_cannot_be_abandoned(scene: Scene) -> None:
    await placed_on_n1(scene)
    scene.hosts["n1"].files[ETCD_FENCE] = (Fence("x", "n1", "made of x").file().content, 0o600)
    scene.hosts["n1"].files["/var/lib/etcd/recovery.x/ready"] = (b"", 0o600)
    with pytest.raises(Refused, match="is in its place on n1 already"):
        await abandon(scene)
    assert scene.etcd.acts == []


async def test_half_of_a_placing_is_not_taken_back(scene: Scene, snapshot: FromSnapshot) -> None:
    """The old data is moved aside, and the fence of another host breaks: the new data must not go."""
    recovery = await killed_after_fencing_n2(scene, snapshot)
    await fence(scene, recovery, "n3")
    await fence(scene, recovery, "n1")
    n1 = scene.hosts["n1"]
    n1.files[f"{recovery.work}/kept"] = (b"/var/lib/etcd/kept.1", 0o600)
    n1.rename("/var/lib/etcd/member", "/var/lib/etcd/kept.1/member")
    scene.hosts["n2"].fails["fence-etcd"] = "it says no"
    with pytest.raises(Refused, match="is in its place on n1 already"):
        await abandon(scene)
    again = await scene.run(FromMember())
    assert again.id == recovery.id
    all_is_well(scene)


# --- given up ---------------------------------------------------------------------------------------------------------


async def test_what_was_made_goes_before_the_first_fence_and_all_run_again(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    recovery = await killed_after_fencing_n2(scene, snapshot)
    await abandon(scene)
    assert scene.etcd.acts == [f"n1: rm -rf {recovery.work}", "n2: release-etcd"]
    for host in scene.hosts.values():
        assert host.runs == OLD
        assert host.left() == {"member"}
        assert not {ETCD_FENCE, ETCD_FENCED} & host.files.keys()


async def test_cut_anywhere_it_is_finished_by_the_next_one(scenes, snapshot: FromSnapshot) -> None:
    """Rule 5."""
    for number in range(10):
        scene = scenes()
        recovery = await killed_after_fencing_n2(scene, snapshot)
        await fence(scene, recovery, "n3")
        context = scene.make()
        scene.etcd.on_again()
        scene.etcd.cut = number
        try:
            await run_operation("test", "abandon", abandoning(Recovery(FromMember())), context, clock=context.clock)
        except AutarkyError:
            assert number < 3
        else:
            break
        await abandon(scene)
        assert all(host.runs == OLD for host in scene.hosts.values())
    assert number == 3


async def test_where_there_is_nothing_that_is_said(scene: Scene) -> None:
    [said] = await AbandonRecovery(Recovery(FromMember())).plan(scene.make())
    assert isinstance(said, Warn)
    assert "has anything of a recovery that was interrupted" in said.sentence


async def test_while_the_seat_is_silent_nobody_is_released_unless_its_own_etcd_serves(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    """It may have a new etcd by now."""
    recovery = await killed_after_fencing_n2(scene, snapshot)
    await fence(scene, recovery, "n3")
    scene.off("n1")
    with pytest.raises(Refused, match="n1 does not answer, and may have a new etcd by now, made of backup-1"):
        await abandon(scene)
    assert scene.etcd.acts == []
    scene.etcd.voters[OLD] = {"n3": 3}
    scene.hosts["n3"].files.pop(ETCD_FENCE)
    scene.hosts["n3"].files["/etc/kubernetes/manifests/etcd-n3.json"] = scene.hosts["n3"].files.pop(ETCD_FENCED)
    await abandon(scene)
    assert scene.hosts["n2"].runs == OLD


# --- what is written on a host ----------------------------------------------------------------------------------------


def test_a_fence_of_an_older_release_says_neither_kind_nor_date() -> None:
    old = b'{"recovery": "abc", "seat": "n1", "made_of": "made of backup-1"}'
    assert Fence.read(old) == Fence("abc", "n1", "made of backup-1")
    new = Fence("abc", "n1", "made of backup-1", "snapshot", "2027-01-15T08:00:00Z")
    assert Fence.read(new.file().content) == new


async def test_one_of_an_older_release_is_judged_by_its_clause(scene: Scene, snapshot: FromSnapshot) -> None:
    recovery = await killed_after_fencing_n2(scene, snapshot)
    old = replace(recovery.fence, kind="", at="")
    scene.hosts["n2"].files[ETCD_FENCE] = (old.file().content, 0o600)
    with pytest.raises(Refused, match="made of backup-1 was interrupted on an unknown date"):
        await scene.run(FromMember())
    scene.off("n3")
    assert (await scene.run(snapshot)).id == recovery.id


async def test_one_of_a_member_is_finished_by_a_command_that_names_none(two_left: Scene) -> None:
    recovery, context = await two_left.until(FromMember("n1"), MakeData)
    await MakeData(recovery).run(context, two_left.notes)
    assert (await two_left.run(FromMember())).id == recovery.id
