"""A backup in the place of what there is, and how that is taken back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autarky import places
from autarky.control.backup.decide.loss import Written
from autarky.control.etcd.decide.lineage import FORMER
from autarky.control.etcd.decide.recovery import BUMP
from autarky.control.etcd.manifests.members import KIND
from autarky.errors import CommandFailed, UserError
from autarky.etcd.log import frames
from autarky.phases.recovery.comparing import TellLoss
from autarky.phases.recovery.fencing import FenceEtcd
from autarky.phases.recovery.joining import ReturnMembers
from autarky.phases.recovery.looking import LookForData
from autarky.phases.recovery.starting import StartEtcd
from autarky.phases.recovery.state import FromKept, FromMember, FromSnapshot, Recovered, Recovery
from autarky.places import ETCD_FENCE
from autarky.render.crds import API_VERSION
from unit.phases.recovery.scenes import OLD, Scene, all_is_well, not_hosted, says

pytestmark = pytest.mark.looptime
LATE = "/registry/pods/demo/late"


# --- a backup ---------------------------------------------------------------------------------------------------------


async def test_a_backup_takes_the_place_of_what_there_is_on_the_node_that_leads(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    scene.etcd.leader = "n2"
    recovery = await scene.run(snapshot)
    assert recovery.seat == "n2"
    all_is_well(scene)
    [cluster] = scene.etcd.serving()
    assert set(scene.etcd.values[cluster]["keys"]) == {"/registry/pods/demo/restored", FORMER}
    assert scene.etcd.values[cluster]["revision"] >= 500 + BUMP, "clients have seen the revisions of the one before"


async def test_the_old_etcd_serves_until_the_new_data_is_complete(scene: Scene, snapshot: FromSnapshot) -> None:
    recovery, context = await scene.until(snapshot, FenceEtcd)
    assert recovery.made
    assert scene.etcd.serving() == [OLD]
    await FenceEtcd(recovery).run(context, scene.notes)
    assert scene.etcd.serving() == []


async def test_the_seat_is_fenced_when_the_others_have_ended(scene: Scene, snapshot: FromSnapshot) -> None:
    """Its data is kept, to be taken back: whatever the others have acknowledged must have come to it."""
    scene.etcd.leader = "n2"
    recovery, context = await scene.until(snapshot, FenceEtcd)
    before = len(scene.etcd.acts)
    await FenceEtcd(recovery).run(context, scene.notes)
    acts = scene.etcd.acts[before:]
    first = next(number for number, act in enumerate(acts) if act.startswith("n2: "))
    assert {act.partition(":")[0] for act in acts[:first]} == {"n1", "n3"}
    assert {act.partition(":")[0] for act in acts[first:]} == {"n2"}


def acknowledged_by_others(scene: Scene) -> None:
    """n2 leads; what it and n3 have acknowledged has not come to n1 yet."""
    scene.etcd.leader = "n2"
    values = scene.etcd.values[OLD]
    scene.etcd.values[OLD] = {"revision": 501, "keys": {**values["keys"], LATE: "1"}}
    for name, member in (("n2", 2), ("n3", 3)):
        scene.hosts[name].has_data(OLD, member, scene.etcd.values[OLD], entries=6)


async def test_rule_3_a_seat_that_does_not_lead_leads_before_the_first_fence(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    """An undo has what was acknowledged until then: a leader has all of that."""
    acknowledged_by_others(scene)
    await scene.run(replace(snapshot, node="n1"))
    acts = scene.etcd.acts
    assert acts.index("n1: move the leadership") < acts.index(f"n2: write {ETCD_FENCE}")
    await scene.run(FromKept())
    [cluster] = scene.etcd.serving()
    assert LATE in scene.etcd.values[cluster]["keys"]


async def test_where_the_leadership_does_not_move_that_is_said(scene: Scene, snapshot: FromSnapshot) -> None:
    """It stops no restore: what an undo would have is another question."""
    acknowledged_by_others(scene)
    scene.hosts["n1"].fails["move-leader"] = "leader transfer took too long"
    await scene.until(replace(snapshot, node="n1"), StartEtcd)
    said = "n1 does not lead etcd, and an undo may lack what the others have acknowledged last"
    assert [one for one in scene.notes.notes if one.startswith(said) and "took too long" in one]
    assert ETCD_FENCE in scene.hosts["n1"].files


async def test_a_seat_that_has_no_member_cannot_lead_and_that_is_said(scene: Scene, snapshot: FromSnapshot) -> None:
    acknowledged_by_others(scene)
    del scene.etcd.voters[OLD]["n1"]
    await scene.until(replace(snapshot, node="n1"), StartEtcd)
    assert [one for one in scene.notes.notes if one.endswith("it is no member that votes")]


async def test_a_seat_that_leads_already_goes_on_doing_so(scene: Scene, snapshot: FromSnapshot) -> None:
    await scene.run(snapshot)
    assert "n1: move the leadership" not in scene.etcd.acts


async def test_it_begins_where_somebody_wants_it(scene: Scene, snapshot: FromSnapshot) -> None:
    source = FromSnapshot(snapshot.path, snapshot.name, snapshot.size, snapshot.revision, "n3")
    assert (await scene.run(source)).seat == "n3"
    all_is_well(scene)


async def test_it_begins_on_a_node_that_the_backup_knows_though_another_one_leads(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    """The agent beside the only member lets the others join; the API serves none of a node that it does not know."""
    scene.etcd.leader = "n2"
    assert (await scene.run(replace(snapshot, members=("n3", "elsewhere")))).seat == "n3"
    all_is_well(scene)


async def test_a_node_that_is_none_or_does_not_answer_is_refused(scene: Scene, snapshot: FromSnapshot) -> None:
    scene.off("n3")
    source = FromSnapshot(snapshot.path, snapshot.name, snapshot.size, snapshot.revision, "n3")
    with pytest.raises(UserError, match="n3 is no control node that answers") as refused:
        await scene.run(source)
    assert "n1, n2" in refused.value.fix


async def test_a_backup_is_restored_where_etcd_does_not_answer(scene: Scene, snapshot: FromSnapshot) -> None:
    scene.lost_quorum()
    assert (await scene.run(snapshot)).seat == "n1"
    all_is_well(scene)


@pytest.mark.parametrize("step", ["begin", "make"])
async def test_if_a_backup_cannot_be_made_into_an_etcd_the_old_one_has_never_stopped(
    scene: Scene, snapshot: FromSnapshot, step: str
) -> None:
    scene.hosts["n1"].fails[step] = "it says no"
    with pytest.raises(CommandFailed, match="it says no"):
        await scene.run(snapshot)
    assert scene.etcd.serving() == [OLD]
    assert not any(ETCD_FENCE in host.files for host in scene.hosts.values())
    assert all(host.left() == {"member"} for host in scene.hosts.values())


async def test_what_is_lost_is_said_before_anything_is_done(scene: Scene, snapshot: FromSnapshot) -> None:
    then: dict[str, Written] = {"/registry/pods/demo/restored": (1, 1)}
    recovery, context = Recovery(snapshot), scene.make()
    await LookForData(recovery).plan(context)
    said = [one.sentence for one in await TellLoss(recovery, lambda: then).plan(context)]
    assert said == [
        "created since the backup, and gone after the restore: 1 pods (demo/web)",
        "deleted since the backup, and back after the restore: 1 pods (demo/restored)",
    ]
    assert scene.etcd.acts == []
    assert not [path for host in scene.hosts.values() for path in host.files if "scratch" in path]


async def test_of_a_restore_that_is_resumed_nothing_is_said_again(scene: Scene, snapshot: FromSnapshot) -> None:
    """What is lost was said before it began, and etcd may have the new data by now."""
    await scene.until(snapshot, ReturnMembers)
    recovery, context = Recovery(snapshot), scene.make()
    await LookForData(recovery).plan(context)
    assert await TellLoss(recovery, dict).plan(context) == []


async def test_where_etcd_does_not_answer_that_is_said_instead(scene: Scene, snapshot: FromSnapshot) -> None:
    scene.lost_quorum()
    recovery, context = Recovery(snapshot), scene.make()
    await LookForData(recovery).plan(context)
    [said] = await TellLoss(recovery, dict).plan(context)
    assert "etcd does not answer" in said.sentence


# --- taken back -------------------------------------------------------------------------------------------------------


async def test_a_restore_is_taken_back_with_the_data_from_before_it(scene: Scene, snapshot: FromSnapshot) -> None:
    await scene.run(snapshot)
    [restored] = scene.etcd.serving()
    at = scene.etcd.values[restored]["revision"]
    [said] = await scene.plan(FromKept())
    assert "is taken back" in said
    await scene.run(FromKept())
    [cluster] = scene.etcd.serving()
    assert cluster not in (OLD, restored)
    assert "/registry/pods/demo/web" in scene.etcd.values[cluster]["keys"]
    assert "/registry/pods/demo/restored" not in scene.etcd.values[cluster]["keys"]
    assert scene.etcd.values[cluster]["revision"] >= at + BUMP
    assert restored in scene.former()


async def test_if_the_log_of_the_data_from_before_is_damaged_that_is_said_before(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    await scene.run(snapshot)
    files = scene.hosts["n1"].files
    log = f"{Recovered.read(files[places.ETCD_RECOVERED][0]).kept}/member/wal/0.wal"
    content = bytearray(files[log][0])
    content[[0, *(behind for _, behind in frames(bytes(content)))][1 + 3] + 20] ^= 1
    files[log] = (bytes(content), 0o600)
    [said] = await scene.plan(FromKept())
    assert said.endswith("is lost, and so are 3 entries of that data, whose log is damaged")


async def test_where_nothing_was_recovered_nothing_is_taken_back(scene: Scene) -> None:
    with pytest.raises(UserError, match="no recovery can be taken back"):
        await scene.run(FromKept())
    assert scene.etcd.acts == []


async def test_data_that_somebody_has_deleted_cannot_be_taken_up(scene: Scene, snapshot: FromSnapshot) -> None:
    await scene.run(snapshot)
    kept = Recovered.read(scene.hosts["n1"].files[places.ETCD_RECOVERED][0]).kept
    for path in [path for path in scene.hosts["n1"].files if path.startswith(kept)]:
        del scene.hosts["n1"].files[path]
    with pytest.raises(UserError, match=r"there is no data of etcd in .* any more"):
        await scene.run(FromKept())


async def test_members_that_were_off_all_the_time_never_go_on_as_the_first_etcd_whatever_has_replaced_it(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    """n2 and n3 are its majority. A recovery on n1 replaces it; that is taken back, and a backup restored."""
    scene.lost_quorum()
    await scene.run(FromMember())
    replaced = {OLD, *scene.etcd.serving()}
    for source in (FromKept(), snapshot, FromKept()):
        await scene.run(source)
        assert replaced <= scene.former() | set(scene.etcd.serving())
        replaced |= set(scene.etcd.serving())
    scene.on("n2", "n3")
    scene.etcd.agents_look()
    all_is_well(scene)


# --- the others -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("levels", "hosted"), [("0-4", True), ("02-4", False)])
async def test_with_the_kubelet_hosted_agents_look_after_members_only_where_etcd_is_as_well(
    scene: Scene, snapshot: FromSnapshot, hosted: bool, levels: str
) -> None:
    scene.etcd.hosted = hosted
    await says(scene, levels)
    if not hosted:
        for name in ("n1", "n2", "n3"):
            await scene.kube.delete(API_VERSION, KIND, name)
    await scene.run(snapshot)
    all_is_well(scene)
    assert ("n1: add a learner" in scene.etcd.acts) == (not hosted)


async def test_members_that_no_agent_looks_after_join_one_after_the_other_as_learners(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    """Where level 1 is not hosted."""
    await not_hosted(scene)
    await scene.run(snapshot)
    all_is_well(scene)
    [cluster] = scene.etcd.serving()
    assert scene.etcd.voters[cluster].keys() == {"n1", "n2", "n3"}
    acts = [act for act in scene.etcd.acts if "learner" in act or "promote" in act]
    assert acts == ["n1: add a learner", "n1: promote", "n1: add a learner", "n1: promote"]
