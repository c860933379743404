"""Logs that are read again when all members are fenced, data that was replaced, and disks that are full or dying."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autarky import places
from autarky.control.etcd.manifests.pods import SECOND_DATA
from autarky.errors import CommandFailed, Refused, UserError
from autarky.phases.context import Context
from autarky.phases.recovery.again import QUORUM_SECONDS, AwaitQuorum, ReadLogsAgain
from autarky.phases.recovery.fencing import FenceEtcd
from autarky.phases.recovery.joining import ReturnMembers
from autarky.phases.recovery.looking import LookForData
from autarky.phases.recovery.making import MakeData
from autarky.phases.recovery.state import Fence, FromMember, FromSnapshot, Recovered, Recovery
from autarky.places import ETCD_DATA, ETCD_FENCE
from unit.phases.recovery.scenes import KEYS, OLD, Scene, all_is_well, not_hosted

pytestmark = pytest.mark.looptime
LATER = {"/registry/pods/demo/late": "1"}


# --- between the look and the fence -----------------------------------------------------------------------------------


async def fenced_after_writing(scene: Scene, source: FromMember, name: str, entries: int) -> tuple[Recovery, Context]:
    """That many entries are in its log, which were not there at the look."""
    recovery, context = await scene.until(source, FenceEtcd)
    values = {"revision": 700, "keys": {**KEYS, **LATER}}
    scene.hosts[name].has_data(OLD, int(name[1:]), values, entries=entries)
    await FenceEtcd(recovery).run(context, scene.notes)
    await ReadLogsAgain(recovery).run(context, scene.notes)
    return recovery, context


async def test_whoever_has_written_more_until_its_fence_becomes_the_seat(two_left: Scene) -> None:
    """n1 and n2 have found a third member for a moment, and have acknowledged writes."""
    recovery, context = await fenced_after_writing(two_left, FromMember(), "n1", 150)
    assert recovery.seat == "n1"
    assert recovery.made_of == "made of the data of n1 (the newest: entry 150 of term 1)"
    assert "n1 has written more than n2 meanwhile: the new etcd begins there" in two_left.notes.notes
    for name in ("n1", "n2"):
        assert Fence.read(two_left.hosts[name].files[ETCD_FENCE][0]) == recovery.fence
    two_left.etcd.on_again()
    for host in two_left.hosts.values():
        assert not host.process
    await MakeData(recovery).run(context, two_left.notes)
    assert (await two_left.run(FromMember())).id == recovery.id
    [cluster] = two_left.etcd.serving()
    assert LATER.keys() <= two_left.etcd.values[cluster]["keys"].keys()
    all_is_well(two_left)


async def test_the_seat_may_have_written_more_itself(two_left: Scene) -> None:
    recovery, _ = await fenced_after_writing(two_left, FromMember(), "n2", 150)
    assert recovery.seat == "n2"
    assert "entry 150" in recovery.made_of
    assert Fence.read(two_left.hosts["n1"].files[ETCD_FENCE][0]) == recovery.fence


async def test_the_choice_of_a_person_stands_and_what_it_loses_is_noted(two_left: Scene) -> None:
    recovery, _ = await fenced_after_writing(two_left, FromMember("n1"), "n2", 150)
    assert recovery.seat == "n1"
    assert "n2 has 60 newer entries, which will be lost" in two_left.notes.notes


async def test_if_the_newest_cannot_be_read_any_more_all_go_on_as_before(two_left: Scene) -> None:
    """Another one has less than it."""
    recovery, context = await two_left.until(FromMember(), FenceEtcd)
    await FenceEtcd(recovery).run(context, two_left.notes)
    two_left.hosts["n2"].fails["log"] = "Input/output error"
    with pytest.raises(UserError, match="the data on n2 cannot be read"):
        await ReadLogsAgain(recovery).run(context, two_left.notes)
    for name in ("n1", "n2"):
        assert two_left.hosts[name].runs == OLD
        assert ETCD_FENCE not in two_left.hosts[name].files


async def test_a_quorum_that_comes_back_is_left_alone(scene: Scene) -> None:
    """An election, or a machine that has lost power for a moment."""
    scene.off("n2", "n3")
    recovery, context = await scene.until(FromMember(), AwaitQuorum)
    assert await AwaitQuorum(recovery).plan(context) != []
    ask, asked = AwaitQuorum(recovery), 0
    agents_look = scene.etcd.agents_look

    def meanwhile() -> None:
        nonlocal asked
        asked += 1
        if asked == 20:
            scene.on("n2", "n3")
        agents_look()

    scene.etcd.agents_look = meanwhile  # type: ignore[method-assign]
    with pytest.raises(Refused, match="etcd has a quorum"):
        await ask.run(context, scene.notes)
    assert scene.etcd.acts == []
    assert scene.etcd.serving() == [OLD]


async def test_one_that_does_not_is_waited_for_and_no_longer(scene: Scene) -> None:
    scene.lost_quorum()
    recovery, context = await scene.until(FromMember(), AwaitQuorum)
    began = context.clock.monotonic()
    await AwaitQuorum(recovery).run(context, scene.notes)
    assert QUORUM_SECONDS <= context.clock.monotonic() - began < QUORUM_SECONDS + 10


# --- data that was replaced -------------------------------------------------------------------------------------------


async def replaced_on_n1(scene: Scene) -> str:
    """n1 has the data of an etcd that the one on n2 has replaced. Returns when."""
    scene.off("n1", "n3")
    scene.hosts["n2"].has_data(OLD, 2, scene.etcd.values[OLD])
    await scene.run(FromMember())
    scene.etcd.hosted = False
    found = Recovered.read(scene.hosts["n2"].files[places.ETCD_RECOVERED][0])
    assert found is not None
    n1, n2 = scene.hosts["n1"], scene.hosts["n2"]
    n1.off = False
    n1.take_away_pods()
    n2.take_away_pods()
    n2.process = False
    assert scene.etcd.serving() == []
    scene.etcd.acts.clear()
    return found.at


async def test_data_of_an_etcd_that_was_replaced_is_left_out_and_is_no_question_to_a_person(scene: Scene) -> None:
    await replaced_on_n1(scene)
    scene.etcd.hosted = True
    assert (await scene.run(FromMember())).seat == "n2"


async def test_nor_is_it_taken_where_somebody_names_it(scene: Scene) -> None:
    at = await replaced_on_n1(scene)
    said = f"the data of n1 is of an etcd that the recovery of {at} has replaced"
    with pytest.raises(UserError, match=said) as refused:
        await scene.run(FromMember("n1"))
    assert "say --from NODE; hosts that answer: n2" in refused.value.fix
    assert scene.etcd.acts == []


async def test_where_nothing_else_is_left_a_person_hears_what_to_do(scene: Scene) -> None:
    await replaced_on_n1(scene)
    n2 = scene.hosts["n2"]
    for path in [path for path in n2.files if path.startswith(f"{ETCD_DATA}/")]:
        del n2.files[path]
    with pytest.raises(UserError, match="no host that answers has data of etcd; that of n1 was replaced") as refused:
        await scene.run(FromMember())
    assert f"remove {places.ETCD_RECOVERED} on n2" in refused.value.fix


def moved_aside(scene: Scene, name: str, kept: str = "kept.1") -> None:
    host = scene.hosts[name]
    host.take_away_pods()
    host.process = False
    host.rename(f"{ETCD_DATA}/member", f"{ETCD_DATA}/{kept}/member")


@pytest.mark.parametrize("trace", ["fence", "note"])
async def test_old_data_that_was_moved_aside_is_used_where_nothing_is_in_its_place(scene: Scene, trace: str) -> None:
    """What a placing has left that was stopped halfway by an older release."""
    scene.lost_quorum()
    moved_aside(scene, "n1")
    n1 = scene.hosts["n1"]
    if trace == "fence":
        n1.files[ETCD_FENCE] = (Fence("earlier", "n1", "made of backup-1").file().content, 0o600)
    else:
        n1.files[f"{ETCD_DATA}/recovery.earlier/kept"] = (f"{ETCD_DATA}/kept.1".encode(), 0o600)
    recovery = await scene.run(FromMember())
    assert (recovery.seat, recovery.data) == ("n1", f"{ETCD_DATA}/kept.1")
    [cluster] = scene.etcd.serving()
    assert scene.etcd.values[cluster]["keys"].keys() >= KEYS.keys()


@pytest.mark.parametrize("kept", ["kept.1", "kept.change"])
async def test_what_was_put_aside_long_ago_is_no_members_data_unless_a_person_says_so(scene: Scene, kept: str) -> None:
    """Of a member that left months ago, or from before a change of the only one: a backup may be newer."""
    scene.off("n1", "n2")
    moved_aside(scene, "n3", kept)
    directory = f"{ETCD_DATA}/{kept}"
    scene.hosts["n3"].files[f"{ETCD_DATA}/recovery.earlier/kept"] = (f"{ETCD_DATA}/kept.2".encode(), 0o600)
    with pytest.raises(UserError, match=rf"n3 has only {directory}, put aside and written until 2026-") as refused:
        await scene.run(FromMember())
    assert "say --from n3 to take that, without what was written since" in refused.value.fix
    assert "`autarky restore FILE`" in refused.value.fix
    assert scene.etcd.acts == []
    assert any(f"n3: {directory}, put aside and written until" in one for one in await scene.plan(FromMember("n3")))
    recovery = await scene.run(FromMember("n3"))
    assert recovery.data == directory
    assert recovery.made_of.startswith(f"made of the data of n3 ({directory}, put aside and written until 2026-")
    assert scene.etcd.serving() != []


async def test_the_fence_of_a_recovery_with_another_seat_shows_no_placing(two_left: Scene) -> None:
    """It has fenced all, and was cut. Then the log of that seat cannot be read."""
    moved_aside(two_left, "n1")
    recovery, _ = await two_left.until(FromMember(), MakeData)
    assert recovery.seat == "n2"
    two_left.hosts["n2"].fails["log"] = "Input/output error"
    with pytest.raises(UserError, match="n1 has only"):
        await two_left.run(FromMember())


async def test_a_node_that_has_nothing_but_that_was_no_member(scene: Scene) -> None:
    await not_hosted(scene)
    scene.off("n3")
    moved_aside(scene, "n2")
    recovery, context = await scene.until(FromMember(), ReturnMembers)
    said = [str(one.sentence) for one in await ReturnMembers(recovery).plan(context)]
    assert not [one for one in said if "n2" in one]


# --- disks ------------------------------------------------------------------------------------------------------------


async def test_a_host_whose_log_cannot_be_read_is_no_candidate_and_takes_part_otherwise(two_left: Scene) -> None:
    two_left.hosts["n2"].fails["log"] = "Input/output error"
    [said] = [one for one in await two_left.plan(FromMember()) if one.startswith("n2")]
    assert said.startswith("n2: its data cannot be read, and what only that has will be lost (n2: recover log ended")
    with pytest.raises(UserError, match=r"the data on n2 cannot be read: .*Input/output error"):
        await two_left.run(FromMember("n2"))
    assert two_left.etcd.acts == []
    recovery = await two_left.run(FromMember())
    assert recovery.seat == "n1"
    assert "n2: write /var/lib/autarky/state/etcd-fence.json" in two_left.etcd.acts
    assert two_left.hosts["n1"].runs in two_left.etcd.serving()


async def test_a_backup_is_restored_on_another_one(scene: Scene, snapshot: FromSnapshot) -> None:
    scene.hosts["n1"].fails["log"] = "Input/output error"
    recovery, context = Recovery(snapshot), scene.make()
    await LookForData(recovery).plan(context)
    assert recovery.seat == "n2"
    with pytest.raises(UserError, match="the data on n1 cannot be read"):
        await scene.plan(replace(snapshot, node="n1"))
    for name in ("n2", "n3"):
        scene.hosts[name].fails["log"] = "Input/output error"
    with pytest.raises(UserError, match="the data on n1 cannot be read"):
        await scene.plan(snapshot)


async def test_where_the_disk_is_full_the_log_is_read_without_it(scene: Scene, monkeypatch) -> None:
    scene.lost_quorum()
    host = scene.hosts["n1"]
    step = type(host)._log_step

    def no_space(one, arguments, stdin):
        if one is host and arguments[1].startswith(places.HOST_ROOT):
            raise CommandFailed("n1", ["recover", "log"], 1, "No space left on device")
        return step(one, arguments, stdin)

    monkeypatch.setattr(type(host), "_log_step", no_space)
    recovery, context = Recovery(FromMember()), scene.make()
    await LookForData(recovery).plan(context)
    assert recovery.seat == "n1"
    assert not [path for path in host.files if "/run/autarky/recovery" in path]


async def test_a_host_that_does_not_say_whether_it_is_fenced_is_named_as_well(two_left: Scene) -> None:
    two_left.hosts["n1"].fails["made"] = "Input/output error"
    with pytest.raises(UserError, match="n1 cannot be looked at") as refused:
        await two_left.run(FromMember())
    assert refused.value.fix == "power n1 off, and run the same command again"
    assert two_left.etcd.acts == []


async def test_a_host_that_cannot_be_fenced_is_named_to_be_powered_off(two_left: Scene, monkeypatch) -> None:
    host = two_left.hosts["n1"]
    write = type(host).write_files

    async def full(one, files):
        if one is host:
            raise CommandFailed("n1", ["sh"], 1, "No space left on device")
        await write(one, files)

    monkeypatch.setattr(type(host), "write_files", full)
    with pytest.raises(UserError, match=r"n1 cannot be fenced: .*No space left on device") as refused:
        await two_left.run(FromMember())
    assert refused.value.fix == "power n1 off, and run the same command again"
    assert all(two_left.hosts[name].runs == OLD for name in ("n1", "n2"))


# --- while the only member is changed ---------------------------------------------------------------------------------


@pytest.mark.parametrize("scene", [1], indirect=True)
@pytest.mark.parametrize("first_is_there", [True, False])
async def test_what_a_second_member_has_more_than_the_first_is_not_lost(scene: Scene, first_is_there: bool) -> None:
    """Neither of the two has a quorum, or the first has left already: the second one has what was acknowledged."""
    host = scene.hosts["n1"]
    scene.off("n1")
    more = {"revision": 700, "keys": {**KEYS, **LATER}}
    host.has_data(OLD, 7, more, entries=50)
    host.rename(f"{ETCD_DATA}/member", f"{SECOND_DATA}/member")
    if first_is_there:
        host.has_data(OLD, 1, scene.etcd.values[OLD], entries=40)
    host.off = False
    host.process = False
    host.take_away_pods()
    recovery, _ = await scene.until(FromMember(), FenceEtcd)
    assert recovery.data == SECOND_DATA
    await scene.run(FromMember())
    [cluster] = scene.etcd.serving()
    assert LATER.keys() <= scene.etcd.values[cluster]["keys"].keys()


@pytest.mark.parametrize("scene", [1], indirect=True)
async def test_what_an_earlier_change_has_left_does_not_count(scene: Scene) -> None:
    host = scene.hosts["n1"]
    for cluster, entries in ((OLD, 3), (0xBAD, 500)):
        host.has_data(cluster, 7, {"revision": 9, "keys": {}}, entries=entries)
        host.rename(f"{ETCD_DATA}/member", f"{SECOND_DATA}/member")
        host.has_data(OLD, 1, scene.etcd.values[OLD], entries=40)
        host.process = False
        host.take_away_pods()
        recovery, _ = await scene.until(FromMember(), FenceEtcd)
        assert recovery.data == ETCD_DATA
