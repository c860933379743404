"""A backup from before a node was removed does not bring it back, nor what it could come back with."""

from __future__ import annotations

import json

import pytest

from autarky.engine.phase import Change, Warn
from autarky.errors import ApiError
from autarky.phases.recovery.looking import LookForData
from autarky.phases.recovery.removed import ForgetRemoved, NoteMembers, read
from autarky.phases.recovery.starting import AwaitApi, StartEtcd
from autarky.phases.recovery.state import FromKept, FromMember, FromSnapshot, Recovery
from autarky.phases.trusted import Trusted, trust_only, trusted
from autarky.ports import Object
from autarky.render import access
from autarky.render.values import CONTROL_PLANE_ACTIVE, CONTROL_PLANE_REQUESTED
from autarky.workflows.recovery import phases
from fakes.kube import FakeKube
from fakes.recovering_host import Cut
from unit.phases.recovery.scenes import Scene, all_is_well, etcd_member, with_two_left
from unit.phases.recovery.test_recovery_cut import everywhere

pytestmark = pytest.mark.looptime

THERE = ("n1", "n2", "n3", "joined", "replaced", "deleted")
"""In the inventory now. The Node of "deleted" was deleted by mistake; "distrusted" is about to be removed."""
THEN = ("n1", "n2", "n3", "removed", "replaced", "deleted", "distrusted")
FILE_KEYS = {f"/registry/minions/{name}": (1, 1) for name in (*THEN, "lost")}


def entry(name: str) -> str:
    return json.dumps({"addresses": [f"192.0.2.{sum(name.encode()) % 200}"]})


def node(name: str, *labels: str) -> Object:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": dict.fromkeys(labels, "")}}


def lists(names: tuple[str, ...], **credentials: str) -> list[Object]:
    renewals = {name: credentials.get(name, f"of {name}") for name in names}
    return [access.inventory_with({name: entry(name) for name in names}), access.renewals(renewals)]


def now(kube: FakeKube) -> None:
    for obj in (*map(node, (*THERE, "distrusted")), *lists(THERE, replaced="of the new one")):
        if obj["metadata"]["name"] != "deleted":
            kube.put(obj)


async def as_backed_up(kube: FakeKube) -> None:
    """The API has the objects of the backup."""
    for name in ("joined",):
        await kube.delete("v1", "Node", name)
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "default"}}
    for obj in (
        *(node(name) for name in THEN),
        *lists((*THEN, "lost")),
        {**lease, "metadata": {"name": "removed", "namespace": "kube-node-lease"}},
        {**pod, "spec": {"nodeName": "removed"}},
        etcd_member("formerly", 9),
    ):
        kube.put(obj)


@pytest.fixture
def restores(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the API answers again, it has what was in the backup."""

    async def answers(self: AwaitApi, context, progress) -> None:
        await as_backed_up(context.kube())

    monkeypatch.setattr(AwaitApi, "run", answers)


async def nodes(kube: FakeKube) -> set[str]:
    return {one["metadata"]["name"] for one in await kube.list("v1", "Node")}


async def is_as_before(scene: Scene) -> None:
    assert await trusted(scene.kube) == Trusted(
        {name: entry(name) for name in THERE},
        {name: f"of {name}" for name in THERE} | {"replaced": "of the new one"},
    )
    assert await nodes(scene.kube) == {"n1", "n2", "n3", "replaced", "deleted", "distrusted"}
    for kind in (("v1", "Pod"), ("coordination.k8s.io/v1", "Lease")):
        assert await scene.kube.list(*kind) == []
    members = {one["metadata"]["name"] for one in await scene.kube.list("autarky.dev/v1alpha1", "EtcdMember")}
    assert members == {"n1", "n2", "n3"}


async def test_who_was_removed_stays_removed_and_who_was_deleted_by_mistake_is_back(
    scene: Scene, snapshot: FromSnapshot, restores: None
) -> None:
    """Also one that is being removed gets back neither its place in the inventory nor a credential, and the machine of
    which another one has taken the name gets back none."""
    now(scene.kube)
    await scene.run(snapshot)
    all_is_well(scene)
    await is_as_before(scene)


@pytest.mark.parametrize("how", Cut)
async def test_rule_5_also_where_the_restore_is_cut_anywhere(
    scenes, snapshot: FromSnapshot, restores: None, how: Cut
) -> None:
    async def prepared() -> Scene:
        scene = scenes()
        now(scene.kube)
        return scene

    async def judge(scene: Scene) -> None:
        await scene.run(snapshot)
        all_is_well(scene)
        await is_as_before(scene)

    await everywhere(prepared, snapshot, how, judge)


CONTROL = (CONTROL_PLANE_REQUESTED, CONTROL_PLANE_ACTIVE)


@pytest.mark.parametrize("stays", [("n1",), ("n1", "n2", "n3", "replaced")])
async def test_a_control_node_that_has_become_a_worker_stays_one(
    scene: Scene, snapshot: FromSnapshot, monkeypatch: pytest.MonkeyPatch, stays: tuple[str, ...]
) -> None:
    """By its labels in the backup it would get the keys of the CAs."""
    now(scene.kube)
    for name in stays:
        scene.kube.put(node(name, *CONTROL))

    async def answers(self: AwaitApi, context, progress) -> None:
        await as_backed_up(context.kube())
        for name in ("n1", "n2", "n3"):
            context.kube().put(node(name, *CONTROL))
        context.kube().put(node("replaced", CONTROL_PLANE_ACTIVE))

    monkeypatch.setattr(AwaitApi, "run", answers)
    await scene.run(snapshot)
    labelled = {one["metadata"]["name"] for one in await scene.kube.list("v1", "Node") if one["metadata"]["labels"]}
    assert labelled == set(stays)


async def test_another_command_that_resumes_the_restore_knows_it_as_well(
    scene: Scene, snapshot: FromSnapshot, restores: None
) -> None:
    now(scene.kube)
    await scene.until(snapshot, AwaitApi)
    await as_backed_up(scene.kube)
    await scene.run(FromMember())
    await is_as_before(scene)


async def test_it_is_noted_before_the_fence_and_for_root_only(scene: Scene, snapshot: FromSnapshot) -> None:
    now(scene.kube)
    recovery, _ = await scene.until(snapshot, StartEtcd)
    path = f"{recovery.work}/members.json"
    acts = scene.etcd.acts
    assert (
        acts.index("n1: make")
        < acts.index(f"n1: write {path}")
        < min(acts.index(one) for one in acts if "fence" in one)
    )
    content, mode = scene.hosts["n1"].files[path]
    assert mode == 0o600
    assert read(content) == recovery.members


async def test_the_data_from_before_a_restore_brings_nobody_back_either(
    scene: Scene, snapshot: FromSnapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.run(snapshot)
    now(scene.kube)

    async def answers(self: AwaitApi, context, progress) -> None:
        await as_backed_up(context.kube())

    monkeypatch.setattr(AwaitApi, "run", answers)
    await scene.run(FromKept())
    await is_as_before(scene)


async def test_while_the_api_of_a_restore_that_is_resumed_is_silent_it_is_planned_in_general(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    now(scene.kube)
    recovery, context = await scene.until(snapshot, AwaitApi)
    scene.kube.set_outage("it is down")
    scene.kube.unhealthy = "it is down"
    [change] = await ForgetRemoved(recovery).plan(context)
    assert change.sentence == "forget the nodes that were removed since then"
    recovery.members = None
    assert await ForgetRemoved(recovery).plan(context) == []


# --- what a dry run says --------------------------------------------------------------------------------------------


async def said(scene: Scene, source, then=None) -> list[Change | Warn]:
    recovery, context = Recovery(source), scene.make()
    found = [list(await phase.plan(context)) for phase in phases(recovery, None, then)]
    assert scene.etcd.acts == []
    return [one for phase in found for one in phase if isinstance(one, Change | Warn)]


async def test_a_dry_run_names_whom_it_would_forget(scene: Scene, snapshot: FromSnapshot) -> None:
    now(scene.kube)
    changes = [one.sentence for one in await said(scene, snapshot, lambda: FILE_KEYS) if isinstance(one, Change)]
    assert [one for one in changes if "forget" in one] == [
        "forget node lost, which was removed since",
        "forget node removed, which was removed since",
    ]
    changes = [one.sentence for one in await said(scene, snapshot) if isinstance(one, Change)]
    assert "forget the nodes that were removed since then" in changes


@pytest.mark.parametrize("why", ["no API", "no inventory", "an empty one", "an error"])
async def test_where_nobody_says_who_is_in_the_cluster_that_is_said_and_nobody_is_forgotten(
    scene: Scene, snapshot: FromSnapshot, restores: None, monkeypatch: pytest.MonkeyPatch, why: str, notes
) -> None:
    """Somebody may have deleted all Nodes, and the inventory with them."""
    if why == "no API":
        scene.kube.unhealthy = "it is down"
    elif why == "an empty one":
        scene.kube.put(access.inventory_with({}))
    elif why == "an error":
        now(scene.kube)

        async def fails(_: object) -> Trusted:
            raise ApiError(500, "InternalError", "it says no")

        monkeypatch.setattr("autarky.phases.recovery.removed.trusted", fails)
    warned = [one.sentence for one in await said(scene, snapshot, lambda: FILE_KEYS) if isinstance(one, Warn)]
    assert any("the API does not say who is in the cluster now" in one for one in warned)
    strange = "deleted, distrusted, lost, removed, replaced"
    assert any(f"nodes that are not in the cluster file: {strange}. Whether they were removed" in one for one in warned)
    monkeypatch.undo()
    recovery, context = await scene.until(snapshot, AwaitApi)
    scene.kube.unhealthy = None
    await as_backed_up(scene.kube)
    phase = ForgetRemoved(recovery)
    if why == "an error":
        return
    [warning] = await phase.plan(context)
    assert isinstance(warning, Warn)
    assert "deleted, distrusted, formerly, lost, removed, replaced" in warning.sentence
    await phase.run(context, notes)
    assert await nodes(scene.kube) >= set(THEN)


async def test_there_is_nothing_to_say_where_the_backup_knows_nobody_else(scene: Scene, snapshot: FromSnapshot) -> None:
    scene.kube.unhealthy = "it is down"
    keys = {f"/registry/minions/n{number}": (1, 1) for number in (1, 2, 3)}
    warned = [one.sentence for one in await said(scene, snapshot, lambda: keys) if isinstance(one, Warn)]
    assert not any("in the backup there are nodes" in one for one in warned)


async def test_a_control_node_that_was_found_is_not_forgotten_whatever_the_lists_say(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    scene.kube.put(access.inventory_with({"joined": entry("joined")}))
    recovery, context = await scene.until(snapshot, AwaitApi)
    await as_backed_up(scene.kube)
    names = [one.sentence for one in await ForgetRemoved(recovery).plan(context)]
    assert not any("forget node n" in one for one in names)
    assert "forget node removed, which was removed" in names


async def test_of_many_names_only_the_first_are_shown(scene: Scene, snapshot: FromSnapshot) -> None:
    scene.kube.unhealthy = "it is down"
    keys = {f"/registry/minions/w{number:03}": (1, 1) for number in range(50)}
    warned = [one.sentence for one in await said(scene, snapshot, lambda: keys) if isinstance(one, Warn)]
    assert any("w019 and 30 more." in one for one in warned)


async def test_the_newest_data_needs_none_of_this(scene: Scene) -> None:
    two_left = with_two_left(scene)
    now(two_left.kube)
    recovery, context = Recovery(FromMember()), two_left.make()
    await LookForData(recovery).plan(context)
    assert await NoteMembers(recovery).plan(context) == []
    assert await ForgetRemoved(recovery).plan(context) == []
    recovery.placed = True
    assert await ForgetRemoved(recovery).plan(context) == []


@pytest.mark.parametrize(
    "content", [None, b"", b"[]", b"{}", b'{"nodes": [], "inventory": [], "renewals": {}}', b'{"nodes": 1}', b"{"]
)
def test_what_cannot_be_read_says_nothing(content: bytes | None) -> None:
    assert read(content) is None


def test_nobody_is_a_member_of_nothing() -> None:
    assert read(b'{"nodes": ["n1"], "inventory": {}, "renewals": {}}') is None


# --- both lists at once ---------------------------------------------------------------------------------------------


class Watched(FakeKube):
    """After each write it says what the lists are."""

    async def _look(self) -> None:
        found = await trusted(self)
        assert found.inventory, "an empty inventory refuses nobody"
        assert found.inventory.keys() <= found.renewals.keys(), "any credential would be valid"

    async def apply(self, obj, **others):
        done = await super().apply(obj, **others)
        await self._look()
        return done

    async def patch(self, *arguments, **others):
        done = await super().patch(*arguments, **others)
        await self._look()
        return done


async def test_at_no_moment_the_inventory_is_empty_or_has_a_node_that_any_credential_is_good_for() -> None:
    kube = Watched()
    for obj in lists(("a", "b")):
        kube.put(obj)
    wanted = Trusted({"c": entry("c"), "b": entry("b")}, {"c": "", "b": "another"})
    for _ in range(2):
        await trust_only(kube, wanted)
        assert await trusted(kube) == wanted
    found = await kube.get("v1", "ConfigMap", access.INVENTORY, "kube-system")
    await trust_only(kube, Trusted({"b": entry("b")}, {"b": "another"}))
    assert found is not None
    with pytest.raises(ValueError, match="refuses nobody"):
        await trust_only(kube, Trusted())
