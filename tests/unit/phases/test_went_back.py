"""`up` does not end well when what it has applied was taken back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any

import pytest

from autarky.control.rollout.decide.failures import Record
from autarky.control.rollout.decide.good_revision import revision_of
from autarky.control.rollout.operator.last_good import LastGood, save
from autarky.control.status import decide as plane_status
from autarky.control.status.decide import Rollout
from autarky.errors import TimedOut, UserError
from autarky.model import patience
from autarky.phases import available, finish
from autarky.phases.available import rendered_workloads
from autarky.phases.context import Context
from autarky.phases.finish import AwaitWorkloads
from autarky.phases.objects import ApplyObjects
from autarky.phases.went_back import JUDGED_EVERY
from autarky.render.crds import API_VERSION
from fakes.clock import LoopClock
from fakes.clusters import a_cluster
from fakes.kube import FakeKube

pytestmark = pytest.mark.looptime

API, SYSTEM = "kube-apiserver", "kube-system"
SENTENCE = "pod p on n1 was not healthy within 90 s: exit code 1"
PHASE = AwaitWorkloads()


class Scene:
    """A cluster that is up, and a file with another argument of the API server."""

    def __init__(self, make_context: Callable[..., Context], notes: Any) -> None:
        self.kube, self.notes = FakeKube(), notes
        self.before = make_context(kube=self.kube)
        cluster = a_cluster(extra_args={API: {"no-such-flag": "true"}})
        self.context = make_context(cluster, kube=self.kube)

    async def up(self) -> None:
        await ApplyObjects().run(self.before, self.notes)
        self.good = (await self.live())["spec"]["template"]
        await ApplyObjects().run(self.context, self.notes)
        assert (await self.live())["spec"]["template"] != self.good

    async def live(self) -> Any:
        return await self.kube.get("apps/v1", "DaemonSet", API, SYSTEM)

    async def exchange(self, template: Any) -> None:
        live = await self.live()
        await self.kube.replace({**live, "spec": {**live["spec"], "template": template}})

    async def keeps(self, template: Any, component: str = API) -> None:
        """The operator has found it healthy."""
        await save(self.kube, component, LastGood(Record(revision_of(template)), template))

    async def takes_back(self, kind: str = "DaemonSet", name: str = API, good: Any = None) -> None:
        """What the operator does, before it says so: it notes why, and exchanges the template."""
        live = await self.kube.get("apps/v1", kind, name, SYSTEM)
        assert live is not None
        template = self.good if good is None else good
        record = Record(revision_of(template)).with_failure(
            revision_of(live["spec"]["template"]), SENTENCE, by_skew=False
        )
        await save(self.kube, name, LastGood(record, template))
        await self.kube.replace({**live, "spec": {**live["spec"], "template": template}})

    async def tells(self, *back: Rollout, trial: tuple[str, ...] = ()) -> None:
        """The operator, in its own words."""
        plane = await self.kube.get(API_VERSION, "ControlPlane", "cluster")
        assert plane is not None
        reported = plane_status.status((), (), back, trial, (), (), generation=1, before={}, now="2026-11-21T10:00:00Z")
        await self.kube.replace({**plane, "status": reported}, subresource="status")

    async def tell(self, message: str, status: str = "True") -> None:
        plane = await self.kube.get(API_VERSION, "ControlPlane", "cluster")
        assert plane is not None
        condition = {"type": "RolledBack", "status": status, "message": message}
        await self.kube.replace({**plane, "status": {"conditions": [condition]}}, subresource="status")


@pytest.fixture
def scene(make_context, notes, monkeypatch) -> Scene:
    async def all_is_available(_context: Context) -> None:
        return None

    monkeypatch.setattr(finish, "unavailable", all_is_available)
    return Scene(make_context, notes)


async def test_what_is_there_as_it_was_applied_is_all_that_is_waited_for(scene):
    await scene.up()
    assert await PHASE.plan(scene.context) == []
    await PHASE.run(scene.context, scene.notes)


async def test_up_fails_with_the_operators_sentence_when_what_it_applied_has_gone_back(scene):
    """All that is live then is available: the revision before. The operator need not have come to say so."""
    await scene.up()
    await scene.takes_back()
    assert [change.sentence for change in await PHASE.plan(scene.context)] == [
        "see why DaemonSet kube-apiserver is not as it was applied"
    ]
    with pytest.raises(UserError) as failed:
        await PHASE.run(scene.context, scene.notes)
    assert f"what was applied to DaemonSet {API} has gone back: {API}: {SENTENCE}" in failed.value.what
    assert "annotate ds/kube-apiserver autarky.dev/try-again" in failed.value.what, "and how it is tried again"
    assert "run `autarky up` again" in failed.value.fix


@pytest.mark.parametrize(("message", "status"), [(f"kube-proxy: {SENTENCE}", "True"), (f"{API}: {SENTENCE}", "True")])
async def test_somebodys_edit_meanwhile_is_no_failure_of_up(scene, message, status):
    """Whatever went back before it."""
    await scene.up()
    await scene.keeps(scene.good)
    edited = deepcopy((await scene.live())["spec"]["template"])
    edited["spec"]["containers"][0]["command"].append("--v=4")
    await scene.exchange(edited)
    await scene.tell(message, status)
    await PHASE.run(scene.context, scene.notes)


async def test_nor_is_one_after_which_it_stays_though_the_same_went_back_at_an_earlier_up(scene):
    await scene.up()
    applied = revision_of((await scene.live())["spec"]["template"])
    record = Record(revision_of(scene.good)).with_failure(applied, SENTENCE, by_skew=False)
    await save(scene.kube, API, LastGood(record, scene.good))
    edited = deepcopy((await scene.live())["spec"]["template"])
    edited["spec"]["containers"][0]["command"].append("--v=4")
    await scene.exchange(edited)
    await PHASE.run(scene.context, scene.notes)


async def test_an_edit_that_the_operator_has_found_good_meanwhile_has_not_gone_back(scene):
    await scene.up()
    edited = deepcopy((await scene.live())["spec"]["template"])
    edited["spec"]["containers"][0]["command"].append("--v=4")
    await scene.exchange(edited)
    await scene.keeps(edited)
    await PHASE.run(scene.context, scene.notes)


async def test_what_went_back_before_this_up_is_not_its_failure(scene):
    """It has applied nothing of it: `kubectl edit` may have."""
    await scene.up()
    await scene.exchange(scene.good)
    await scene.tell(f"{API}: {SENTENCE}")
    scene.context.applied.clear()
    await ApplyObjects().run(scene.context, scene.notes)
    await PHASE.run(scene.context, scene.notes)


async def test_what_an_operator_gave_by_the_control_plane_before_up_came_to_it_counts_as_applied(scene):
    await scene.up()
    scene.context.applied.clear()
    await ApplyObjects().run(scene.context, scene.notes)
    await scene.takes_back()
    with pytest.raises(UserError, match="has gone back"):
        await PHASE.run(scene.context, scene.notes)


async def test_a_workload_that_a_change_of_levels_takes_away_has_not_gone_back(scene):
    await scene.up()
    await scene.kube.delete("apps/v1", "DaemonSet", API, SYSTEM)
    await PHASE.run(scene.context, scene.notes)


async def test_what_is_missing_is_waited_for_as_before(scene, monkeypatch):
    async def nothing_is(_context: Context) -> str:
        return "node n1 is not Ready"

    monkeypatch.setattr(finish, "unavailable", nothing_is)
    await scene.up()
    with pytest.raises(TimedOut, match="node n1 is not Ready"):
        await PHASE.run(scene.context, scene.notes)


@pytest.mark.parametrize(("kind", "name"), [("Deployment", "coredns"), ("DaemonSet", "kube-flannel")])
async def test_an_add_on_that_has_gone_back_fails_up_as_well(scene, kind, name):
    await scene.up()
    live = await scene.kube.get("apps/v1", kind, name, SYSTEM)
    good = deepcopy(live["spec"]["template"])
    good["spec"]["containers"][0]["image"] = "registry.example/former:v1"
    await scene.takes_back(kind, name, good)
    with pytest.raises(UserError) as failed:
        await PHASE.run(scene.context, scene.notes)
    assert f"what was applied to {kind} {name} has gone back: {name}: {SENTENCE}" in failed.value.what


# --- what is on trial -----------------------------------------------------------------------------------------------

now = LoopClock().monotonic


async def on_trial(scene: Scene) -> None:
    """What `up` has applied is available, and judged."""
    await scene.up()
    await scene.keeps(scene.good)
    await scene.tells(trial=(API,))


@asynccontextmanager
async def after(seconds: float, happens: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    async def later() -> None:
        await asyncio.sleep(seconds)
        await happens()

    coming = asyncio.create_task(later())
    yield
    await coming


async def changes(context: Context) -> list[str]:
    return [change.sentence for change in await PHASE.plan(context)]


async def test_up_ends_when_the_operator_has_judged_what_it_applied(scene):
    await on_trial(scene)
    assert await changes(scene.context) == ["wait until DaemonSet kube-apiserver is judged"]

    async def healthy() -> None:
        await scene.keeps((await scene.live())["spec"]["template"])
        await scene.tells()

    async with after(100, healthy):
        await PHASE.run(scene.context, scene.notes)
        assert 100 <= now() <= 100 + JUDGED_EVERY
    assert await changes(scene.context) == []
    assert scene.notes.notes == []


async def goes_back(scene: Scene) -> None:
    await scene.takes_back()


async def test_what_goes_back_long_after_all_was_available_fails_up(scene):
    await on_trial(scene)
    async with after(100, lambda: goes_back(scene)):
        with pytest.raises(UserError, match=f"what was applied to DaemonSet {API} has gone back"):
            await PHASE.run(scene.context, scene.notes)
        assert now() >= 100


async def test_so_it_does_where_the_up_that_applied_it_was_interrupted(scene):
    await on_trial(scene)
    scene.context.applied.clear()
    assert await changes(scene.context) == ["wait until DaemonSet kube-apiserver is judged"]
    async with after(100, lambda: goes_back(scene)):
        with pytest.raises(UserError, match="has gone back"):
            await PHASE.run(scene.context, scene.notes)


@pytest.mark.parametrize("why", ["there is no last good revision", "it is that", "rollbacks are switched off"])
async def test_a_verdict_by_which_nothing_could_go_back_is_not_waited_for(scene, why):
    """So a first `up` takes no longer."""
    await scene.up()
    if why == "it is that":
        await scene.keeps((await scene.live())["spec"]["template"])
    await scene.tells(trial=(API, "coredns"))
    if why == "rollbacks are switched off":
        await scene.keeps(scene.good)
        plane = await scene.kube.get(API_VERSION, "ControlPlane", "cluster")
        await scene.kube.replace({**plane, "spec": {**plane["spec"], "rollback": {"enabled": False}}})
    assert await changes(scene.context) == []
    await PHASE.run(scene.context, scene.notes)
    assert now() == pytest.approx(0, abs=0.1)
    assert scene.notes.notes == []


async def test_what_is_healthy_and_cannot_be_kept_has_been_judged(scene):
    await scene.up()
    await scene.keeps(scene.good)
    await scene.tells(Rollout(API, "healthy, but it cannot be kept as the last good revision", False))
    assert await changes(scene.context) == []
    await PHASE.run(scene.context, scene.notes)
    assert patience.REPORTED <= now() <= patience.REPORTED + JUDGED_EVERY


async def test_what_the_operator_said_before_the_change_does_not_count(scene):
    await scene.up()
    await scene.keeps(scene.good)
    await scene.tells()
    async with (
        after(patience.REPORTED / 2, lambda: scene.tells(trial=(API,))),
        after(patience.REPORTED * 3, lambda: goes_back(scene)),
    ):
        with pytest.raises(UserError, match="has gone back"):
            await PHASE.run(scene.context, scene.notes)


async def test_an_operator_that_does_not_judge_fails_no_up_that_went_well(scene):
    await on_trial(scene)
    await PHASE.run(scene.context, scene.notes)
    assert now() == pytest.approx(patience.VERDICT, abs=1)
    [note] = scene.notes.notes
    assert note.startswith("DaemonSet kube-apiserver: not judged within 300 s, and may still go back")
    assert "RolloutsSettled" in note


async def test_an_api_that_is_gone_is_no_good_end(scene):
    await on_trial(scene)

    async def gone() -> None:
        scene.kube.set_outage("connection refused")
        scene.kube.unhealthy = "connection refused"

    async with after(10, gone):
        with pytest.raises(TimedOut, match="connection refused"):
            await PHASE.run(scene.context, scene.notes)


@pytest.mark.parametrize("when", ["before", "meanwhile"])
async def test_an_edit_that_is_on_trial_is_not_waited_for(scene, when):
    """It is whoever made it who has to look."""
    await on_trial(scene)
    edited = deepcopy((await scene.live())["spec"]["template"])
    edited["spec"]["containers"][0]["command"].append("--v=4")
    if when == "before":
        await scene.exchange(edited)
        scene.context.applied.clear()
        assert await changes(scene.context) == []
        await PHASE.run(scene.context, scene.notes)
        return
    async with after(20, lambda: scene.exchange(edited)):
        await PHASE.run(scene.context, scene.notes)
    assert 20 <= now() <= 20 + 2 * JUDGED_EVERY


async def test_pods_that_fail_while_a_node_is_off_fail_up_though_as_many_as_there_are_nodes_are_available(
    make_context, notes, monkeypatch
):
    """Any pod that is lacking may be that node's."""
    kube, cluster = FakeKube(), a_cluster(workers=1)
    context = make_context(cluster, kube=kube)
    await ApplyObjects().run(context, notes)
    context.absent = {"n2": "it does not answer"}
    kube.put(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n1"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }
    )
    dns = await one_of_two_new_ones_fails(kube)
    monkeypatch.setattr(
        available,
        "rendered_workloads",
        lambda context: [one for one in rendered_workloads(context) if one["metadata"]["name"] == "coredns"],
    )
    assert await available.unavailable(context) is None
    good = deepcopy(dns["spec"]["template"])
    good["spec"]["containers"][0]["image"] = "registry.example/coredns:former"
    await save(kube, "coredns", LastGood(Record(revision_of(good)), good))
    scene = Scene(make_context, notes)
    scene.kube = kube
    await scene.tells(trial=("coredns",))

    async def back() -> None:
        await scene.takes_back("Deployment", "coredns", good)

    async with after(90, back):
        with pytest.raises(UserError, match="what was applied to Deployment coredns has gone back"):
            await PHASE.run(context, notes)


async def one_of_two_new_ones_fails(kube: FakeKube) -> Any:
    """And the former one stays."""
    live = await kube.get("apps/v1", "Deployment", "coredns", SYSTEM)
    assert live is not None
    meta, replicas = live["metadata"], {"replicas": 3, "updatedReplicas": 2, "readyReplicas": 2}
    status = {"observedGeneration": meta["generation"], **replicas, "availableReplicas": 2}
    for number in (1, 2):
        of_set = {
            "name": f"coredns-{number}",
            "namespace": SYSTEM,
            "labels": live["spec"]["selector"]["matchLabels"],
            "ownerReferences": [{"uid": meta["uid"]}],
            "annotations": {"deployment.kubernetes.io/revision": str(number)},
        }
        one = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": of_set}
        kube.put({**one, "status": {"availableReplicas": 1}})
    return kube.put({**live, "spec": {**live["spec"], "replicas": 2}, "status": status})
