from __future__ import annotations

from dataclasses import replace

import pytest

from autarky.engine.phase import Change, Kept
from autarky.errors import Conflict, UserError
from autarky.model.cluster import Level
from autarky.model.versions import Version
from autarky.phases.objects import ApplyObjects, describe
from autarky.phases.ownership import FollowControlPlane
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
    return [change.sentence for change in await PHASE.plan(context) if isinstance(change, Change)]


async def kept(context) -> list[tuple[str, str, str]]:
    """What is left as others have set it: (field, ours, live)."""
    return [(one.field, one.ours, one.live) for one in await PHASE.plan(context) if isinstance(one, Kept)]


async def edited(kube, change, kind="DaemonSet", name="kube-apiserver"):
    """Somebody's `kubectl edit`: `change` gets the object."""
    live = await kube.get("apps/v1", kind, name, "kube-system")
    change(live)
    return await kube.replace(live)


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
    assert await planned(context) == ["apply ControlPlane cluster", "apply Deployment kube-system/kube-scheduler"]
    await PHASE.run(context, notes)
    live = await kube.get("apps/v1", "Deployment", "kube-scheduler", "kube-system")
    assert live is not None
    assert "--v=5" in live["spec"]["template"]["spec"]["containers"][0]["command"]
    assert await planned(context) == []


def container(obj):
    return obj["spec"]["template"]["spec"]["containers"][0]


async def test_an_edit_with_kubectl_stands_and_is_told(make_context, notes, kube):
    context = make_context(kube=kube)
    await PHASE.run(context, notes)
    ours = container(await kube.get("apps/v1", "DaemonSet", "kube-apiserver", "kube-system"))["image"]
    await edited(kube, lambda live: container(live).update(image="edited"))
    assert await planned(context) == []
    assert await kept(context) == [("spec.template.spec.containers[kube-apiserver].image", ours, "edited")]
    await PHASE.run(context, notes)
    assert container(await kube.get("apps/v1", "DaemonSet", "kube-apiserver", "kube-system"))["image"] == "edited"


async def test_what_the_file_newly_says_is_applied_beside_an_edit_that_stands(make_context, notes, kube):
    context = make_context(kube=kube)
    await PHASE.run(context, notes)
    await edited(kube, lambda live: container(live).update(image="edited"))
    context.cluster = replace(context.cluster, extra_args={"kube-apiserver": {"v": "5"}})
    await PHASE.run(context, notes)
    live = container(await kube.get("apps/v1", "DaemonSet", "kube-apiserver", "kube-system"))
    assert live["image"] == "edited"
    assert "--v=5" in live["command"]
    assert await planned(context) == []


async def test_an_edited_field_goes_when_the_file_says_something_new_about_it(make_context, notes, kube):
    context = make_context(kube=kube)
    await PHASE.run(context, notes)
    await edited(kube, lambda live: container(live)["command"].append("--v=9"))
    context.cluster = replace(context.cluster, extra_args={"kube-apiserver": {"v": "5"}})
    await PHASE.run(context, notes)
    live = container(await kube.get("apps/v1", "DaemonSet", "kube-apiserver", "kube-system"))
    assert [word for word in live["command"] if word.startswith("--v=")] == ["--v=5"]
    assert await kept(context) == []


async def test_ownership_is_taken_back_of_values_and_of_what_was_added(make_context, notes, kube):
    context = make_context(kube=kube)
    await PHASE.run(context, notes)
    before = await kube.get("apps/v1", "DaemonSet", "kube-apiserver", "kube-system")

    def edit(live):
        container(live)["image"] = "edited"
        container(live)["command"].append("--v=9")
        live["spec"]["template"]["spec"]["volumes"].append({"name": "theirs", "emptyDir": {}})

    await edited(kube, edit)
    context.take_ownership = True
    plan = await planned(context)
    assert len(plan) == 3
    assert all(sentence.startswith("take back DaemonSet kube-system/kube-apiserver: ") for sentence in plan)
    await PHASE.run(context, notes)
    after = await kube.get("apps/v1", "DaemonSet", "kube-apiserver", "kube-system")
    assert after["spec"] == before["spec"]
    assert await planned(context) == []


async def test_an_edited_control_plane_is_followed_and_stays_an_edit(make_context, notes, kube):
    context = make_context(kube=kube)
    await PHASE.run(context, notes)
    plane = await kube.get("autarky.dev/v1alpha1", "ControlPlane", "cluster")
    plane["spec"] |= {"selfHosted": "4", "componentArguments": {"kube-scheduler": {"v": "5"}}}
    await kube.replace(plane)
    await FollowControlPlane().plan(context)
    assert context.cluster.self_hosted is Level.ADD_ONS
    assert context.cluster.extra_args == {"kube-scheduler": {"v": "5"}}
    assert ("spec.selfHosted", "2-4", "4") in await kept(context)
    await PHASE.run(context, notes)
    assert (await kube.get("autarky.dev/v1alpha1", "ControlPlane", "cluster"))["spec"]["selfHosted"] == "4"


async def test_the_file_wins_over_an_edited_control_plane_when_it_says_something_new(make_context, notes, kube):
    context = make_context(kube=kube)
    await PHASE.run(context, notes)
    plane = await kube.get("autarky.dev/v1alpha1", "ControlPlane", "cluster")
    plane["spec"]["selfHosted"] = "4"
    await kube.replace(plane)
    context.cluster = replace(context.cluster, self_hosted=Level.CONTROLLERS)
    await FollowControlPlane().plan(context)
    assert context.cluster.self_hosted is Level.CONTROLLERS


async def test_another_version_in_the_file_is_refused_by_name(make_context, notes, kube):
    context = make_context(kube=kube)
    await PHASE.run(context, notes)
    context.cluster = replace(context.cluster, kubernetes_version=Version(1, 37, 1))
    with pytest.raises(UserError, match="upgrades are not built yet"):
        await FollowControlPlane().plan(context)


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


def former_binding(**labels: str) -> dict:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "autarky:node-renewal", "labels": labels},
    }


async def test_the_binding_by_which_removed_nodes_renewed_for_ever_is_deleted_from_a_running_cluster(
    make_context, notes, kube
):
    context = make_context(kube=kube)
    await PHASE.run(context, notes)
    ours = former_binding(**{"app.kubernetes.io/managed-by": "autarky"})
    kube.put(ours)
    former = "delete ClusterRoleBinding autarky:node-renewal, which an earlier release created"
    assert await planned(context) == [former]
    await PHASE.run(context, notes)
    assert await planned(context) == []
    assert await kube.get(ours["apiVersion"], ours["kind"], "autarky:node-renewal") is None


async def test_what_somebody_else_has_under_such_a_name_is_left_alone(make_context, notes, kube):
    context = make_context(kube=kube)
    await PHASE.run(context, notes)
    kube.put(former_binding())
    assert await planned(context) == []
