from __future__ import annotations

from dataclasses import replace

import pytest

from autarky.errors import Conflict
from autarky.model.cluster import Level
from autarky.phases.objects import ApplyObjects, describe
from autarky.render.objects import parts
from fakes.clusters import a_cluster
from fakes.kube import FakeKube

PHASE = ApplyObjects()


class Watched(FakeKube):
    """Keeps what is applied, by whom."""

    def __init__(self) -> None:
        super().__init__()
        self.applied: list[tuple[str, str]] = []

    async def apply(self, obj, *, manager, dry_run=False):
        result = await super().apply(obj, manager=manager, dry_run=dry_run)
        self.applied.append((manager, describe(obj)))
        return result


@pytest.fixture
def kube() -> Watched:
    return Watched()


async def planned(context) -> list[str]:
    return [change.sentence for change in await PHASE.plan(context)]


async def test_everything_is_applied_once_in_the_order_of_the_parts_each_by_its_own_manager(make_context, notes, kube):
    context = make_context(kube=kube)
    plan = await planned(context)
    await PHASE.run(context, notes)
    rendered = parts(context.inputs())
    assert plan == [f"apply {describe(obj)}" for part in rendered for obj in part.objects]
    assert list(dict.fromkeys(manager for manager, _ in kube.applied)) == [part.manager for part in rendered]
    assert sorted(kube.applied) == sorted((part.manager, describe(obj)) for part in rendered for obj in part.objects)


async def test_a_second_run_changes_nothing(make_context, notes, kube):
    context = make_context(kube=kube)
    await PHASE.run(context, notes)
    kube.applied.clear()
    assert await planned(context) == []
    await PHASE.run(context, notes)
    assert kube.applied == []


async def test_a_plan_only_looks(make_context, kube):
    await PHASE.plan(make_context(kube=kube))
    assert kube.applied == []


async def test_only_what_has_changed_in_the_file_is_applied(make_context, notes, kube):
    context = make_context(kube=kube)
    await PHASE.run(context, notes)
    context.cluster = replace(context.cluster, extra_args={"kube-scheduler": {"v": "5"}})
    assert await planned(context) == ["apply Deployment kube-system/kube-scheduler", "apply ControlPlane cluster"]
    await PHASE.run(context, notes)
    live = await kube.get("apps/v1", "Deployment", "kube-scheduler", "kube-system")
    assert live is not None
    assert "--v=5" in live["spec"]["template"]["spec"]["containers"][0]["command"]
    assert await planned(context) == []


async def test_an_edit_with_kubectl_stands_until_the_file_says_something_new(make_context, notes, kube):
    context = make_context(kube=kube)
    await PHASE.run(context, notes)
    live = await kube.get("apps/v1", "DaemonSet", "kube-apiserver", "kube-system")
    live["spec"]["template"]["spec"]["containers"][0]["image"] = "edited"
    await kube.replace(live)
    assert await planned(context) == []


async def test_what_was_deleted_is_applied_again(make_context, notes, kube):
    context = make_context(kube=kube)
    await PHASE.run(context, notes)
    await kube.delete("v1", "Service", "kube-dns", "kube-system")
    assert await planned(context) == ["apply Service kube-system/kube-dns"]


async def test_levels_that_are_not_hosted_are_not_applied(make_context, notes, kube):
    await PHASE.run(make_context(a_cluster(Level.ADD_ONS), kube=kube), notes)
    assert await kube.get("apps/v1", "DaemonSet", "kube-apiserver", "kube-system") is None
    assert await kube.get("apps/v1", "DaemonSet", "kube-proxy", "kube-system") is not None


async def test_without_an_api_the_plan_is_to_apply_everything(make_context, kube):
    kube.unhealthy = "connection refused"
    assert await planned(make_context(kube=kube)) == ["apply all objects, once the API answers"]


@pytest.mark.looptime
async def test_an_api_that_goes_away_for_a_moment_is_waited_for(make_context, notes, kube):
    failures = iter(["not yet", "not yet"])
    honest = kube.apply

    async def apply(obj, *, manager, dry_run=False):
        kube.outage = next(failures, None)
        return await honest(obj, manager=manager, dry_run=dry_run)

    kube.apply = apply
    context = make_context(a_cluster(Level.ADD_ONS), kube=kube)
    await PHASE.run(context, notes)
    assert await planned(context) == []


async def test_a_conflict_is_not_waited_out_and_reaches_the_user_as_itself(make_context, notes, kube):
    async def apply(obj, *, manager, dry_run=False):
        raise Conflict("somebody else owns it")

    kube.apply = apply
    with pytest.raises(Conflict, match="somebody else owns it"):
        await PHASE.run(make_context(kube=kube), notes)
