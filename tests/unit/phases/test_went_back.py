"""`up` does not end well when what it has applied was taken back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from autarky.control.status import decide as plane_status
from autarky.control.status.decide import Rollout
from autarky.errors import TimedOut, UserError
from autarky.model import patience
from autarky.phases import finish
from autarky.phases.context import Context
from autarky.phases.finish import AwaitWorkloads
from autarky.phases.objects import ApplyObjects
from autarky.render.crds import API_VERSION
from fakes.clusters import a_cluster
from fakes.kube import FakeKube

pytestmark = pytest.mark.looptime

API, SYSTEM = "kube-apiserver", "kube-system"
SENTENCE = "pod p on n1 was not healthy within 90 s: exit code 1; applied again within the hour it goes back at once"
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

    async def tells(self, *back: Rollout) -> None:
        """The operator, in its own words."""
        plane = await self.kube.get(API_VERSION, "ControlPlane", "cluster")
        assert plane is not None
        reported = plane_status.status((), (), back, (), (), (), generation=1, before={}, now="2026-11-21T10:00:00Z")
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
    """All that is live then is available: the revision before."""
    await scene.up()
    await scene.exchange(scene.good)
    await scene.tells(Rollout("kube-proxy", "something\nof last week", True), Rollout(API, SENTENCE, True))
    assert [change.sentence for change in await PHASE.plan(scene.context)] == [
        "see why DaemonSet kube-apiserver is not as it was applied"
    ]
    with pytest.raises(UserError) as failed:
        await PHASE.run(scene.context, scene.notes)
    assert f"what was applied to DaemonSet {API} has gone back: {API}: {SENTENCE}" in failed.value.what
    assert "run `autarky up` again" in failed.value.fix


async def test_the_operator_has_a_moment_to_say_that_it_was_taken_back(scene):
    await scene.up()
    await scene.exchange(scene.good)

    async def later() -> None:
        await asyncio.sleep(patience.REPORTED / 2)
        await scene.tell(f"{API}: {SENTENCE}")

    telling = asyncio.create_task(later())
    with pytest.raises(UserError, match="has gone back"):
        await PHASE.run(scene.context, scene.notes)
    await telling


@pytest.mark.parametrize(("message", "status"), [(f"kube-proxy: {SENTENCE}", "True"), (f"{API}: {SENTENCE}", "False")])
async def test_somebodys_edit_meanwhile_is_no_failure_of_up(scene, message, status):
    await scene.up()
    edited = deepcopy((await scene.live())["spec"]["template"])
    edited["spec"]["containers"][0]["command"].append("--v=4")
    await scene.exchange(edited)
    await scene.tell(message, status)
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
    await scene.exchange(scene.good)
    await scene.tell(f"{API}: {SENTENCE}")
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
    await scene.kube.replace({**live, "spec": {**live["spec"], "template": good}})
    await scene.tells(Rollout(name, SENTENCE, True))
    with pytest.raises(UserError) as failed:
        await PHASE.run(scene.context, scene.notes)
    assert f"what was applied to {kind} {name} has gone back: {name}: {SENTENCE}" in failed.value.what
