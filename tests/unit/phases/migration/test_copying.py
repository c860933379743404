"""etcd is copied into the cluster, cut at any act: at no time do two etcds take writes, what was acknowledged is there,
and the same command completes it (fakes.copying_host)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
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
from autarky.errors import AutarkyError, Refused, TimedOut
from autarky.model.cluster import ExternalEtcd, Level
from autarky.model.components import API_SERVER
from autarky.model.files import CertSpec
from autarky.payload import etcd_version
from autarky.phases import hosts as hosts_phase
from autarky.phases.context import Context
from autarky.phases.hosts import FOUNDED
from autarky.phases.migration import marking
from autarky.phases.migration.copying import CopyEtcd
from autarky.phases.migration.inwards import JoinInside, LeaveOutside
from autarky.phases.migration.judging import JudgeMigration
from autarky.phases.migration.looking import Migration
from autarky.phases.migration.opening import FinishCopy
from autarky.phases.migration.returning import ReturnEtcd
from autarky.pki.issue import Authority, issue_ca, issue_leaf, read_pair
from autarky.pki.keys import new_key
from autarky.ports import Progress
from autarky.render import node as render_node
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

    def is_as_before(self) -> None:
        assert self.etcd.open() == [ETCD]
        assert self.etcd.acknowledged <= self.etcd.values[ETCD]["keys"].keys()
        assert not self.etcd.values[ETCD].get("users")
        for host in self.controls:
            assert not host.pods
            assert host.uses == {OUTSIDE} == {host.of_standby()}
            assert {name.partition(".")[0] for name in host.left()} <= {"kept"}
            assert not {places.ETCD_COPY, nllb.ETCD_CLIENT_PATH, places.MEMBERS_FILE} & host.files.keys()
            assert b'"etcd": true' not in host.files[places.LEAVES_PLAN][0]


@pytest.fixture
def scenes(make_context, notes, monkeypatch) -> Callable[..., Scene]:
    """An etcd outside serves, with authentication off."""
    bases: dict[tuple[int, bool], Context] = {}
    authority = Authority(*read_pair(issue_ca("theirs", new_key("EC"), datetime.now(UTC), 3650)))

    async def look(context: Context) -> None:
        """The fakes know nothing of it."""

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
    scene.controls[0].free = 2199
    scene.etcd.size = 1000
    with pytest.raises(Refused, match="the copy needs 2,200"):
        await scene.judged()
