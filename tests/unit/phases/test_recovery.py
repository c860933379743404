"""A new etcd from what is left of the old one, or from a backup: on control nodes in memory.

Whatever happens in between, the same command leads to one etcd, that knows which ones it has replaced.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from autarky import places
from autarky.control.backup.decide.loss import Written
from autarky.control.etcd.decide.lineage import FORMER, former_of
from autarky.control.etcd.decide.recovery import BUMP
from autarky.control.etcd.manifests import members as etcd_members
from autarky.control.etcd.manifests import pods as etcd
from autarky.engine.phase import Change, Warn
from autarky.engine.runner import run_operation
from autarky.errors import AutarkyError, CommandFailed, Refused, TimedOut, Unreachable, UserError
from autarky.model.cluster import ExternalEtcd, Level
from autarky.model.components import OPERATOR, WITH_STANDBY
from autarky.phases.context import Context
from autarky.phases.etcd_change import ChangeEtcd
from autarky.phases.hosts import FOUNDED, observe
from autarky.phases.recovery.comparing import TellLoss
from autarky.phases.recovery.fencing import FenceEtcd
from autarky.phases.recovery.joining import ReturnMembers
from autarky.phases.recovery.looking import LookForData
from autarky.phases.recovery.making import MakeData
from autarky.phases.recovery.state import Fence, FromKept, FromMember, FromSnapshot, Recovered, Recovery
from autarky.places import ETCD_DATA, ETCD_FENCE, ETCD_FENCED
from autarky.ports import Completed
from autarky.render import crds
from autarky.render import node as render_node
from autarky.render.crds import API_VERSION
from autarky.workflows.recovery import phases
from fakes.clusters import a_cluster, facts_of
from fakes.host import FakeMachines
from fakes.kube import FakeKube
from fakes.recovering_host import Cut, RecoveringEtcd

OLD = 0xC1
KEYS = {"/registry/pods/demo/web": "1"}
pytestmark = pytest.mark.looptime


class Scene:
    """A cluster with its etcd, on which commands are run, each as a process of its own."""

    def __init__(self, make: Callable[[], Context], etcd_: RecoveringEtcd, kube: FakeKube, notes) -> None:
        self.make, self.etcd, self.kube, self.notes = make, etcd_, kube, notes

    @property
    def hosts(self):
        return self.etcd.hosts

    def off(self, *names: str) -> None:
        for name in names:
            self.hosts[name].off, self.hosts[name].process = True, False

    def on(self, *names: str) -> None:
        """All at once. At its boot each one asks those that serve whether they have replaced its etcd."""
        said = [former_of(self.etcd.values[one]["keys"].get(FORMER)) for one in self.etcd.serving()]
        for host in (self.hosts[name] for name in names):
            host.off, found = False, host.identity()
            if ETCD_FENCE in host.files or (found is not None and any(found.cluster in one for one in said)):
                host.take_away_pods()

    async def run(self, source, *, after_look=None) -> Recovery:
        """To its end; raises what a person would be told."""
        self.etcd.on_again()
        return await self.go_on(source, after_look=after_look)

    async def go_on(self, source, *, after_look=None) -> Recovery:
        recovery, context = Recovery(source), self.make()
        look = None if after_look is None else after_look(recovery)
        await run_operation("test", "recovery", phases(recovery, look), context, clock=context.clock)
        return recovery

    async def until(self, source, phase: type) -> tuple[Recovery, Context]:
        """Everything before that phase."""
        recovery, context = Recovery(source), self.make()
        for one in phases(recovery):
            if isinstance(one, phase):
                break
            if any(isinstance(change, Change) for change in await one.plan(context)):
                await one.run(context, self.notes)
        return recovery, context

    async def plan(self, source) -> list[str]:
        """What is said before anything is done."""
        recovery, context = Recovery(source), self.make()
        found = await LookForData(recovery).plan(context)
        assert all(isinstance(one, Warn) for one in found)
        return [one.sentence for one in found]

    def lost_quorum(self) -> None:
        """Only n1 is left. Its last entry is not marked as committed."""
        self.off("n2", "n3")
        self.hosts["n1"].has_data(OLD, 1, self.etcd.values[OLD], entries=9, commits=1)

    def former(self) -> frozenset[int]:
        [cluster] = self.etcd.serving()
        return former_of(self.etcd.values[cluster]["keys"].get(FORMER))


@pytest.fixture
def scenes(make_context, notes) -> Callable[..., Scene]:
    """Makes one of so many control nodes, all of which serve."""
    bases: dict[int, Context] = {}

    def make(controls: int = 3) -> Scene:
        cluster = a_cluster(Level.ETCD, controls=controls)
        base = bases.setdefault(controls, make_context(cluster) if controls not in bases else None)
        world, kube = RecoveringEtcd(), FakeKube()
        hosts = world.of(facts_of(cluster))
        for definition in (crds.control_plane_crd(), etcd_members.crd()):
            kube.put(definition)
        kube.put(crds.control_plane(cluster))
        world.values[OLD] = {"revision": 500, "keys": dict(KEYS)}
        world.voters[OLD] = {name: number for number, name in enumerate(hosts, 1)}

        def context() -> Context:
            """What one command knows at its beginning."""
            knows_nothing = {name: {} for name in ("facts", "owners", "versions", "memories", "records", "absent")}
            machines = FakeMachines(hosts)
            return replace(base, machines=machines, connect=lambda *_: kube, warnings=[], applied={}, **knows_nothing)

        for number, (name, host) in enumerate(hosts.items(), 1):
            said = {"cluster": "demo", "node": name, "founders": list(hosts)}
            host.files |= {
                places.NODE_MARKER: (json.dumps(said).encode(), 0o644),
                FOUNDED: (b"", 0o644),
                f"{places.PKI}/ca.crt": (base.pki.files()["ca.crt"], 0o644),
            }
            file = render_node.manifest(etcd.member_pod(base.inputs(), cluster.node(name)))
            host.files[file.path] = (file.content, 0o600)
            host.has_data(OLD, number, world.values[OLD])
            host.active_units.add("kubelet")
            kube.put(_object(name, number))
        world.settle()
        return Scene(context, world, kube, notes)

    return make


@pytest.fixture
def scene(scenes, request) -> Scene:
    return scenes(getattr(request, "param", 3))


def _object(name: str, number: int):
    spec = {"nodeName": name, "address": f"192.0.2.1{number}", "state": "Member"}
    return {"apiVersion": API_VERSION, "kind": etcd_members.KIND, "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def snapshot(tmp_path: Path) -> FromSnapshot:
    path = tmp_path / "snapshot.db"
    path.write_text(json.dumps({"revision": 300, "keys": {"/registry/pods/demo/restored": "1"}}))
    return FromSnapshot(path, "backup-1", path.stat().st_size, 300)


def all_is_well(scene: Scene) -> None:
    """One etcd serves, with all members that are there; nothing is left over, and nothing of the old data is gone."""
    [cluster] = scene.etcd.serving()
    assert cluster != OLD
    for name, host in scene.hosts.items():
        if host.off:
            continue
        assert host.runs == cluster, name
        assert len(host.pods) == 1
        assert not {ETCD_FENCE, ETCD_FENCED} & host.files.keys()
        assert not [one for one in host.left() if one.startswith("recovery.")]
        assert [one for one in host.left() if one.startswith("kept.")]
    assert OLD in scene.former()


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


async def test_where_it_has_ended_there_is_a_note_of_what_it_was_made_of_and_where_the_old_data_is(scene: Scene) -> None:
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


@pytest.fixture
def two_left(scene: Scene) -> Scene:
    return with_two_left(scene)


def with_two_left(scene: Scene) -> Scene:
    """Of five voters: n1 has fewer entries than n2."""
    scene.etcd.voters[OLD] |= {"n4": 4, "n5": 5}
    scene.off("n3")
    scene.hosts["n1"].has_data(OLD, 1, {**scene.etcd.values[OLD], "revision": 490}, entries=90)
    scene.hosts["n2"].has_data(OLD, 2, scene.etcd.values[OLD], entries=100)
    assert scene.etcd.serving() == []
    return scene


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
        assert Fence.read(host.files[ETCD_FENCE][0]) == Fence(recovery.id, "n2", recovery.made_of)
        assert (host.pods, host.process) == ([], False)
    assert await FenceEtcd(recovery).plan(context) != [], "what it has seen is older"


async def test_a_process_that_does_not_end_is_not_waited_for_for_ever_and_all_go_on_as_before(
    two_left: Scene, monkeypatch
) -> None:
    before = {name: host.pods for name, host in two_left.hosts.items()}
    host = two_left.hosts["n1"]
    monkeypatch.setattr(type(host), "_kill", lambda _: Completed(0, b"", ""))
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
    try:
        await scene.run(FromMember())
    except Refused as refused:
        assert "etcd has a quorum" in str(refused)
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


async def test_one_whose_data_is_complete_is_resumed_with_it(two_left: Scene) -> None:
    """Whatever else has been asked for now."""
    recovery, context = await two_left.until(FromMember("n1"), MakeData)
    await MakeData(recovery).run(context, two_left.notes)
    [said] = await two_left.plan(FromMember("n2"))
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


@pytest.mark.parametrize("scene", [1], indirect=True)
async def test_the_seat_does_not_take_its_new_data_for_that_of_the_former_etcd_at_its_next_boot(scene: Scene) -> None:
    """Its agent notes within half a minute whose data it is; the power may fail before. At the boot the script compares
    the note with what the new etcd says that it has replaced."""
    host = scene.hosts["n1"]
    host.files[places.ETCD_CLUSTER] = (f"{OLD:x}\n".encode(), 0o600)
    scene.off("n1")
    host.off, scene.etcd.voters[OLD] = False, {"n1": 1, "n2": 2}
    await scene.run(FromMember())
    noted = host.files.get(places.ETCD_CLUSTER, (b"", 0))[0].decode().strip()
    assert noted == "" or int(noted, 16) not in scene.former()


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


async def test_it_begins_where_somebody_wants_it(scene: Scene, snapshot: FromSnapshot) -> None:
    source = FromSnapshot(snapshot.path, snapshot.name, snapshot.size, snapshot.revision, "n3")
    assert (await scene.run(source)).seat == "n3"
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


async def test_where_nothing_was_recovered_nothing_is_taken_back(scene: Scene) -> None:
    with pytest.raises(UserError, match="no recovery can be taken back"):
        await scene.run(FromKept())
    assert scene.etcd.acts == []


async def test_data_that_somebody_has_deleted_cannot_be_taken_up(scene: Scene, snapshot: FromSnapshot) -> None:
    await scene.run(snapshot)
    kept = Recovered.read(scene.hosts["n1"].files[places.ETCD_RECOVERED][0]).kept
    for path in [path for path in scene.hosts["n1"].files if path.startswith(kept)]:
        del scene.hosts["n1"].files[path]
    with pytest.raises(UserError, match="there is no data of etcd in .* any more"):
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


async def not_hosted(scene: Scene) -> None:
    scene.etcd.hosted = False
    plane = await scene.kube.get(API_VERSION, "ControlPlane", "cluster")
    scene.kube.put({**plane, "spec": {**plane["spec"], "selfHosted": "2-4"}})
