"""A new etcd from what is left of the old one: which data it is made of, and what happens to the old members."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from autarky import places
from autarky.control.etcd.decide.lineage import FORMER
from autarky.control.etcd.decide.recovery import BUMP
from autarky.control.etcd.manifests import pods as etcd
from autarky.errors import CommandFailed, Refused, TimedOut, Unreachable, UserError
from autarky.etcd.log import frames
from autarky.model.cluster import ExternalEtcd
from autarky.model.components import OPERATOR, WITH_STANDBY
from autarky.phases.etcd_change import ChangeEtcd
from autarky.phases.hosts import observe
from autarky.phases.recovery.fencing import FenceEtcd
from autarky.phases.recovery.looking import LookForData
from autarky.phases.recovery.making import MakeData
from autarky.phases.recovery.state import Fence, FromMember, Recovered, Recovery
from autarky.places import ETCD_DATA, ETCD_FENCE, ETCD_FENCED
from autarky.ports import Completed
from unit.phases.recovery.scenes import KEYS, OLD, Scene, all_is_well

pytestmark = pytest.mark.looptime


# --- a quorum that is lost ------------------------------------------------------------------------------------------


async def test_a_new_etcd_of_one_member_begins_with_all_that_the_old_one_had(scene: Scene) -> None:
    scene.lost_quorum()
    assert scene.etcd.serving() == []
    recovery = await scene.run(FromMember())
    all_is_well(scene)
    [cluster] = scene.etcd.serving()
    found = scene.etcd.values[cluster]
    assert found["keys"].keys() == {*KEYS, FORMER}
    assert found["revision"] > 500 + BUMP
    assert (recovery.seat, found["token"], found["name"]) == ("n1", recovery.token("demo"), "n1")
    [pod] = scene.hosts["n1"].pods
    assert etcd.founding_of(json.loads(pod)) == etcd.Founding(
        "n1=https://192.0.2.11:2380", "existing", recovery.token("demo")
    )


async def test_the_others_join_it_when_they_are_back_and_never_go_on_as_the_old_one(scene: Scene) -> None:
    scene.lost_quorum()
    await scene.run(FromMember())
    scene.on("n2", "n3")
    scene.etcd.agents_look()
    all_is_well(scene)


async def test_where_it_has_ended_there_is_a_note_of_what_it_was_made_of_and_where_the_old_data_is(
    scene: Scene,
) -> None:
    scene.lost_quorum()
    await scene.run(FromMember())
    host = scene.hosts["n1"]
    noted = Recovered.read(host.files[places.ETCD_RECOVERED][0])
    [cluster] = scene.etcd.serving()
    assert noted.cluster == f"{cluster:x}"
    assert noted.made_of == "made of the data of n1 (the newest: entry 9 of term 1)"
    assert host.identity(noted.kept).cluster == OLD
    assert noted.revision >= 500 + BUMP
    assert host.files[places.ETCD_RECOVERED][1] == 0o600


async def test_every_program_that_remembers_the_old_etcd_is_ended_before_the_new_one_starts(two_left: Scene) -> None:
    await two_left.run(FromMember())
    restart = f"restart {' '.join((*WITH_STANDBY, OPERATOR))}"
    acts = two_left.etcd.acts
    for name in ("n1", "n2"):
        assert acts.index("n2: place") < acts.index(f"{name}: {restart}") < acts.index("n2: release-etcd")


async def test_entries_that_were_not_marked_as_committed_are_kept_and_that_is_said(scene: Scene, notes) -> None:
    scene.lost_quorum()
    recovery, context = await scene.until(FromMember(), MakeData)
    await MakeData(recovery).run(context, notes)
    assert "n1: 1 entries at the end of its log were not marked as committed: they are kept" in notes.notes
    assert scene.etcd.acts.index("n1: append") < scene.etcd.acts.index("n1: replay")


async def test_the_record_is_appended_also_where_all_is_committed(scene: Scene) -> None:
    """In place of a torn record, which etcd might refuse."""
    scene.lost_quorum()
    scene.hosts["n1"].has_data(OLD, 1, scene.etcd.values[OLD])
    await scene.run(FromMember())
    assert "n1: append" in scene.etcd.acts


async def test_with_a_quorum_it_is_refused_and_nothing_is_touched(scene: Scene) -> None:
    for off in ((), ("n3",)):
        scene.off(*off)
        for source in (FromMember(), FromMember("n1")):
            with pytest.raises(Refused, match=r"etcd has a quorum: n[12] lists n1, n2, n3"):
                await scene.run(source)
            assert scene.etcd.acts == []


async def test_external_etcd_is_not_touched(scene: Scene) -> None:
    context = scene.make()
    external = ExternalEtcd(("https://192.0.2.99:2379",), "ca", "cert", "key")
    context.cluster = replace(context.cluster, external_etcd=external)
    with pytest.raises(UserError, match="external"):
        await LookForData(Recovery(FromMember())).plan(context)


async def test_where_no_host_answers_nothing_can_be_said(scene: Scene) -> None:
    scene.off("n1", "n2", "n3")
    with pytest.raises(Unreachable, match="no control node"):
        await scene.run(FromMember())


async def test_hosts_that_do_not_answer_are_named_since_they_must_not_run_etcd(scene: Scene) -> None:
    scene.lost_quorum()
    said = await scene.plan(FromMember())
    assert [name for name in ("n1", "n2", "n3") for one in said if one.startswith(f"{name} does not answer")] == [
        "n2",
        "n3",
    ]


# --- which data -----------------------------------------------------------------------------------------------------


async def test_of_what_is_left_the_newest_is_taken(two_left: Scene) -> None:
    recovery = await two_left.run(FromMember())
    assert recovery.seat == "n2"
    all_is_well(two_left)


async def test_a_later_term_is_newer_than_more_entries(two_left: Scene) -> None:
    two_left.hosts["n1"].has_data(OLD, 1, two_left.etcd.values[OLD], entries=50, term=7)
    assert (await two_left.run(FromMember())).seat == "n1"


async def test_a_person_may_want_another_and_hears_before_what_is_lost(two_left: Scene) -> None:
    said = await two_left.plan(FromMember("n1"))
    assert "n2 has 10 newer entries, which will be lost" in said
    assert two_left.etcd.acts == []
    assert (await two_left.run(FromMember("n1"))).seat == "n1"
    all_is_well(two_left)


@pytest.mark.parametrize("name", ["n3", "n9"])
async def test_a_person_who_wants_one_that_has_nothing_or_does_not_answer_hears_who_has_some(
    two_left: Scene, name: str
) -> None:
    with pytest.raises(UserError, match=f"{name} has no data of etcd that can be read; these have: n1, n2"):
        await two_left.run(FromMember(name))
    assert two_left.etcd.acts == []


async def test_between_data_of_two_clusters_a_person_has_to_choose(two_left: Scene) -> None:
    two_left.hosts["n1"].has_data(0xD1, 1, two_left.etcd.values[OLD], entries=900)
    two_left.etcd.values[0xD1], two_left.etcd.voters[0xD1] = {}, {"n1": 1, "n2": 2, "n3": 3}
    with pytest.raises(UserError, match=r"different clusters of etcd \(n1: d1, n2: c1\)") as refused:
        await two_left.run(FromMember())
    assert "--from NODE" in refused.value.fix
    assert two_left.etcd.acts == []
    await two_left.run(FromMember("n2"))
    assert {OLD, 0xD1} <= two_left.former(), "both are replaced"


async def test_a_damaged_log_is_not_chosen(two_left: Scene) -> None:
    log = f"{ETCD_DATA}/member/wal/0.wal"
    content = two_left.hosts["n2"].files[log][0]
    two_left.hosts["n2"].files[log] = (content[: len(content) // 4], 0o600)
    assert (await two_left.run(FromMember())).seat == "n1"


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"\4" + bytes(7) + b"\xff" * 4])
async def test_a_log_that_says_nothing_is_no_data(two_left: Scene, content: bytes) -> None:
    two_left.hosts["n2"].files[f"{ETCD_DATA}/member/wal/0.wal"] = (content, 0o600)
    assert (await two_left.run(FromMember())).seat == "n1"


def flip_a_bit(scene: Scene, name: str, *, of_entry: int) -> None:
    """In the log there. Its first two records are none of entries."""
    log = f"{ETCD_DATA}/member/wal/0.wal"
    content = bytearray(scene.hosts[name].files[log][0])
    start = [0, *(behind for _, behind in frames(bytes(content)))][1 + of_entry]
    content[start + 20] ^= 1
    scene.hosts[name].files[log] = (bytes(content), 0o600)


async def test_a_damaged_log_is_used_only_if_somebody_names_it_who_hears_how_many_entries_are_lost(
    scene: Scene, notes
) -> None:
    """A bit has flipped on the last disk that is left, and acknowledged entries are behind it."""
    scene.lost_quorum()
    flip_a_bit(scene, "n1", of_entry=6)
    with pytest.raises(UserError, match="n1: entry 5 of term 1, where its log is damaged; 4 entries from there on are"):
        await scene.run(FromMember())
    assert scene.etcd.acts == []
    recovery = await scene.run(FromMember("n1"))
    assert "4 entries from there on are lost" in recovery.made_of
    all_is_well(scene)


async def test_what_becomes_of_the_end_of_a_damaged_log_is_said_truly(scene: Scene, notes) -> None:
    scene.lost_quorum()
    flip_a_bit(scene, "n1", of_entry=6)
    recovery, context = await scene.until(FromMember("n1"), MakeData)
    await MakeData(recovery).run(context, notes)
    assert "n1: a record of its log is damaged: 4 entries from there on are lost" in notes.notes
    assert any(
        "5 entries at the end of its log were not marked as committed: they are kept" in one for one in notes.notes
    )


async def test_an_undamaged_log_is_preferred(two_left: Scene) -> None:
    """n2's would be newer."""
    flip_a_bit(two_left, "n2", of_entry=60)
    assert "n2 has 10 newer entries, which will be lost" in await two_left.plan(FromMember())
    assert (await two_left.run(FromMember())).seat == "n1"


async def test_a_full_disk_is_found_before_anything_is_touched(scene: Scene) -> None:
    scene.lost_quorum()
    scene.hosts["n1"].free = 1000
    with pytest.raises(Refused, match="n1 has 1,000 bytes free"):
        await scene.run(FromMember())
    assert scene.etcd.acts == []


async def test_a_machine_that_was_replaced_and_has_nothing_of_the_cluster_does_not_stand_in_the_way(
    scene: Scene,
) -> None:
    """It has no marker, no script and no directory of etcd."""
    scene.lost_quorum()
    host = scene.hosts["n2"]
    host.off, host.files, host.active_units = False, {}, set()
    host.fails = {"fence-etcd": "No such file or directory", "restart": "No such file or directory"}
    await scene.run(FromMember())
    assert scene.hosts["n1"].runs in scene.etcd.serving()
    assert not [act for act in scene.etcd.acts if act.startswith("n2")]


# --- the fence --------------------------------------------------------------------------------------------------------


async def test_every_host_is_fenced_before_its_pod_is_taken_away_and_the_seat_goes_last(two_left: Scene) -> None:
    """What the others have acknowledged until then is in the data of the seat, which led."""
    recovery, context = await two_left.until(FromMember(), FenceEtcd)
    assert two_left.etcd.acts == []
    await FenceEtcd(recovery).run(context, two_left.notes)
    assert two_left.etcd.acts == [
        *(f"{name}: {act}" for name in ("n1", "n2") for act in (f"write {ETCD_FENCE}", "fence-etcd", "kill etcd"))
    ]
    for name in ("n1", "n2"):
        host = two_left.hosts[name]
        assert Fence.read(host.files[ETCD_FENCE][0]) == recovery.fence
        assert (recovery.fence.seat, recovery.fence.kind) == ("n2", "member")
        assert recovery.fence.at.startswith("2027-")
        assert (host.pods, host.process) == ([], False)
    assert await FenceEtcd(recovery).plan(context) != [], "what it has seen is older"


async def test_a_process_that_does_not_end_is_not_waited_for_for_ever_and_all_go_on_as_before(
    two_left: Scene, monkeypatch
) -> None:
    before = {name: host.pods for name, host in two_left.hosts.items()}
    host = two_left.hosts["n1"]
    monkeypatch.setattr(type(host), "_kill", lambda *_: Completed(0, b"", ""))
    with pytest.raises(TimedOut, match="etcd on n1 has exited"):
        await two_left.run(FromMember())
    assert {name: host.pods for name, host in two_left.hosts.items()} == before
    assert not any(ETCD_FENCE in host.files for host in two_left.hosts.values())


@pytest.mark.parametrize("step", ["copy", "append", "replay", "make", "fence-etcd"])
async def test_if_anything_fails_before_there_is_new_data_the_old_members_go_on(two_left: Scene, step: str) -> None:
    """And what was made is gone: nobody may take it up when the old etcd has gone on."""
    before = {name: host.pods for name, host in two_left.hosts.items()}
    two_left.hosts["n2"].fails[step] = "it says no"
    with pytest.raises(CommandFailed, match="it says no"):
        await two_left.run(FromMember())
    for name in ("n1", "n2"):
        host = two_left.hosts[name]
        assert host.pods == before[name]
        assert not {ETCD_FENCE, ETCD_FENCED} & host.files.keys()
        assert host.left() == {"member"}
        assert host.runs == OLD
    two_left.hosts["n2"].fails = {}
    await two_left.run(FromMember())
    all_is_well(two_left)


async def test_hosts_stay_fenced_where_what_was_made_cannot_be_removed(two_left: Scene, notes) -> None:
    """Some other command might take it up while the old members go on."""
    recovery, context = await two_left.until(FromMember(), MakeData)
    two_left.hosts["n2"].fails["replay"] = "it says no"
    two_left.hosts["n2"].off = True
    with pytest.raises(Unreachable):
        await MakeData(recovery).run(context, notes)
    assert ETCD_FENCE in two_left.hosts["n1"].files
    assert any("etcd stays fenced" in note for note in notes.notes)


async def test_once_the_new_data_is_in_its_place_nobody_is_released(two_left: Scene) -> None:
    two_left.hosts["n2"].fails["place"] = "it says no"
    with pytest.raises(CommandFailed):
        await two_left.run(FromMember())
    two_left.hosts["n2"].fails = {}
    assert all(ETCD_FENCE in two_left.hosts[name].files for name in ("n1", "n2"))
    await two_left.run(FromMember())
    all_is_well(two_left)


async def test_up_starts_no_member_on_a_fenced_host(two_left: Scene) -> None:
    """Where a change of its arguments was cut before, of which the former static pod is left."""
    host = two_left.hosts["n1"]
    host.files[places.ETCD_FORMER] = (host.pods[0], 0o600)
    recovery, _ = await two_left.until(FromMember(), MakeData)
    context = two_left.make()
    await observe(context)
    assert [one.sentence for one in await ChangeEtcd().plan(context) if " n1" in one.sentence] == []
    assert ETCD_FENCE in host.files
    assert recovery.seat == "n2"
