"""Recoveries that are cut: the same command leads to one etcd all the same, that knows which ones it has replaced."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from autarky import places
from autarky.errors import AutarkyError, Refused, UserError
from autarky.phases.recovery.joining import ReturnMembers
from autarky.phases.recovery.making import MakeData
from autarky.phases.recovery.state import FromMember, FromSnapshot
from autarky.places import ETCD_FENCE, ETCD_FENCED
from fakes.recovering_host import Cut
from unit.phases.recovery.scenes import OLD, Scene, all_is_well, not_hosted, with_two_left

pytestmark = pytest.mark.looptime


# --- an interruption --------------------------------------------------------------------------------------------------


async def everywhere(
    prepared: Callable[[], Awaitable[Scene]], source, how: Cut, judge: Callable[[Scene], Awaitable[None]]
) -> None:
    """The command is cut at its first act, at its second one, and so on, each time in a scene of its own."""
    for number in range(100):
        scene = await prepared()
        scene.etcd.cut, scene.etcd.how = number, how
        with suppress(AutarkyError):
            await scene.go_on(source)
        was_cut = scene.etcd.is_cut
        acts = scene.etcd.acts[: number + 1]
        scene.etcd.on_again()
        try:
            await judge(scene)
        except BaseException as error:
            error.add_note(f"after it was cut at act {number}: {', '.join(acts)}")
            raise
        if not was_cut:
            break
    assert 15 < number < 99


async def resumed(scene: Scene) -> None:
    """Where nothing was left to do, it is refused."""
    with suppress(Refused):
        await scene.run(FromMember())
    all_is_well(scene)


@pytest.mark.parametrize("how", Cut)
async def test_rule_5_a_recovery_with_one_machine_left_that_is_cut_anywhere_is_finished_by_the_next_one(
    scenes, how: Cut
) -> None:
    """Also when what is left to do is only a note of which etcd it replaces: the others are the majority of that."""

    async def prepared() -> Scene:
        scene = scenes()
        scene.lost_quorum()
        return scene

    async def judge(scene: Scene) -> None:
        await resumed(scene)
        scene.on("n2", "n3")
        scene.etcd.agents_look()
        all_is_well(scene)

    await everywhere(prepared, FromMember(), how, judge)


@pytest.mark.parametrize("how", Cut)
async def test_rule_5_so_is_one_with_two_machines_left(scenes, how: Cut) -> None:
    async def prepared() -> Scene:
        return with_two_left(scenes())

    await everywhere(prepared, FromMember(), how, resumed)


async def restored(scene: Scene, snapshot: FromSnapshot) -> None:
    """Meanwhile the old etcd may go on, or none, and never both."""
    assert len(scene.etcd.serving()) <= 1
    await scene.run(snapshot)
    all_is_well(scene)
    [cluster] = scene.etcd.serving()
    assert "/registry/pods/demo/restored" in scene.etcd.values[cluster]["keys"]
    assert scene.etcd.voters[cluster].keys() == {"n1", "n2", "n3"}


@pytest.mark.parametrize("how", Cut)
async def test_rule_5_so_is_a_restore_into_an_etcd_that_serves(scenes, snapshot: FromSnapshot, how: Cut) -> None:
    async def prepared() -> Scene:
        return scenes()

    await everywhere(prepared, snapshot, how, lambda scene: restored(scene, snapshot))


@pytest.mark.parametrize("how", Cut)
async def test_rule_5_so_is_one_where_no_agent_looks_after_members(scenes, snapshot: FromSnapshot, how: Cut) -> None:
    async def prepared() -> Scene:
        scene = scenes()
        await not_hosted(scene)
        return scene

    await everywhere(prepared, snapshot, how, lambda scene: restored(scene, snapshot))


async def test_an_interrupted_recovery_whose_seat_is_silent_is_refused_until_it_is_back(two_left: Scene) -> None:
    """It may have made a new etcd: with a second one there would be two."""
    recovery, _ = await two_left.until(FromMember(), ReturnMembers)
    two_left.off("n2")
    with pytest.raises(Refused, match="may have made a new etcd on n2, which does not answer") as refused:
        await two_left.run(FromMember())
    assert "--from NODE (n1)" in str(refused.value)
    assert two_left.etcd.acts == []
    two_left.on("n2")
    assert (await two_left.run(FromMember())).id == recovery.id
    all_is_well(two_left)


async def test_if_the_seat_is_lost_a_person_may_say_from_which_other_data(two_left: Scene) -> None:
    recovery, _ = await two_left.until(FromMember(), ReturnMembers)
    two_left.off("n2")
    again = await two_left.run(FromMember("n1"))
    assert again.id != recovery.id
    all_is_well(two_left)


async def test_where_the_quorum_has_come_back_meanwhile_it_is_said_how_a_fence_that_is_left_is_removed(
    scene: Scene,
) -> None:
    """Cut before there was new data, and then the other machines were powered on."""
    scene.lost_quorum()
    await scene.until(FromMember(), MakeData)
    scene.on("n2", "n3")
    with pytest.raises(Refused, match="etcd has a quorum") as refused:
        await scene.run(FromMember())
    assert "run `autarky etcd recover-quorum --abandon`: a recovery that was cut has left a fence on n1" in str(
        refused.value
    )


async def test_one_whose_data_is_complete_is_resumed_with_it(two_left: Scene) -> None:
    """Where the same is asked for, or no data in particular; nothing else is resumed without a word."""
    recovery, context = await two_left.until(FromMember("n1"), MakeData)
    await MakeData(recovery).run(context, two_left.notes)
    with pytest.raises(Refused, match=r"made of the data of n1 .* was interrupted on 2027-"):
        await two_left.plan(FromMember("n2"))
    [said] = await two_left.plan(FromMember("n1"))
    assert said.startswith("an interrupted recovery is resumed: the new etcd on n1, made of the data of n1 (as asked")
    assert (await two_left.run(FromMember())).id == recovery.id
    assert not [act for act in two_left.etcd.acts if "copy" in act or "make" in act]
    all_is_well(two_left)


async def test_one_whose_data_is_not_complete_begins_from_scratch(two_left: Scene) -> None:
    recovery, _ = await two_left.until(FromMember(), MakeData)
    assert (await two_left.run(FromMember())).id != recovery.id
    all_is_well(two_left)


async def test_a_fence_that_cannot_be_read_is_no_absent_fence(two_left: Scene) -> None:
    two_left.hosts["n1"].files[ETCD_FENCE] = (b"{", 0o600)
    with pytest.raises(UserError, match="cannot be read"):
        await two_left.run(FromMember())
    assert two_left.etcd.acts == []


# --- a power cut of another host --------------------------------------------------------------------------------------


MEANWHILE: dict[str, dict[str, Any]] = {
    "it is back at once": {},
    "it is back when the command has ended": {"stays_off": True},
    "the command is killed at the same moment": {"how": Cut.KILLED},
}


@pytest.mark.parametrize("name", ["n2", "n3"])
@pytest.mark.parametrize("meanwhile", MEANWHILE)
async def test_rule_5_a_power_cut_of_another_host_at_any_moment_costs_the_new_etcd_no_member(
    scenes, snapshot: FromSnapshot, meanwhile: str, name: str
) -> None:
    """Where no agent looks after members. What the boot of a host takes away stays away; and where the command says
    that it has succeeded, nobody runs it again."""
    others, number = MEANWHILE[meanwhile], 0
    for number in range(100):
        scene = scenes()
        await not_hosted(scene)
        scene.etcd.boots, scene.etcd.stays_off = (number, name), "stays_off" in others
        if "how" in others:
            scene.etcd.cut, scene.etcd.how = number + 1, others["how"]
        succeeded = True
        try:
            await scene.go_on(snapshot)
        except AutarkyError:
            succeeded = False
        acts = list(scene.etcd.acts)
        scene.etcd.on_again()
        if scene.hosts[name].off or number + 1 >= len(acts):
            scene.hosts[name].boot()
        try:
            if not succeeded:
                await scene.run(snapshot)
            await all_have_come(scene)
        except BaseException as error:
            error.add_note(f"after the power of {name} failed at act {number}: {', '.join(acts[: number + 1])}")
            raise
        if number + 1 >= len(acts):
            break
    assert 25 < number < 99


async def all_have_come(scene: Scene) -> None:
    """And after another power cut of each, one after the other, they still run."""
    for name in ("", *scene.hosts):
        if name:
            scene.hosts[name].boot()
        all_is_well(scene)
        [cluster] = scene.etcd.serving()
        assert scene.etcd.voters[cluster].keys() == scene.etcd.running(cluster) == scene.hosts.keys()
        assert not scene.etcd.learners.get(cluster)


async def joined_as_by_an_earlier_version(scene: Scene, snapshot: FromSnapshot, *names: str) -> int:
    """It removed all fences at the end. The power of each that has joined fails before that, and the boot takes the
    static pod of its new member away."""
    await not_hosted(scene)
    recovery, context = await scene.until(snapshot, ReturnMembers)
    returning = ReturnMembers(recovery)
    for name in names:
        await returning._join(context, context.cluster.node(name), scene.notes)
    [cluster] = scene.etcd.serving()
    for name in names:
        host = scene.hosts[name]
        host.files[ETCD_FENCE] = (recovery.fence.file().content, 0o600)
        host.boot()
        assert (host.pods, ETCD_FENCED in host.files) == ([], True)
    return cluster


async def test_a_member_that_had_joined_and_was_taken_away_gives_the_quorum_back(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    """Of two voters."""
    cluster = await joined_as_by_an_earlier_version(scene, snapshot, "n2")
    assert scene.etcd.serving() == []
    await scene.run(snapshot)
    await all_have_come(scene)
    assert scene.etcd.serving() == [cluster]
    assert scene.etcd.voters[cluster]["n2"] == 1001, "it is the same member"


async def test_a_recovery_that_has_ended_leaves_no_voter_without_its_static_pod(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    """Of three voters: there is a quorum without it. Its pod lies where the fence is, and nowhere else."""
    cluster = await joined_as_by_an_earlier_version(scene, snapshot, "n2", "n3")
    scene.hosts["n2"].boot()
    scene.etcd.hosts["n3"].files.pop(ETCD_FENCE)
    scene.etcd.hosts["n3"].files[f"{places.MANIFESTS}/etcd-n3.json"] = scene.hosts["n3"].files.pop(ETCD_FENCED)
    assert scene.etcd.serving() == [cluster]
    await scene.run(snapshot)
    await all_have_come(scene)
    assert scene.etcd.serving() == [cluster]


async def test_a_voter_whose_data_is_gone_is_not_started_from_scratch(scene: Scene, snapshot: FromSnapshot) -> None:
    cluster = await joined_as_by_an_earlier_version(scene, snapshot, "n2", "n3")
    host = scene.hosts["n3"]
    host.rename(f"{places.ETCD_DATA}/member", f"{places.ETCD_DATA}/kept.by-mistake")
    with pytest.raises(UserError, match="lists n3 as a member that votes, and the member's data is not there") as said:
        await scene.run(snapshot)
    assert f"etcdctl member remove {scene.etcd.voters[cluster]['n3']:x}" in said.value.fix
    assert host.pods == []


# --- a note of whose the former data was ------------------------------------------------------------------------------


@pytest.mark.parametrize("scene", [1], indirect=True)
async def test_the_seat_does_not_take_its_new_data_for_that_of_the_former_etcd_at_its_next_boot(scene: Scene) -> None:
    """Its agent notes within half a minute whose data it is; the power may fail before. At the boot the script compares
    the note with what the new etcd says that it has replaced."""
    host = scene.hosts["n1"]
    scene.off("n1")
    host.off, scene.etcd.voters[OLD] = False, {"n1": 1, "n2": 2}
    await scene.run(FromMember())
    assert_not_former(scene, "n1")


async def test_nor_does_a_member_that_has_joined(scene: Scene, snapshot: FromSnapshot) -> None:
    await not_hosted(scene)
    await scene.run(snapshot)
    for name in scene.hosts:
        assert_not_former(scene, name)


def assert_not_former(scene: Scene, name: str) -> None:
    noted = scene.hosts[name].files.get(places.ETCD_CLUSTER, (b"", 0))[0].decode().strip()
    assert noted == "" or int(noted, 16) not in scene.former()
    scene.hosts[name].boot()
    assert scene.hosts[name].runs in scene.etcd.serving()
