"""etcd is copied into the cluster, cut at any act: at no time do two etcds take writes, what was acknowledged is there,
and the same command completes it (fakes.copying_host)."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from autarky import places
from autarky.control.certificates.manifests.specs import authorities, certificate_specs
from autarky.control.etcd.decide.lineage import FORMER
from autarky.control.etcd.decide.recovery import BUMP
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.engine.phase import Change
from autarky.engine.runner import run_operation
from autarky.errors import AutarkyError, Refused, TimedOut, Unreachable, UserError
from autarky.etcd.tools import EtcdTools
from autarky.model.cluster import ExternalEtcd, Level
from autarky.model.components import API_SERVER
from autarky.model.files import CertSpec
from autarky.payload import etcd_version
from autarky.phases import hosts as hosts_phase
from autarky.phases import kept_file
from autarky.phases.check_file import CheckFile
from autarky.phases.context import Context
from autarky.phases.hosts import FOUNDED
from autarky.phases.migration import copying, marking, returning
from autarky.phases.migration.copying import CopyEtcd
from autarky.phases.migration.inwards import JoinInside, LeaveOutside
from autarky.phases.migration.judging import JudgeMigration
from autarky.phases.migration.looking import Migration
from autarky.phases.migration.opening import FinishCopy
from autarky.phases.migration.returning import ReturnEtcd
from autarky.phases.recovery.choosing import SPARE
from autarky.phases.recovery.state import on_host
from autarky.pki.issue import Authority, issue_ca, issue_leaf, read_pair
from autarky.pki.keys import new_key
from autarky.ports import Progress
from autarky.render import node as render_node
from autarky.render.values import pretty_json
from fakes.clusters import FACTS, a_cluster, facts_of
from fakes.copying_host import CopyingEtcd, CopyingHost, CopyingKube
from fakes.host import FakeMachines
from fakes.migrating_host import BALANCER

pytestmark = pytest.mark.looptime
ETCD, KEYS = 0xC1, {"/registry/pods/demo/web": "1", FORMER: '["a"]', "compact_rev_key": "1"}
STORE = "192.0.2.99"
OUTSIDE = f"https://{STORE}:2379"
CLIENT = "files/secrets/etcd-client.crt"


@dataclass
class Roll:
    """What `up` does in between, and the agents: the hosted API servers use the new place, and their standbys become
    dormant copies of them."""

    scene: Scene
    name: str = "roll"
    title: str = "Roll"
    timeout: float = 60

    async def plan(self, context: Context) -> list[Change]:
        return [Change("roll") for host in self.scene.controls if host.hosted != BALANCER]

    async def run(self, context: Context, progress: Progress) -> None:
        for host in self.scene.controls:
            host._act("roll")
            host.hosted, host.activations[API_SERVER] = BALANCER, []
            host.put_standby(BALANCER)


class Scene:
    def __init__(self, contexts: dict[bool, Callable[[], Context]], world: CopyingEtcd, notes: Any) -> None:
        self.contexts, self.etcd, self.notes = contexts, world, notes

    @property
    def controls(self) -> list[CopyingHost]:
        return [host for name, host in self.etcd.hosts.items() if name != "store"]  # type: ignore[misc]

    @property
    def store(self) -> CopyingHost:
        return self.etcd.hosts["store"]  # type: ignore[return-value]

    async def copy(self, *, cut: int | None = None) -> None:
        """One command, as a process of its own."""
        self.etcd.on_again()
        self.etcd.cut = cut
        context = self.contexts[True]()
        migration = Migration(lambda: self.store)
        steps: Any = (
            *(ReturnEtcd(), JudgeMigration(copies=True), CopyEtcd(), JoinInside(migration), Roll(self)),
            *(FinishCopy(migration), LeaveOutside(migration)),
        )
        await run_operation("test", "copy", steps, replace(context, api_seen=True), clock=context.clock)

    async def go_back(self) -> None:
        """The command with the former file: its first phases."""
        self.etcd.on_again()
        context = replace(self.contexts[False](), api_seen=True)
        steps: Any = (ReturnEtcd(), JudgeMigration())
        await run_operation("test", "go back", steps, context, clock=context.clock)

    async def judged(self) -> None:
        await JudgeMigration(copies=True).plan(replace(self.contexts[True](), api_seen=True))

    @property
    def mark(self) -> marking.Mark | None:
        found = [marking.read_mark(host.files.get(places.ETCD_COPY, (None, 0))[0]) for host in self.controls]
        return next((one for one in found if one is not None), None)

    def is_copied(self) -> None:
        [cluster] = self.etcd.open()
        assert cluster != ETCD
        assert set(self.etcd.voters[cluster]) == {host.name for host in self.controls} == self.etcd.running(cluster)
        values = self.etcd.values[cluster]
        assert {*KEYS, *self.etcd.acknowledged} <= values["keys"].keys()
        assert values["keys"][FORMER] == f'["a", "{ETCD:x}"]'
        assert values["revision"] > BUMP
        assert not values["users"]
        assert self.etcd.values[ETCD]["on"], "the former etcd answers again"
        assert "etcd" not in self.store.active_units
        for host in self.controls:
            assert host.uses == {BALANCER} == {host.of_standby()}
            assert places.ETCD_COPY not in host.files
            assert {name.partition(".")[0] for name in host.left()} <= {"member", "kept"}
        assert places.ETCD_COPIED in self.controls[0].files
        assert not any(places.ETCD_COPIED in host.files for host in self.controls[1:])

    def is_as_before(self) -> None:
        assert self.etcd.open() == [ETCD]
        assert self.etcd.acknowledged <= self.etcd.values[ETCD]["keys"].keys()
        assert not self.etcd.values[ETCD].get("users")
        for host in self.controls:
            assert not host.pods
            assert host.uses == {OUTSIDE} == {host.of_standby()}
            assert {name.partition(".")[0] for name in host.left()} <= {"kept"}
            assert (
                not {places.ETCD_COPY, places.ETCD_COPIED, nllb.ETCD_CLIENT_PATH, places.MEMBERS_FILE}
                & host.files.keys()
            )
            assert b'"etcd": true' not in host.files[places.LEAVES_PLAN][0]


@pytest.fixture
def scenes(make_context, notes, monkeypatch) -> Callable[..., Scene]:
    """An etcd outside serves, with authentication off."""
    bases: dict[tuple[int, bool], Context] = {}
    authority = Authority(*read_pair(issue_ca("theirs", new_key("EC"), datetime.now(UTC), 3650)))

    async def look(context: Context) -> None:
        """Of what the fakes know."""
        hosts = {node.name: context.host(node) for node in context.control_nodes}
        context.absent |= {name: "it is off" for name, host in hosts.items() if host.off}  # type: ignore[attr-defined]

    monkeypatch.setattr(hosts_phase, "look", look)

    def make(controls: int = 1, *, client: str = "apiserver") -> Scene:
        world, kube = CopyingEtcd(leader="store"), CopyingKube()
        kube.world = world
        plain = a_cluster(Level.API_SERVER, controls=controls)
        external = ExternalEtcd((OUTSIDE,), "", "", "", lab_host="store", lab_address=STORE)
        outside = replace(plain, external_etcd=external)
        hosts = world.of({**facts_of(plain), "store": replace(FACTS, address=STORE, addresses=(STORE,), hostname="s")})
        world.values[ETCD] = {"revision": 500, "keys": dict(KEYS)}
        contexts: dict[bool, Callable[[], Context]] = {}
        for into, cluster in ((True, plain), (False, outside)):
            if (controls, into) not in bases:
                bases[controls, into] = make_context(cluster)
            base = bases[controls, into]
            base.pki.ensure(certificate_specs(cluster), cluster.certificates, datetime.now(UTC), authorities(cluster))
            world.version = str(etcd_version(base.release)).removeprefix("v")

            def context(base: Context = base) -> Context:
                return replace(base, machines=FakeMachines({**hosts}), connect=lambda *_: kube, absent={})

            contexts[into] = context
        scene = Scene(contexts, world, notes)
        spec = CertSpec("client", "ca", client, usages=("client",))
        _begin(scene, contexts[False](), issue_leaf(spec, authority, "EC", datetime.now(UTC), _YEAR).certificate)
        world.settle()
        world.watched = True
        return scene

    return make


_YEAR = timedelta(days=365)


def _begin(scene: Scene, outer: Context, client: bytes) -> None:
    inputs, payload = outer.inputs(), outer.require_payload()
    for host in scene.controls:
        node = inputs.cluster.node(host.name)
        host.files[FOUNDED] = (b"", 0o644)
        host.active_units |= {"kubelet", "containerd"}
        host.images = {one.reference: one.manifest_digest for one in payload.images.values()}
        host.hosted = OUTSIDE
        host.put_standby(OUTSIDE)
        host.disk.write(f"{places.STANDBY}/{API_SERVER}/current/{CLIENT}", client, 0o600)
        for one in (*render_node.leaf_files(inputs, node), *nllb.files(inputs, node)):
            host.files[one.path] = (one.content, one.mode)
    node = outer.cluster.etcd_host
    assert node is not None
    for one in etcd.external_unit_files(inputs, node):
        scene.store.files[one.path] = (one.content, one.mode)
    scene.store.active_units.add("etcd")
    scene.store.has_data(ETCD, 9, scene.etcd.values[ETCD])
    scene.etcd.voters[ETCD] = {"store": 9}


@pytest.mark.parametrize("controls", [1, 3])
async def test_it_is_copied_and_what_was_acknowledged_is_there(scenes, controls: int) -> None:
    scene = scenes(controls)
    await scene.copy()
    scene.is_copied()
    assert len(scene.etcd.acknowledged) > 10


async def test_again_it_changes_nothing(scenes) -> None:
    scene = scenes(3)
    await scene.copy()
    await scene.copy()
    assert scene.etcd.acts == []


async def cut_at_each_act(scenes, then: Callable[[Scene], Any]) -> None:
    number = 0
    for number in range(300):
        scene = scenes()
        try:
            await scene.copy(cut=number)
        except AutarkyError:
            assert scene.etcd.is_cut
        else:
            break
        await then(scene)
    assert 20 < number < 299


async def test_rule_5_it_may_be_cut_at_any_act(scenes) -> None:
    async def again(scene: Scene) -> None:
        await scene.copy()
        scene.is_copied()

    await cut_at_each_act(scenes, again)


async def test_rule_5_so_may_the_command_that_completes_it(scenes) -> None:
    """Each in turn, until nothing is left to be cut."""
    scene = scenes()
    for number in range(300):
        try:
            await scene.copy(cut=1 + number // 3)
        except AutarkyError:
            continue
        break
    await scene.copy()
    scene.is_copied()


async def test_before_the_decision_it_goes_back_with_the_former_file_and_after_it_nothing_does(scenes) -> None:
    seen = set[bool]()

    async def back(scene: Scene) -> None:
        mark = scene.mark
        if mark is None:
            return  # nothing was begun, or all is done
        seen.add(mark.opened)
        if mark.opened:
            with pytest.raises(Refused, match="etcd is being copied into the cluster"):
                await scene.go_back()
            assert scene.etcd.values[ETCD]["on"]
        else:
            await scene.go_back()
            scene.is_as_before()
        await scene.copy()
        scene.is_copied()

    await cut_at_each_act(scenes, back)
    assert seen == {True, False}


async def test_when_its_time_is_over_it_goes_back_by_itself(scenes) -> None:
    scene = scenes(3)
    scene.etcd.hangs = True
    with pytest.raises(TimedOut):
        await scene.copy()
    scene.is_as_before()
    scene.etcd.hangs = False
    await scene.copy()
    scene.is_copied()


def off_at(scene: Scene, name: str, what: str) -> None:
    """The machine of that node is gone from when an act with these words is about to be done for the first time."""
    act, gone = scene.etcd.act, list[str]()

    def going(host: str, done: str) -> None:
        if what in done and not gone:
            gone.append(name)
            scene.etcd.hosts[name].off, scene.etcd.hosts[name].process = True, False
            if host == name:
                raise Unreachable(f"{host} does not answer")
        act(host, done)

    scene.etcd.act = going  # type: ignore[method-assign, assignment]


@pytest.mark.parametrize("what", ["refuse everybody", "save a snapshot", "place"])
async def test_the_node_where_it_begins_is_lost_in_the_pause_and_another_one_opens_the_former_etcd(
    scenes, what: str
) -> None:
    scene = scenes(3)
    off_at(scene, "n1", what)
    with pytest.raises(AutarkyError):
        await scene.copy()
    assert scene.etcd.open() == [ETCD]
    assert scene.etcd.acknowledged <= scene.etcd.values[ETCD]["keys"].keys()
    scene.etcd.hosts["n1"].off = False
    await scene.copy()
    scene.is_copied()


async def test_when_that_node_does_not_come_back_the_password_is_not_lost(scenes, acts) -> None:
    scene = scenes(3)
    with pytest.raises(AutarkyError):
        await scene.copy(cut=next_act(scene, "save a snapshot"))
    mark = scene.mark
    assert mark is not None
    scene.etcd.on_again()
    scene.controls[0].off = True
    kept = marking.kept_here(scene.contexts[True]())
    with pytest.raises(Refused, match=f"with the password in {kept}"):
        await scene.copy()
    for content in (kept.read_bytes(), *(host.files[places.ETCD_COPIED][0] for host in scene.controls[1:])):
        found = marking.read_mark(content)
        assert found is not None
        assert (found.password, found.opened) == (mark.password, False)
    scene.controls[0].off = False
    await scene.go_back()
    scene.is_as_before()
    assert not kept.exists()


def next_act(scene: Scene, what: str) -> int:
    """The number of the act with these words, if nothing is cut."""
    return next(number for number, one in enumerate(acts_of(scene)) if what in one)


def acts_of(scene: Scene) -> list[str]:
    return ACTS[len(scene.controls)]


ACTS: dict[int, list[str]] = {}


@pytest.fixture
async def acts(scenes) -> None:
    """Of a copy that nothing cuts."""
    for controls in (1, 3):
        scene = scenes(controls)
        await scene.copy()
        ACTS[controls] = scene.etcd.acts


async def test_a_control_node_that_is_off_after_the_decision_keeps_nobody_from_ending_it(scenes) -> None:
    scene = scenes(3)
    off_at(scene, "n3", "end what uses the former etcd")
    with pytest.raises(AutarkyError):
        await scene.copy()  # it waits for n3 to join
    [cluster] = scene.etcd.open()
    assert cluster != ETCD
    assert scene.etcd.api_serves()
    scene.etcd.hosts["n3"].off = False
    await scene.copy()
    scene.is_copied()


async def test_so_does_one_that_is_off_when_it_is_resumed(scenes, acts) -> None:
    scene = scenes(3)
    with pytest.raises(AutarkyError):
        await scene.copy(cut=next_act(scene, "end what uses the former etcd"))
    assert scene.mark is not None
    assert scene.mark.opened
    scene.etcd.hosts["n3"].off = True
    with pytest.raises(AutarkyError):
        await scene.copy()
    assert scene.etcd.api_serves()
    scene.etcd.hosts["n3"].off = False
    await scene.copy()
    scene.is_copied()


async def test_a_decision_of_which_the_answer_is_lost_with_the_node_opens_nothing(scenes, monkeypatch) -> None:
    """It may be on that node's disk, and the copy be open there: the former etcd is closed permanently then."""
    scene, decide = scenes(3), copying._decide

    async def and_is_lost(context: Context, mark: marking.Mark) -> None:
        await decide(context, mark)
        scene.etcd.hosts["n1"].off, scene.etcd.hosts["n1"].process = True, False
        raise Unreachable("n1 does not answer")

    monkeypatch.setattr(copying, "_decide", and_is_lost)
    with pytest.raises(Unreachable):
        await scene.copy()
    assert scene.etcd.open() == []
    assert scene.etcd.values[ETCD]["on"]
    monkeypatch.setattr(copying, "_decide", decide)
    scene.etcd.hosts["n1"].off = False
    await scene.copy()
    scene.is_copied()


async def test_a_copy_that_lacks_something_does_not_take_the_place(scenes) -> None:
    scene = scenes()
    scene.etcd.loses = True
    with pytest.raises(Refused, match="what was acknowledged is kept"):
        await scene.copy()
    scene.is_as_before()


async def test_the_bound_is_for_the_pause_whatever_takes_so_long(scenes, monkeypatch, looptime) -> None:
    scene = scenes()

    async def slow(*arguments: Any, **options: Any) -> Any:
        await asyncio.sleep(900)
        return await on_host(*arguments, **options)

    monkeypatch.setattr(copying, "on_host", slow)
    with pytest.raises(TimedOut, match="was not complete after 120 s"):
        await scene.copy()
    assert looptime < 200
    scene.is_as_before()


async def test_whoever_is_interrupted_twice_leaves_it_as_it_was_or_as_it_is_to_be(scenes) -> None:
    """Ctrl-C, and again when nothing seems to happen."""
    for number in range(8, 60, 3):
        scene = scenes(3)
        task, act = asyncio.ensure_future(scene.copy()), scene.etcd.act

        def acts(host: str, what: str, task: Any = task, act: Any = act, scene: Any = scene, at: int = number) -> None:
            if len(scene.etcd.acts) in (at, at + 2):
                task.cancel()
            act(host, what)

        scene.etcd.act = acts
        try:
            await task
        except asyncio.CancelledError:
            mark = scene.mark
            if mark is None:
                scene.is_as_before()
            else:
                assert mark.opened, "the former etcd refuses everybody, and nobody ends that"
            scene.etcd.act = act
            await scene.copy()
        scene.is_copied()


async def test_a_fence_that_does_not_hold_leads_back(scenes) -> None:
    scene = scenes()
    scene.etcd.leaks = True
    with pytest.raises(Refused, match="answers n1, though it was told to refuse everybody"):
        await scene.copy()
    scene.etcd.leaks = False
    scene.is_as_before()


async def test_a_user_root_who_is_not_ours_is_not_used(scenes, monkeypatch) -> None:
    scene = scenes()
    refuse_all_but, made = EtcdTools.refuse_all_but, {"root": "somebody's"}

    async def late(tools: EtcdTools, password: str) -> None:
        scene.etcd.values[ETCD]["users"] = dict(made)
        await refuse_all_but(tools, password)

    monkeypatch.setattr(EtcdTools, "refuse_all_but", late)
    with pytest.raises(AutarkyError, match="who is not ours"):
        await scene.copy()
    assert not scene.etcd.values[ETCD].get("on")


async def test_a_file_whose_copy_went_back_was_never_applied(scenes) -> None:
    scene = scenes()
    context = scene.contexts[True]()
    new: dict[str, Any] = {"metadata": {"name": "demo"}, "spec": {"etcd": {}, "nodes": []}}
    former = {**new, "spec": {**new["spec"], "etcd": {"external": {}}, "sshConfig": "mine"}}
    kept_file.write(context.directory, pretty_json(former))
    kept_file.settle(context.directory)
    kept_file.write(context.directory, pretty_json(new))
    scene.controls[0].fails = {"make": "no space left on device"}
    with pytest.raises(AutarkyError, match="no space left"):
        await scene.copy()
    assert kept_file.is_settled(context.directory)
    assert "external" in kept_file.kept(context.directory)[0]["spec"]["etcd"]


async def test_an_agent_that_puts_a_former_standby_back_does_not_have_the_last_word(scenes) -> None:
    scene = scenes()
    scene.etcd.puts_back = OUTSIDE
    await scene.copy()
    assert not scene.etcd.puts_back
    scene.is_copied()


@pytest.mark.parametrize("step", ["make", "place"])
async def test_what_fails_on_the_host_leads_back(scenes, step: str) -> None:
    scene = scenes()
    scene.controls[0].fails = {step: "no space left on device"}
    with pytest.raises(AutarkyError, match="no space left"):
        await scene.copy()
    scene.is_as_before()


async def test_a_snapshot_of_a_member_that_lags_is_taken_again(scenes) -> None:
    scene = scenes()
    scene.etcd.lags = 2
    await scene.copy()
    scene.is_copied()


async def test_data_of_a_former_member_is_kept_also_by_who_goes_back(scenes) -> None:
    async def back(scene: Scene) -> None:
        if scene.mark is not None and not scene.mark.opened:
            await scene.go_back()
            assert {"member"} & {name.partition(".")[0] for name in scene.controls[0].left()} or [
                name for name in scene.controls[0].left() if name.startswith("kept.")
            ]

    def with_data() -> Scene:
        scene: Scene = scenes()
        scene.controls[0].has_data(0xBAD, 5, {"revision": 1, "keys": {}})
        return scene

    await cut_at_each_act(with_data, back)


async def test_the_password_is_on_no_command_line_and_in_no_text(scenes) -> None:
    scene = scenes()
    with pytest.raises(AutarkyError) as failed:
        await scene.copy(cut=25)
    mark = scene.mark
    assert mark is not None
    assert mark.password not in str(failed.value) + repr(mark) + " ".join(scene.etcd.acts)
    assert scene.controls[0].files[places.ETCD_COPY][1] == 0o600


async def test_what_would_start_another_etcd_is_refused_meanwhile(scenes) -> None:
    scene = scenes()
    await marking.refuse_under_way(scene.contexts[True]())
    with pytest.raises(AutarkyError):
        await scene.copy(cut=10)
    scene.etcd.on_again()
    with pytest.raises(Refused, match="n1 is where that was begun"):
        await marking.refuse_under_way(scene.contexts[True]())


@pytest.mark.parametrize("former", [True, False], ids=["a former member", "none"])
@pytest.mark.parametrize("state", ["begun", "made", "placed", "placed, then cut"])
def test_what_is_removed_on_the_host_is_the_copy_and_nothing_else(tmp_path: Path, state: str, former: bool) -> None:
    """The script itself. The former member's data is moved aside when the copy is placed."""
    data, work = tmp_path / "etcd", tmp_path / "etcd/copy.1"
    theirs, copied = data / "member/theirs", data / "member/copied"
    (work / "new").mkdir(parents=True)
    if not state.startswith("placed"):
        copied = work / "new/member/copied"
    if former and not state.startswith("placed"):
        theirs.parent.mkdir()
        theirs.touch()
    copied.parent.mkdir(parents=True)
    copied.touch()
    if state != "begun":
        (work / "ready").touch()
    if state == "placed, then cut":
        (work / "new").rmdir()
    subprocess.run(["sh", "-c", returning.REMOVE, "sh", str(data), str(work)], check=True)
    assert not copied.exists()
    assert not work.exists()
    assert theirs.exists() is (former and not state.startswith("placed"))


async def test_up_is_refused_meanwhile(scenes) -> None:
    scene = scenes()
    with pytest.raises(AutarkyError):
        await scene.copy(cut=10)
    scene.etcd.on_again()
    with pytest.raises(Refused, match="n1 is where that was begun"):
        await CheckFile().plan(scene.contexts[True]())


# --- what is refused --------------------------------------------------------------------------------------------------


async def test_it_is_judged_before_anything_is_touched(scenes) -> None:
    await scenes().judged()
    for change, said in (
        ({"users": {"somebody": "x"}}, "it has the users somebody"),
        ({"on": True, "users": {"root": None}}, "its authentication is on"),
        ({"alarms": [{"memberID": 9, "alarm": 1}]}, "alarm NOSPACE"),
    ):
        scene = scenes()
        scene.etcd.values[ETCD].update(change)
        scene.etcd.watched = False
        scene.etcd.api_serves = lambda: True
        with pytest.raises(Refused, match=said):
            await scene.judged()
        assert scene.etcd.acts == []
    with pytest.raises(Refused, match="that of etcd's user root"):
        await scenes(client="root").judged()
    scene = scenes()
    scene.etcd.version = "9.9.0"
    with pytest.raises(Refused, match=r"runs etcd 9\.9\.0"):
        await scene.judged()


async def test_a_disk_without_room_is_refused(scenes) -> None:
    scene = scenes()
    scene.controls[0].free = 2199 + SPARE
    scene.etcd.size = 1000
    with pytest.raises(Refused, match=f"the copy needs {2200 + SPARE:,}"):
        await scene.judged()


async def test_a_database_that_our_quota_has_no_room_for_is_refused(scenes) -> None:
    scene = scenes()
    scene.etcd.size = 1800 * 1024**2
    with pytest.raises(Refused, match=r"the quota of the control nodes' is 2,147,483,648"):
        await scene.judged()


async def test_kinds_that_have_an_etcd_of_their_own_are_refused(scenes) -> None:
    scene = scenes()
    context = replace(scene.contexts[True](), api_seen=True)
    extra = {API_SERVER: {"etcd-servers-overrides": "/events#https://db1:2379"}}
    asked = replace(context, cluster=replace(context.cluster, extra_args=extra))
    with pytest.raises(UserError, match="some kinds are in another etcd"):
        await JudgeMigration(copies=True).plan(asked)
    container = {"name": API_SERVER, "command": [API_SERVER, "--etcd-servers-overrides=/events#https://db1:2379"]}
    meta = {"name": API_SERVER, "namespace": "kube-system"}
    spec = {"template": {"spec": {"containers": [container]}}}
    context.kube().put({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta, "spec": spec})
    with pytest.raises(UserError, match="some kinds are in another etcd"):
        await JudgeMigration(copies=True).plan(context)
