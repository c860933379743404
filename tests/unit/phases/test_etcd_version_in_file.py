"""The version of etcd in the cluster file: asked for through the ControlPlane, kept where the file names none, and
refused before anything is touched where etcd cannot be moved to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from autarky import places
from autarky.control.etcd.decide.template import Request, effective
from autarky.control.etcd.manifests import pods as etcd
from autarky.engine.phase import Change, Kept
from autarky.errors import UserError
from autarky.model.cluster import Cluster, Level
from autarky.model.components import ETCD
from autarky.model.versions import Version
from autarky.payload import load_release, with_etcd
from autarky.phases import etcd_asked
from autarky.phases.check_file import CheckFile, CheckFileAgain
from autarky.phases.context import Context
from autarky.phases.etcd_pods import manifest_of, wanted_member
from autarky.phases.etcd_template import AwaitEtcd
from autarky.phases.hosts import CheckHosts
from autarky.phases.objects import ApplyObjects, ApplyParts
from autarky.phases.ownership import FollowControlPlane
from autarky.ports import Object
from autarky.render import node as render_node
from autarky.render.crds import API_VERSION, control_plane
from autarky.render.objects import agent_parts
from autarky.render.values import SYSTEM
from fakes.clusters import a_cluster
from fakes.host import FakeHost
from fakes.kube import FakeKube

CLUSTER = a_cluster(Level.ETCD)
NOT_HOSTED = a_cluster(Level.API_SERVER)
OWN, NEWER = Version(3, 6, 16), Version(3, 7, 3)
PLANE = (API_VERSION, "ControlPlane", "cluster")
AGENTS = ApplyParts(agent_parts)
"""What is applied last: the template of etcd's members is among it."""


def in_file(cluster: Cluster, version: Version | None) -> Cluster:
    return replace(cluster, etcd_version=version)


class World:
    """A cluster's API, and files that are applied to it one after the other."""

    def __init__(self, make_context: Callable[..., Context], notes: Any) -> None:
        self.make_context, self.notes, self.kube = make_context, notes, FakeKube()

    def context(self, cluster: Cluster, **changes: Any) -> Context:
        context = self.make_context(cluster, kube=self.kube)
        context.release = with_etcd(load_release(cluster.kubernetes_version), cluster.etcd_version)
        for name, value in changes.items():
            setattr(context, name, value)
        return context

    async def planned(self, cluster: Cluster, **changes: Any) -> list[Change | Kept]:
        context = self.context(cluster, **changes)
        await FollowControlPlane().plan(context)
        found = [*await ApplyObjects().plan(context), *await AGENTS.plan(context)]
        return [one for one in found if isinstance(one, Change | Kept)]

    async def apply(self, cluster: Cluster, **changes: Any) -> None:
        context = self.context(cluster, **changes)
        await FollowControlPlane().plan(context)
        await ApplyObjects().run(context, self.notes)
        await AGENTS.run(context, self.notes)

    async def etcd_of_plane(self) -> object:
        plane = await self.kube.get(*PLANE)
        assert plane is not None
        return plane["spec"].get("etcd")

    async def edit(self, **wanted: Any) -> None:
        await self.kube.patch(*PLANE, {"spec": {"etcd": wanted}})

    async def template(self) -> Object:
        found = await self.kube.get("v1", "ConfigMap", etcd.TEMPLATE, SYSTEM)
        assert found is not None
        return found

    async def image_in_template(self) -> str:
        spec = etcd.spec_in(await self.template(), etcd.TEMPLATE_KEY)
        assert spec is not None
        return str(spec["containers"][0]["image"])

    async def runs(self, version: Version, **more: str) -> None:
        """As the operator notes it."""
        live = await self.template()
        base = etcd.spec_in(live, etcd.TEMPLATE_KEY)
        assert base is not None
        runs = json.dumps(effective(base, Request({}, str(version).removeprefix("v"))))
        self.kube.put({**live, "data": {**live["data"], etcd.IN_FORCE_KEY: runs, etcd.SETTLED_KEY: runs, **more}})


@pytest.fixture
def world(make_context: Callable[..., Context], notes: Any) -> World:
    return World(make_context, notes)


# --- what the ControlPlane says ------------------------------------------------------------------------------------


async def test_the_files_version_is_asked_for_by_the_control_plane_and_the_template_stays(world: World) -> None:
    await world.apply(CLUSTER)
    before, asked = await world.template(), in_file(CLUSTER, NEWER)
    assert [one.sentence for one in await world.planned(asked) if isinstance(one, Change)] == [
        "apply ControlPlane cluster"
    ]
    await world.apply(asked)
    assert await world.etcd_of_plane() == {"version": "3.7.3"}
    assert await world.template() == before
    assert await world.planned(asked) == []


async def test_a_new_cluster_has_its_files_version_in_both(world: World) -> None:
    await world.apply(in_file(CLUSTER, NEWER))
    assert await world.etcd_of_plane() == {"version": "3.7.3"}
    assert (await world.image_in_template()).endswith("/etcd:3.7.3-0")


async def test_what_else_somebody_has_set_of_etcd_stays_also_when_the_line_is_taken_out(world: World) -> None:
    """And etcd stays at its version: the release's own would be an older minor."""
    await world.apply(CLUSTER)
    await world.edit(members=["n1"], quotaBytes=2**30)
    await world.apply(in_file(CLUSTER, NEWER))
    asked = {"members": ["n1"], "quotaBytes": 2**30, "version": "3.7.3"}
    assert await world.etcd_of_plane() == asked
    assert await world.planned(CLUSTER) == []
    await world.apply(replace(CLUSTER, extra_args={"kube-scheduler": {"v": "1"}}))
    assert await world.etcd_of_plane() == asked


async def test_an_edit_stands_against_a_file_that_has_not_changed_and_not_against_one_that_has(world: World) -> None:
    await world.apply(in_file(CLUSTER, OWN))
    await world.edit(version="3.7.3")
    [kept] = await world.planned(in_file(CLUSTER, OWN))
    assert isinstance(kept, Kept)
    assert (kept.field, kept.ours, kept.live) == ("spec.etcd.version", "3.6.16", "3.7.3")
    await world.edit(version="3.6.15")
    await world.apply(in_file(CLUSTER, NEWER))
    assert await world.etcd_of_plane() == {"version": "3.7.3"}


# --- what a file leaves as it is -----------------------------------------------------------------------------------


async def of_another_release(world: World) -> None:
    """The template, as an autarky has written it with which this version of etcd came."""
    live = await world.template()
    text = live["data"][etcd.TEMPLATE_KEY].replace("/etcd:3.6.16-0", "/etcd:3.7.3-0")
    changed = {**live, "data": {**live["data"], etcd.TEMPLATE_KEY: text}}
    del changed["metadata"]["annotations"]  # which say that it is what we would render
    world.kube.put(changed)


async def test_another_release_of_autarky_leaves_a_running_etcd_at_its_version(world: World) -> None:
    await world.apply(CLUSTER)
    await of_another_release(world)
    await world.apply(CLUSTER)
    assert (await world.image_in_template()).endswith("/etcd:3.7.3-0")
    assert await world.planned(CLUSTER) == []
    assert await etcd_asked.version(world.context(CLUSTER)) == NEWER


async def test_a_move_of_etcd_writes_the_template_of_the_release(world: World) -> None:
    """One that is there is of an earlier time within the cluster."""
    await world.apply(CLUSTER)
    await of_another_release(world)
    await world.apply(CLUSTER, moves_etcd=True)
    assert (await world.image_in_template()).endswith("/etcd:3.6.16-0")


@pytest.mark.parametrize(("version", "tag"), [(None, "3.7.3-0"), (OWN, "3.6.16-0")])
def test_where_level_1_is_not_hosted_a_member_keeps_its_version_unless_the_file_names_one(
    world: World, version: Version | None, tag: str
) -> None:
    there = static_pod(world.context(NOT_HOSTED), NEWER)
    context = world.context(in_file(NOT_HOSTED, version))
    wanted = json.loads(wanted_member(context, context.cluster.nodes[0], there).content)
    assert wanted["spec"]["containers"][0]["image"] == f"registry.k8s.io/etcd:{tag}"


def static_pod(context: Context, version: Version) -> Any:
    image = f"registry.k8s.io/etcd:{str(version).removeprefix('v')}-0"
    file = render_node.manifest(etcd.member_pod(context.inputs(), context.cluster.nodes[0], image=image))
    assert manifest_of(file.content) == file
    return file


# --- what is refused -----------------------------------------------------------------------------------------------

REFUSED = [
    (Version(3, 7, 3), OWN, "an older minor cannot read", 'stays as it is with version: "3.7.3"'),
    (Version(3, 5, 35), NEWER, "minors are not skipped", 'first to version: "3.6.16"'),
    (Version(3, 6, 5), NEWER, "upstream asks for 3.6.11 first", 'first to version: "3.6.16"'),
]


def hosts_of(context: Any) -> dict[str, FakeHost]:
    found: dict[str, FakeHost] = context.machines.hosts
    return found


def marked(context: Context) -> None:
    for name, host in hosts_of(context).items():
        said = {"cluster": "demo", "node": name, "founders": ["n1"], "ca": context.ours.ca}
        host.files[places.NODE_MARKER] = (json.dumps(said).encode(), 0o644)


@pytest.mark.parametrize(("runs", "asked", "why", "first"), REFUSED)
@pytest.mark.parametrize("phase", [CheckFile(), CheckHosts(), CheckFileAgain()], ids=lambda phase: phase.name)
async def test_a_step_that_etcd_cannot_take_is_refused_by_every_look_at_the_file(
    world: World, phase: Any, runs: Version, asked: Version, why: str, first: str
) -> None:
    await world.apply(CLUSTER)
    await world.runs(runs)
    context = world.context(in_file(CLUSTER, asked))
    marked(context)
    with pytest.raises(UserError, match=why) as refused:
        await phase.plan(context)
    assert refused.value.where == "spec.etcd.version"
    assert first in str(refused.value.fix)
    assert all(host.log == [] for host in hosts_of(context).values())
    assert await world.etcd_of_plane() is None


@pytest.mark.parametrize(("runs", "asked", "why", "first"), REFUSED)
async def test_where_level_1_is_not_hosted_the_hosts_say_what_runs(
    world: World, runs: Version, asked: Version, why: str, first: str
) -> None:
    context = world.context(in_file(NOT_HOSTED, asked))
    marked(context)
    [host] = hosts_of(context).values()
    await host.write_files([static_pod(context, runs)])
    with pytest.raises(UserError, match=why) as refused:
        await CheckFile().plan(context)
    assert first in str(refused.value.fix)


async def test_while_a_member_has_the_older_minor_a_change_by_static_pods_may_go_back(world: World) -> None:
    three = replace(a_cluster(Level.API_SERVER, controls=3), etcd_version=OWN)
    context = world.context(three)
    marked(context)
    for name, version in (("n1", NEWER), ("n2", OWN), ("n3", NEWER)):
        await hosts_of(context)[name].write_files([static_pod(context, version)])
    await CheckFile().plan(context)


@pytest.mark.parametrize("hosted", [True, False])
async def test_the_next_minor_and_the_same_one_are_not_refused(world: World, hosted: bool) -> None:
    cluster = CLUSTER if hosted else NOT_HOSTED
    await world.apply(cluster)
    await world.runs(OWN)
    for version in (None, OWN, NEWER):
        context = world.context(in_file(cluster, version))
        marked(context)
        await hosts_of(context)["n1"].write_files([static_pod(context, OWN)])
        await CheckFile().plan(context)


async def test_what_an_edit_asks_for_is_refused_by_the_operator_and_keeps_no_up_from_the_rest(world: World) -> None:
    await world.apply(CLUSTER)
    await world.runs(OWN)
    await world.edit(version="3.9.0")
    for cluster in (CLUSTER, replace(CLUSTER, extra_args={ETCD: {"max-txn-ops": "256"}})):
        context = world.context(cluster)
        marked(context)
        await CheckFile().plan(context)


async def test_without_an_object_that_asks_for_it_the_newer_minor_must_be_in_the_file(world: World) -> None:
    """Somebody has deleted the ControlPlane: by a file without a version it would be made again without one."""
    await world.apply(CLUSTER)
    await world.runs(NEWER)
    await world.kube.delete(*PLANE)
    context = world.context(CLUSTER)
    with pytest.raises(UserError, match="an older minor cannot read") as refused:
        await etcd_asked.refuse_impossible(context)
    assert 'version: "3.7.3" in spec.etcd of the file' in str(refused.value.fix)
    await etcd_asked.refuse_impossible(world.context(in_file(CLUSTER, NEWER)))


async def test_where_edits_are_taken_back_it_is_the_file_that_asks(world: World) -> None:
    await world.apply(in_file(CLUSTER, OWN))
    await world.edit(version="3.7.3")
    await world.runs(NEWER)
    await etcd_asked.refuse_impossible(world.context(in_file(CLUSTER, OWN)))
    with pytest.raises(UserError, match="an older minor cannot read"):
        await etcd_asked.refuse_impossible(world.context(in_file(CLUSTER, OWN), take_ownership=True))


async def test_without_an_api_nothing_is_known_of_a_hosted_etcd(world: World) -> None:
    world.kube = FakeKube(unhealthy="connection refused")
    context = world.context(in_file(CLUSTER, OWN))
    marked(context)
    await hosts_of(context)["n1"].write_files([static_pod(context, NEWER)])
    await CheckFile().plan(context)
    assert await etcd_asked.version(context) is None


# --- what is planned and waited for --------------------------------------------------------------------------------


async def test_a_plan_says_from_which_version_to_which(world: World) -> None:
    await world.apply(CLUSTER)
    await world.runs(OWN)
    asked, says = in_file(CLUSTER, NEWER), "wait: etcd goes from 3.6.16 to 3.7.3, one member after the other"
    [before] = await AwaitEtcd().plan(world.context(asked))
    await world.apply(asked)
    [after] = await AwaitEtcd().plan(world.context(asked))
    assert before == after
    assert str(before.sentence).startswith(says)
    await world.runs(NEWER)
    assert await AwaitEtcd().plan(world.context(asked)) == []


async def test_a_version_that_went_back_is_an_error_until_the_file_names_the_one_that_runs(world: World) -> None:
    await world.apply(CLUSTER)
    await world.apply(in_file(CLUSTER, NEWER))
    base = etcd.spec_in(await world.template(), etcd.TEMPLATE_KEY)
    assert base is not None
    condemned = json.dumps(effective(base, Request({}, "3.7.3")))
    await world.runs(OWN, **{etcd.CONDEMNED_KEY: condemned, etcd.WHY_KEY: "the member of n1: it exited"})
    for cluster in (in_file(CLUSTER, NEWER), CLUSTER):
        with pytest.raises(UserError, match="rolled back, and runs as before: the member of n1: it exited") as failed:
            await AwaitEtcd().plan(world.context(cluster))
        assert 'to stay with it, write version: "3.6.16" into spec.etcd' in str(failed.value.fix)
        assert "run `autarky up` with that, and then with the other one again" in str(failed.value.fix)
    await world.apply(in_file(CLUSTER, OWN))
    [left] = await AwaitEtcd().plan(world.context(in_file(CLUSTER, OWN)))
    assert str(left.sentence) == "wait: the operator has not forgotten yet what went back"
    live = await world.template()
    world.kube.put({**live, "data": {key: text for key, text in live["data"].items() if key != etcd.CONDEMNED_KEY}})
    assert await AwaitEtcd().plan(world.context(in_file(CLUSTER, OWN))) == []


async def test_what_the_operator_refuses_is_no_error_of_a_file_that_asks_for_something_else(world: World) -> None:
    await world.apply(CLUSTER)
    await world.runs(OWN)
    await world.edit(version="3.9.0")
    plane = await world.kube.get(*PLANE)
    assert plane is not None
    condition = {"type": "SpecApplied", "status": "False", "reason": "EtcdTemplateRefused", "message": "skipped"}
    generation = plane["metadata"].get("generation", 0)
    status = {"conditions": [{**condition, "observedGeneration": generation}]}
    world.kube.put({**plane, "status": status})
    with pytest.raises(UserError, match="skipped"):
        await AwaitEtcd().plan(world.context(CLUSTER))
    assert [change.sentence for change in await AwaitEtcd().plan(world.context(in_file(CLUSTER, NEWER)))] == [
        "wait: etcd goes from 3.6.16 to 3.7.3, one member after the other: the operator has not begun"
    ]


def test_an_object_of_a_file_without_a_version_has_nothing_of_etcd() -> None:
    """As before there was a version to ask for: else every cluster's object would be written again."""
    assert ETCD not in control_plane(CLUSTER)["spec"]
    assert control_plane(in_file(CLUSTER, NEWER))["spec"][ETCD] == {"version": "3.7.3"}
