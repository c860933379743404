"""Waiting until every kubelet has what is wanted of it; the operator and the agents are what the test writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from autarky.control.kubelet.decide import order as orders
from autarky.control.kubelet.decide import report as reports
from autarky.control.kubelet.decide.order import Request, Target
from autarky.control.kubelet.decide.report import Report, State
from autarky.control.kubelet.manifests import configuration as kubelet_configuration
from autarky.control.kubelet.manifests import files
from autarky.control.kubelet.manifests.generation import base_digest, base_file
from autarky.errors import CommandFailed, TimedOut, Unreachable, UserError
from autarky.model.patience import CEILING
from autarky.model.versions import Version
from autarky.phases import kubelets
from autarky.phases.context import Context
from autarky.phases.kubelets import MOST_WORDS, ChangeKubelets, look, until_current, versions
from autarky.phases.members import as_it_joins
from autarky.ports import Object
from autarky.render import crds
from autarky.render.values import CONTROL_PLANE_ACTIVE
from fakes.clusters import a_cluster
from fakes.host import FakeHost
from fakes.kube import FakeKube
from unit.phases.conftest import Notes

pytestmark = pytest.mark.looptime
PHASE = ChangeKubelets()
MakeContext = Callable[..., Context]
V = Version(1, 36, 4)
WHY = "the kubelet has exited 3 times"
TIMEOUT, STILL = 120.0, 60.0
"""Shorter than they are, and in the same order."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kubelets.TIMEOUT > kubelets.STILL > 60
    monkeypatch.setattr(kubelets, "TIMEOUT", TIMEOUT)
    monkeypatch.setattr(kubelets, "STILL", STILL)


@dataclass(slots=True)
class Kube(FakeKube):
    """later: what happens before each look at the Nodes, one of them at a time."""

    later: Iterator[Callable[[], object]] = field(default_factory=lambda: iter(()))
    patched: list[Object] = field(default_factory=list)

    async def list(self, api_version: str, kind: str, **selected: Any) -> list[Object]:
        if kind == "Node":
            next(self.later, lambda: None)()
        return await FakeKube.list(self, api_version, kind, **selected)

    async def patch(self, api_version: str, kind: str, name: str, patch: Object, **how: Any) -> Object:
        self.patched.append(patch)
        return await FakeKube.patch(self, api_version, kind, name, patch, **how)


@dataclass
class Scene:
    context: Context
    kube: Kube

    def wanted(self, name: str) -> Target:
        """As the operator finds it, of a node with the base that `prepare` writes."""
        node = as_it_joins(self.context.cluster.node(name))
        inputs = self.context.inputs()
        return kubelet_configuration.target_of(
            inputs, base_digest(base_file(kubelet_configuration.base_of(inputs, node)).content)
        )

    def shows(self, name: str, *, runs: Version = V, given: orders.Order | None = None, said: Report | None) -> None:
        """given: its order."""
        annotations = {} if said is None else {reports.ANNOTATION: reports.text(said)}
        if given is not None:
            annotations[orders.ANNOTATION] = orders.text(given)
        self.annotated(name, annotations, runs=str(runs))

    def annotated(self, name: str, annotations: Mapping[str, str], *, runs: str = str(V)) -> None:
        labels = {CONTROL_PLANE_ACTIVE: ""} if self.context.cluster.node(name).control_plane else {}
        metadata = {"name": name, "labels": labels, "annotations": dict(annotations)}
        status = {"nodeInfo": {"kubeletVersion": runs}, "conditions": [{"type": "Ready", "status": "True"}]}
        self.kube.put({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})

    def has(self, name: str, *, base: str | None = None) -> None:
        """All that is wanted, of its own base."""
        target = self.wanted(name) if base is None else replace(self.wanted(name), base=base)
        self.shows(name, said=Report(version=V, base=target.base, target=target.digest))

    def lacks(self, name: str) -> None:
        """It has what was wanted before."""
        self.shows(name, said=Report(version=V, base=self.wanted(name).base, target="before"))

    def comes_to(self, name: str, state: State, why: str = "", *, number: int = 1, reported: int | None = None) -> None:
        """In the order of that number for what is wanted. reported: of the order that its agent still reports."""
        target = self.wanted(name)
        made = [orders.made(Request(target, files.IMAGE, asked=str(one)), one) for one in (number, reported or number)]
        said = Report(made[1].id, made[1].number, 1, state, version=V, base=target.base, target="before", why=why)
        self.shows(name, given=made[0], said=said)

    def all(self, what: Callable[[str], None]) -> None:
        for node in self.context.cluster.nodes:
            what(node.name)

    def host(self, name: str) -> FakeHost:
        found: FakeHost = self.context.machines.hosts[name]  # type: ignore[attr-defined]
        return found

    def happens(self, *steps: Callable[[], object]) -> None:
        """One before each look."""
        self.kube.later = iter(steps)

    async def plane(self) -> Object:
        found = await self.kube.get(crds.API_VERSION, "ControlPlane", crds.CONTROL_PLANE)
        assert found is not None
        return found


@pytest.fixture
def scene(make_context: MakeContext) -> Scene:
    """n1, a control node, and the workers n2 and n3; all have what is wanted."""
    kube = Kube()
    context = make_context(a_cluster(controls=1, workers=2, extra_args={"kubelet": {"v": "4"}}), kube=kube)
    kube.put(crds.control_plane_crd())
    kube.put({**crds.control_plane(context.cluster), "status": {"version": str(V)}})
    made = Scene(context, kube)
    for name in ("n1", "n2", "n3"):
        made.has(name)
    return made


async def sentences(scene: Scene) -> list[str]:
    return [one.sentence for one in await PHASE.plan(scene.context)]


# --- the plan ----------------------------------------------------------------------------------------------------


async def test_nothing_is_planned_where_all_have_what_is_wanted_and_nothing_is_written(
    scene: Scene, notes: Notes
) -> None:
    assert await sentences(scene) == []
    await PHASE.run(scene.context, notes)
    assert scene.kube.patched == []
    assert notes.notes == []


async def test_the_plan_says_which_kubelets_lack_what(scene: Scene) -> None:
    scene.lacks("n2")
    scene.shows("n3", runs=Version(1, 35, 2), said=Report(base=scene.wanted("n3").base))
    assert await sentences(scene) == [
        "have the kubelet of n2 changed: its new settings",
        f"have the kubelet of n3 changed: Kubernetes {V}",
    ]


async def test_the_plan_knows_what_the_file_has_before_it_is_applied(scene: Scene) -> None:
    """Of a control plane of a release, too, that did not have kubelets follow."""
    plane = crds.control_plane(scene.context.cluster)
    del plane["spec"]["kubelets"]
    scene.kube.put({**plane, "status": {"version": str(V)}})
    assert await sentences(scene) == []
    scene.context.cluster = replace(scene.context.cluster, extra_args={"kubelet": {"v": "5"}})
    assert len(await sentences(scene)) == 3
    scene.context.cluster = scene.context.cluster.with_addresses({"n2": "192.0.2.77"})
    for name in ("n1", "n2", "n3"):
        scene.has(name)
    assert await sentences(scene) == []


async def test_another_base_than_that_of_its_host_is_to_be_changed(scene: Scene) -> None:
    scene.has("n2", base="0123456789abcdef")
    assert await sentences(scene) == ["have the kubelet of n2 changed: its new settings"]
    assert await look(scene.context, live_only=True) == {}, "by what the API says alone nothing is amiss"


async def test_by_the_api_alone_a_node_that_does_not_say_its_base_is_asked_for_nothing(scene: Scene) -> None:
    scene.annotated("n2", {})
    scene.lacks("n3")
    assert set(await look(scene.context, live_only=True)) == {"n3"}
    assert set(await look(scene.context)) == {"n2", "n3"}
    plane = await scene.plane()
    scene.kube.put({**plane, "spec": {**plane["spec"], "kubelets": {"follow": False}}})
    assert await look(scene.context, live_only=True) == {}


async def test_of_hosts_that_do_not_answer_and_nodes_that_are_not_there_nothing_is_waited_for(
    scene: Scene, notes: Notes
) -> None:
    scene.lacks("n2")
    scene.context.absent = {"n2": "it is off"}
    await scene.kube.delete("v1", "Node", "n3")
    assert await sentences(scene) == []
    await PHASE.run(scene.context, notes)


@pytest.mark.parametrize("lacking", ["address", "API", "ControlPlane"])
async def test_before_there_is_a_cluster_nothing_is_planned(scene: Scene, notes: Notes, lacking: str) -> None:
    scene.lacks("n2")
    match lacking:
        case "address":
            nodes = tuple(replace(node, address=None) for node in scene.context.cluster.nodes)
            scene.context.cluster = replace(scene.context.cluster, nodes=nodes)
        case "API":
            scene.kube.unhealthy = "connection refused"
        case _:
            await scene.kube.delete(crds.API_VERSION, "ControlPlane", crds.CONTROL_PLANE)
    assert await sentences(scene) == []


async def test_the_versions_are_what_the_nodes_report(scene: Scene) -> None:
    scene.annotated("n3", {}, runs="junk")
    assert await versions(scene.context) == {"n1": V, "n2": V, "n3": None}


# --- waiting -----------------------------------------------------------------------------------------------------


async def test_it_waits_until_the_last_node_has_reported_it(scene: Scene, notes: Notes) -> None:
    """In the turns that the operator gives: workers first."""
    for name in ("n1", "n2", "n3"):
        scene.lacks(name)
    steps: list[Callable[[], object]] = [lambda: None]
    for name in ("n3", "n2", "n1"):
        steps += [lambda name=name, state=state: scene.comes_to(name, state) for state in list(State)[:4]]  # type: ignore[misc]
        steps.append(lambda name=name: scene.has(name))  # type: ignore[misc]
    scene.happens(*steps)
    await PHASE.run(scene.context, notes)
    assert notes.notes == [f"the kubelet of {name} has its new settings" for name in ("n3", "n2", "n1")]
    assert next(scene.kube.later, None) is None, "it has looked as often"
    assert scene.kube.patched == []


async def test_a_node_has_it_only_when_its_kubelet_says_the_version_as_well(scene: Scene, notes: Notes) -> None:
    target, newer = scene.wanted("n2"), Version(1, 37, 1)
    said = Report(version=V, base=target.base, target=target.digest)
    scene.shows("n2", runs=newer, said=said)
    scene.happens(lambda: None, lambda: None, lambda: scene.has("n2"))
    await PHASE.run(scene.context, notes)
    assert notes.notes == [f"the kubelet of n2 has Kubernetes {V}"]


async def test_a_kubelet_on_trial_is_waited_for_until_it_is_proven(scene: Scene, notes: Notes) -> None:
    """What is in force then is what is wanted, and may go back."""
    target = scene.wanted("n2")
    order = orders.made(Request(target, files.IMAGE), 1)
    trial = Report(order.id, 1, 1, State.PROVING, version=V, base=target.base, target=target.digest)

    def proving() -> None:
        scene.shows("n2", given=order, said=trial)

    def done() -> None:
        scene.shows("n2", given=order, said=replace(trial, state=State.DONE))

    scene.shows("n2", runs=Version(1, 35, 9), said=Report(version=Version(1, 35, 9), base=target.base, target="before"))
    scene.happens(lambda: None, proving, lambda: None, done)
    await PHASE.run(scene.context, notes)
    assert scene.kube.later is not None
    assert next(scene.kube.later, "all of it has happened") == "all of it has happened"
    assert notes.notes == [f"the kubelet of n2 has Kubernetes {V}"]


async def test_an_api_that_is_away_for_a_while_is_waited_for(scene: Scene, notes: Notes) -> None:
    scene.lacks("n2")
    scene.happens(lambda: None, lambda: scene.kube.set_outage("connection refused"))
    async with asyncio.TaskGroup() as group:
        run = group.create_task(PHASE.run(scene.context, notes))
        await asyncio.sleep(60)
        assert not run.done()
        scene.kube.set_outage(None)
        scene.has("n2")


def test_the_phase_is_broken_off_later_than_its_wait_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert PHASE.timeout > CEILING * kubelets.TIMEOUT


# --- what goes back ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [State.WENT_BACK, State.REFUSED])
async def test_a_control_node_that_went_back_ends_it_with_its_reason_and_its_last_words(
    scene: Scene, notes: Notes, state: State
) -> None:
    for name in ("n1", "n2"):
        scene.lacks(name)
    words = b"E1123 run.go:74] one\nE1123 two\nE1123 three\nfix: believe me\n"
    scene.host("n1").files[files.LAST_WORDS] = (words, 0o600)
    scene.happens(lambda: None, lambda: scene.comes_to("n2", State.STAGING), lambda: scene.comes_to("n1", state, WHY))
    with pytest.raises(UserError) as caught:
        await PHASE.run(scene.context, notes)
    assert f"node n1: its kubelet is not healthy with its new settings ({WHY})" in caught.value.what
    assert "  | E1123 three\n  | fix: believe me" in caught.value.what, "no line of theirs passes for one of ours"
    assert "E1123 run.go" not in caught.value.what
    assert asyncio.get_running_loop().time() < TIMEOUT, "whatever a worker is at"
    assert "spec.extraArgs.kubelet" in caught.value.fix


@pytest.mark.parametrize("error", [Unreachable("n1 did not answer"), CommandFailed("n1", ["cat"], 1, "no"), None])
async def test_a_host_that_does_not_say_its_last_words_hides_no_failure(
    scene: Scene, notes: Notes, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """None: it says too much."""
    scene.lacks("n1")
    scene.host("n1").files[files.LAST_WORDS] = (b"x" * (MOST_WORDS + 1), 0o600)

    async def fails(*_: object, **__: object) -> bytes:
        assert error is not None
        raise error

    if error is not None:
        monkeypatch.setattr(FakeHost, "read", fails)
    scene.happens(lambda: None, lambda: scene.comes_to("n1", State.WENT_BACK, WHY))
    with pytest.raises(UserError, match="exited 3 times"):
        await PHASE.run(scene.context, notes)


async def test_a_worker_that_went_back_is_left_out_once_nothing_is_on_its_way(scene: Scene, notes: Notes) -> None:
    for name in ("n1", "n2", "n3"):
        scene.lacks(name)
    scene.happens(
        lambda: scene.comes_to("n1", State.STAGING),
        lambda: scene.comes_to("n3", State.WENT_BACK, WHY),
        lambda: scene.comes_to("n1", State.PROVING),
        lambda: scene.has("n1"),
    )
    await PHASE.run(scene.context, notes)
    assert notes.notes == ["the kubelet of n1 has its new settings"]
    assert scene.context.absent == {"n3": f"its kubelet does not get its new settings: {WHY}"}


async def test_of_several_a_control_node_is_named_first_and_the_others_are_counted(scene: Scene, notes: Notes) -> None:
    cluster = a_cluster(controls=1, workers=2, extra_args={"kubelet": {"v": "4"}})
    nodes = tuple(replace(n, control_plane=n.name == "n3", initial_member=n.name == "n3") for n in cluster.nodes)
    scene.context.cluster = replace(cluster, nodes=nodes)
    for name in ("n1", "n2", "n3"):
        scene.lacks(name)
    scene.happens(lambda: None, lambda: scene.all(lambda name: scene.comes_to(name, State.REFUSED, WHY)))
    with pytest.raises(UserError, match=r"node n3: .*\(2 more nodes the same\)"):
        await PHASE.run(scene.context, notes)


async def test_a_worker_whose_kubelet_is_refused_is_progress_for_those_that_wait_for_their_turn(
    scene: Scene, notes: Notes
) -> None:
    """Tenants' budgets may have many refused, one after the other, before a control node gets its turn."""
    scene.all(scene.lacks)
    waits, come = kubelets._Waits(scene.context, notes, live_only=False), []
    for name in (None, "n2", "n3"):
        if name is not None:
            scene.comes_to(name, State.REFUSED, WHY)
        found = await waits.look()
        assert found is not None
        come.append(found.come)
    assert len(set(come)) == 3


async def test_a_worker_that_never_comes_to_an_end_does_not_hide_another_ones_failure(
    scene: Scene, notes: Notes
) -> None:
    for name in ("n2", "n3"):
        scene.lacks(name)
    scene.happens(lambda: scene.comes_to("n2", State.STAGING), lambda: scene.comes_to("n3", State.WENT_BACK, WHY))
    await PHASE.run(scene.context, notes)
    assert list(scene.context.absent) == ["n3"]
    assert notes.notes == ["the kubelet of n2 does not get its new settings: its node does not say why"]


# --- who says nothing --------------------------------------------------------------------------------------------


async def test_a_worker_that_says_nothing_is_noted_and_fails_nothing(scene: Scene, notes: Notes) -> None:
    scene.annotated("n2", {})
    await PHASE.run(scene.context, notes)
    assert notes.notes == ["the kubelet of n2 does not get its new settings: its node does not say why"]
    assert TIMEOUT <= asyncio.get_running_loop().time() < TIMEOUT + STILL + 10


async def test_a_worker_that_says_something_else_all_the_time_keeps_nobody_longer(scene: Scene, notes: Notes) -> None:
    scene.lacks("n2")

    def flaps() -> Iterator[Callable[[], object]]:
        while True:
            for state in list(State)[:4]:
                yield lambda state=state: scene.comes_to("n2", state)  # type: ignore[misc]

    scene.kube.later = flaps()
    await PHASE.run(scene.context, notes)
    assert asyncio.get_running_loop().time() < TIMEOUT + STILL + 10
    assert "the kubelet of n2 does not get its new settings" in notes.notes[-1]


async def test_a_control_node_that_says_nothing_fails_it(scene: Scene, notes: Notes) -> None:
    scene.annotated("n1", {})
    scene.annotated("n2", {})
    with pytest.raises(TimedOut, match="2 do not have it yet"):
        await PHASE.run(scene.context, notes)


@pytest.mark.parametrize("moves", [True, False])
async def test_a_step_of_a_control_node_late_in_the_wait_gives_it_more_time(
    scene: Scene, notes: Notes, moves: bool
) -> None:
    scene.lacks("n1")

    async def goes_on() -> None:
        await asyncio.sleep(TIMEOUT - 10)
        if moves:
            scene.comes_to("n1", State.PROVING)
        await asyncio.sleep(STILL - 20)
        scene.has("n1")

    scene.comes_to("n1", State.STAGING)
    agent = asyncio.create_task(goes_on())
    if moves:
        await PHASE.run(scene.context, notes)
    else:
        with pytest.raises(TimedOut):
            await PHASE.run(scene.context, notes)
    await agent


# --- what has failed before --------------------------------------------------------------------------------------


async def test_what_has_failed_before_is_asked_for_once_more_and_the_new_order_is_waited_for(
    scene: Scene, notes: Notes
) -> None:
    scene.comes_to("n1", State.WENT_BACK, WHY)
    scene.comes_to("n2", State.REFUSED, WHY)
    scene.happens(
        *[lambda: None] * 4,
        lambda: scene.comes_to("n2", State.REFUSED, WHY, number=2, reported=1),
        lambda: scene.has("n2"),
        lambda: scene.comes_to("n1", State.WENT_BACK, WHY, number=2, reported=1),
        lambda: scene.comes_to("n1", State.PROVING, number=2),
        lambda: scene.has("n1"),
    )
    await PHASE.run(scene.context, notes)
    [edit] = scene.kube.patched
    asked = edit["spec"]["kubelets"]["asked"]
    assert edit == {"spec": {"kubelets": {"asked": asked}}}
    assert (await scene.plane())["spec"]["kubelets"] == {"follow": True, "asked": asked}
    assert asked.isdigit()
    assert notes.notes == [f"the kubelet of {name} has its new settings" for name in ("n2", "n1")]


@pytest.mark.parametrize("failed_before", [True, False])
async def test_only_what_had_failed_when_the_command_began_is_asked_for_once_more(
    scene: Scene, notes: Notes, *, failed_before: bool
) -> None:
    """Another kubelet may fail while the command waits for the control plane."""
    if failed_before:
        scene.comes_to("n1", State.WENT_BACK, WHY)
    before = await look(scene.context)
    scene.comes_to("n1", State.WENT_BACK, WHY)
    with pytest.raises(UserError, match="exited 3 times"):
        await until_current(scene.context, notes, before=before)
    assert len(scene.kube.patched) == failed_before


async def test_what_fails_a_second_time_ends_it(scene: Scene, notes: Notes) -> None:
    scene.comes_to("n1", State.WENT_BACK, WHY)
    scene.happens(
        *[lambda: None] * 3,
        lambda: scene.comes_to("n1", State.WENT_BACK, WHY, number=2, reported=1),
        lambda: scene.comes_to("n1", State.WENT_BACK, "again", number=2),
    )
    with pytest.raises(UserError, match=r"with its new settings \(again\)"):
        await PHASE.run(scene.context, notes)
    assert len(scene.kube.patched) == 1
    assert asyncio.get_running_loop().time() < TIMEOUT


async def test_where_nobody_tries_it_again_the_failure_of_before_is_what_is_said(scene: Scene, notes: Notes) -> None:
    scene.comes_to("n2", State.WENT_BACK, WHY)
    await PHASE.run(scene.context, notes)
    assert scene.context.absent == {"n2": f"its kubelet does not get its new settings: {WHY}"}
    scene.context.absent.clear()
    scene.comes_to("n1", State.WENT_BACK, WHY)
    with pytest.raises(UserError, match="exited 3 times"):
        await PHASE.run(scene.context, notes)


async def test_a_failure_of_something_else_that_was_wanted_is_not_asked_for_again(scene: Scene, notes: Notes) -> None:
    scene.comes_to("n1", State.WENT_BACK, WHY)
    scene.context.cluster = replace(scene.context.cluster, extra_args={"kubelet": {"v": "5"}})
    scene.happens(lambda: None, lambda: scene.all(scene.has))
    await PHASE.run(scene.context, notes)
    assert scene.kube.patched == []


async def test_after_an_upgrade_by_name_what_the_api_wants_is_waited_for(scene: Scene, notes: Notes) -> None:
    newer = Version(1, 37, 1)
    plane = await scene.plane()
    scene.kube.put({**plane, "spec": {**plane["spec"], "version": str(newer)}, "status": {"version": str(newer)}})
    targets = {name: replace(scene.wanted(name), version=newer) for name in ("n1", "n2", "n3")}

    def follow(name: str) -> None:
        said = Report(version=newer, base=targets[name].base, target=targets[name].digest)
        scene.shows(name, runs=newer, said=said)

    scene.happens(lambda: None, lambda: follow("n2"), lambda: follow("n3"), lambda: follow("n1"))
    await until_current(scene.context, notes, live_only=True)
    assert notes.notes == [f"the kubelet of {name} has Kubernetes {newer}" for name in ("n2", "n3", "n1")]


# --- reports of whoever has a worker -----------------------------------------------------------------------------

ODD: list[Mapping[str, object]] = [
    {},
    {"metadata": None},
    {"metadata": {"annotations": 7, "labels": []}},
    {"status": 7},
    {"status": {"nodeInfo": {"kubeletVersion": {"a": []}}, "conditions": 5}},
    {"status": {"nodeInfo": {"kubeletVersion": "v9999.9.9"}}},
    {"spec": [], "status": None},
]
TEXTS = [
    "",
    "[",
    "7",
    "null",
    "[" * 60_000,
    '{"order": 7}',
    '{"state": "Proving"}',
    '{"base": {}}',
    "\0",
    '{"why": 1e999}',
]
TEXTS += [json.dumps({"order": "0" * 16, "state": "WentBack", "why": "x\nfix: y" * 2000, "number": 10**30})]


@pytest.mark.parametrize("live_only", [False, True])
async def test_whatever_a_worker_writes_nothing_is_raised_and_nothing_of_it_is_about_others(
    scene: Scene, live_only: bool
) -> None:
    scene.lacks("n3")
    for text in TEXTS:
        for key in (reports.ANNOTATION, orders.ANNOTATION):
            scene.annotated("n2", {key: text})
            found = await look(scene.context, live_only=live_only)
            assert found.keys() - {"n2"} == {"n3"}
            assert all(len(one.failed) < 1000 and "\n" not in one.failed for one in found.values())
    for odd in ODD:
        metadata = {**(odd.get("metadata") or {}), "name": "n2"}  # type: ignore[dict-item]
        scene.kube.put({"apiVersion": "v1", "kind": "Node", **odd, "metadata": metadata})
        assert (await look(scene.context, live_only=live_only)).keys() - {"n2"} == {"n3"}
