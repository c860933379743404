from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from autarky.control.drift.decide import applied
from autarky.control.kubelet.manifests.configuration import target_of
from autarky.control.upgrade.decide.templates import with_tag
from autarky.engine.phase import Change, Kept, Warn
from autarky.errors import Conflict, UserError
from autarky.model.cluster import Level, Rollback
from autarky.model.versions import Version
from autarky.phases.objects import ApplyObjects, ApplyParts, describe
from autarky.phases.ownership import FollowControlPlane
from autarky.render.crds import control_plane_crd
from autarky.render.objects import parts
from fakes.clusters import a_cluster
from fakes.kube import FakeKube

PHASE = ApplyObjects()
DAEMON_SETS = ("kube-apiserver", "kube-proxy")


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


@pytest.mark.parametrize(("levels", "hosts_etcd"), [("0-4", True), ("02-4", False)])
async def test_levels_with_the_kubelet_are_followed_and_etcds_arguments_only_where_etcd_is_hosted(
    make_context, notes, kube, levels, hosts_etcd
):
    context = make_context(kube=kube)
    context.cluster = replace(context.cluster, extra_args={"etcd": {"v": "1"}})
    await PHASE.run(context, notes)
    plane = await kube.get("autarky.dev/v1alpha1", "ControlPlane", "cluster")
    plane["spec"] |= {"selfHosted": levels, "componentArguments": {"etcd": {"v": "5"}}}
    await kube.replace(plane)
    await FollowControlPlane().plan(context)
    assert context.cluster.self_hosted_text == levels
    assert context.cluster.extra_args == {"etcd": {"v": "5" if hosts_etcd else "1"}}


@pytest.mark.parametrize("levels", ["0-4", "02-4"])
async def test_levels_with_the_kubelet_go_when_the_file_says_something_new(make_context, notes, kube, levels):
    context = make_context(kube=kube)
    await PHASE.run(context, notes)
    plane = await kube.get("autarky.dev/v1alpha1", "ControlPlane", "cluster")
    plane["spec"]["selfHosted"] = levels
    await kube.replace(plane)
    context.cluster = replace(context.cluster, self_hosted=Level.CONTROLLERS)
    await FollowControlPlane().plan(context)
    assert context.cluster.self_hosted_text == "3-4"


EDGE = {"name": "edge", "nodes": {"matchLabels": {"site": "edge"}}, "atOnce": 1}
CLUSTER = ("autarky.dev/v1alpha1", "ControlPlane", "cluster")


async def spec_edited(kube, **spec) -> None:
    plane = await kube.get(*CLUSTER)
    await kube.replace({**plane, "spec": {**plane["spec"], **spec}})


async def spec_of(kube) -> dict[str, object]:
    return (await kube.get(*CLUSTER))["spec"]


async def test_what_is_asked_of_kubelets_through_the_api_is_followed_so_that_new_nodes_begin_with_it(
    make_context, notes, kube
):
    context = make_context(a_cluster(extra_args={"kubelet": {"v": "2"}}), kube=kube)
    context.cluster = in_file = replace(context.cluster, pools=(EDGE,))
    await PHASE.run(context, notes)
    assert (await spec_of(kube))["pools"] == [EDGE]
    assert (await spec_of(kube))["kubelets"] == {"follow": True}
    edit = {
        "componentArguments": {"kubelet": {"v": "4", "max-pods": "50"}},
        "kubelets": {"follow": False, "asked": "7"},
        "pools": [{**EDGE, "atOnce": 3}],
    }
    await spec_edited(kube, **edit)
    await FollowControlPlane().plan(context)
    assert context.cluster.extra_args == {"kubelet": {"v": "4", "max-pods": "50"}}
    assert target_of(context.inputs(), "base").arguments == {"v": "4", "max-pods": "50"}
    assert (context.cluster.kubelets_follow, context.cluster.pools) == (False, ({**EDGE, "atOnce": 3},))
    assert [field for field, _, _ in await kept(context)] == [
        "spec.componentArguments.kubelet.v",
        "spec.componentArguments.kubelet.max-pods",
        "spec.kubelets.follow",
        "spec.pools",
    ]
    await PHASE.run(context, notes)
    assert {key: (await spec_of(kube))[key] for key in edit} == edit

    context.cluster, context.take_ownership = in_file, True
    await FollowControlPlane().plan(context)
    assert context.cluster == in_file
    await PHASE.run(context, notes)
    assert (await spec_of(kube))["pools"] == [EDGE]
    assert (await spec_of(kube))["kubelets"] == {"follow": True, "asked": "7"}
    assert (await spec_of(kube))["componentArguments"] == {"kubelet": {"v": "2"}}


async def test_arguments_of_kubelets_that_somebody_has_removed_are_not_a_new_nodes_either(make_context, notes, kube):
    context = make_context(a_cluster(extra_args={"kubelet": {"v": "2"}}), kube=kube)
    await PHASE.run(context, notes)
    await spec_edited(kube, componentArguments={})
    await FollowControlPlane().plan(context)
    assert context.cluster.extra_args == {}


async def test_other_pools_in_the_file_win_over_an_edit_and_none_take_it_out(make_context, notes, kube):
    context = make_context(kube=kube)
    context.cluster = in_file = replace(context.cluster, pools=(EDGE,))
    await PHASE.run(context, notes)
    await spec_edited(kube, pools=[{**EDGE, "atOnce": 3}])
    context.cluster = replace(in_file, pools=({**EDGE, "atOnce": 2},))
    await FollowControlPlane().plan(context)
    await PHASE.run(context, notes)
    assert context.cluster.pools == ({**EDGE, "atOnce": 2},)
    assert (await spec_of(kube))["pools"] == [{**EDGE, "atOnce": 2}]

    await spec_edited(kube, pools=[{**EDGE, "atOnce": 3}])
    context.cluster = replace(in_file, pools=())
    await FollowControlPlane().plan(context)
    await PHASE.run(context, notes)
    assert "pools" not in await spec_of(kube)


def test_an_api_server_has_pools_as_one_value_as_the_comparison_has_them():
    """Else a pool that somebody has edited would stay in half when the file no longer has it: applying takes out only
    what nobody else owns."""
    (version,) = control_plane_crd()["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert spec["pools"]["x-kubernetes-list-type"] == "atomic"


async def test_pools_that_no_file_has_had_are_left_alone(make_context, notes, kube):
    context = make_context(kube=kube)
    await PHASE.run(context, notes)
    await spec_edited(kube, pools=[EDGE])
    context.cluster = replace(context.cluster, rollback=Rollback(limit_seconds=120), kubelets_follow=False)
    await FollowControlPlane().plan(context)
    await PHASE.run(context, notes)
    found = await spec_of(kube)
    assert (found["pools"], found["rollback"]) == ([EDGE], {"enabled": True, "limitSeconds": 120})
    assert found["kubelets"] == {"follow": False}


async def test_another_version_in_the_file_is_refused_by_name(make_context, notes, kube):
    context = make_context(kube=kube)
    await PHASE.run(context, notes)
    context.cluster = replace(context.cluster, kubernetes_version=Version(1, 37, 1))
    with pytest.raises(UserError, match=r"the cluster runs Kubernetes .*, and the file says"):
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


async def stepped(kube, version, name="kube-apiserver", *, recorded=True):
    """An upgrade has set that version, and has said so in the record of what was applied."""
    live = await kube.get("apps/v1", "DaemonSet", name, "kube-system")
    template = with_tag(live["spec"]["template"], name, version)
    changed = {**live, "spec": {**live["spec"], "template": template}}
    kube.put(applied.with_record(changed, changed) if recorded else changed)
    return template


@pytest.mark.parametrize("take_ownership", [False, True])
async def test_rule_4_without_a_control_plane_object_no_component_is_taken_to_an_earlier_version(
    make_context, notes, kube, take_ownership
):
    context = make_context(kube=kube)
    await PHASE.run(context, notes)
    template = await stepped(kube, Version(1, 37, 1), recorded=not take_ownership)
    await kube.delete("autarky.dev/v1alpha1", "ControlPlane", "cluster")
    context.take_ownership = take_ownership
    assert await planned(context) == ["apply ControlPlane cluster"]
    [(field, ours, live)] = await kept(context)
    assert field == "spec.template.spec.containers[kube-apiserver].image"
    assert (ours.rpartition(":")[2], live.rpartition(":")[2]) == ("v1.36.4", "v1.37.1")
    await PHASE.run(context, notes)
    live = await kube.get("apps/v1", "DaemonSet", "kube-apiserver", "kube-system")
    assert live["spec"]["template"] == template


async def test_an_image_of_a_later_version_that_somebody_has_set_is_taken_back_with_all_other_edits(
    make_context, notes, kube
):
    context = make_context(kube=kube)
    await PHASE.run(context, notes)
    await stepped(kube, Version(1, 37, 1), recorded=False)
    plane = await kube.get("autarky.dev/v1alpha1", "ControlPlane", "cluster")
    await kube.replace({**plane, "status": {"version": "v1.36.4"}}, subresource="status")
    context.take_ownership = True
    assert len(await planned(context)) == 1
    await PHASE.run(context, notes)
    live = await kube.get("apps/v1", "DaemonSet", "kube-apiserver", "kube-system")
    assert container(live)["image"].endswith(":v1.36.4")


# --- while an upgrade is under way -----------------------------------------------------------------------


async def test_what_an_upgrade_steps_through_is_left_to_it_while_it_is_under_way(make_context, notes, kube):
    """The operator has set the next version, and has said so in the record of what was applied: to an `up` beside it,
    with the file of before, that is a change of its own."""
    context = make_context(kube=kube)
    await PHASE.run(context, notes)
    servers = await kube.get("apps/v1", "DaemonSet", "kube-apiserver", "kube-system")
    assert servers is not None
    stepped = with_tag(servers["spec"]["template"], "kube-apiserver", Version(1, 37, 1))
    changed = {**servers, "spec": {**servers["spec"], "template": stepped}}
    kube.put(applied.with_record(changed, changed))
    plane = await kube.get("autarky.dev/v1alpha1", "ControlPlane", "cluster")
    assert plane is not None
    await kube.patch("autarky.dev/v1alpha1", "ControlPlane", "cluster", {"spec": {"version": "v1.37.1"}})
    for versions in ([], ["v1.37.1"]):
        plane = await kube.get("autarky.dev/v1alpha1", "ControlPlane", "cluster")
        status = {"version": "v1.36.4", "upgrade": {"versions": versions}}
        await kube.replace({**plane, "status": status}, subresource="status")
        assert await planned(context) == []
        [warned] = [one.sentence for one in await PHASE.plan(context) if isinstance(one, Warn)]
        state = "is under way" if versions else "was asked for through the API"
        assert warned.startswith(f"an upgrade to v1.37.1 {state}: kube-apiserver, ")
    kube.applied.clear()
    await PHASE.run(context, notes)
    assert kube.applied == []
    live = await kube.get("apps/v1", "DaemonSet", "kube-apiserver", "kube-system")
    assert live["spec"]["template"] == stepped


class Meanwhile(Watched):
    """Something is done once, right after the API server's workload was looked at `looks` times (from then on), or
    right before it is applied."""

    def __init__(self) -> None:
        super().__init__()
        self.at, self.looks = "", 1
        self.act: Callable[[FakeKube], Awaitable[None]] | None = None

    async def _happen(self, at, obj_name):
        if self.act is None or (self.at, "kube-apiserver") != (at, obj_name):
            return
        self.looks -= 1
        if self.looks <= 0:
            act, self.act = self.act, None
            await act(self)

    async def get(self, api_version, kind, name, namespace=None):
        found = await super().get(api_version, kind, name, namespace)
        if kind == "DaemonSet":
            await self._happen("look", name)
        return found

    async def apply(self, obj, *, manager, dry_run=False):
        if obj["kind"] == "DaemonSet":
            await self._happen("apply", obj["metadata"]["name"])
        return await super().apply(obj, manager=manager, dry_run=dry_run)


async def asks(kube, version="v1.37.1"):
    await kube.patch("autarky.dev/v1alpha1", "ControlPlane", "cluster", {"spec": {"version": version}})


async def notes_it(kube, version="v1.37.1"):
    await asks(kube, version)
    plane = await kube.get("autarky.dev/v1alpha1", "ControlPlane", "cluster")
    status = {"version": "v1.36.4", "upgrade": {"versions": [version]}}
    await kube.replace({**plane, "status": status}, subresource="status")


async def takes_a_step(kube):
    await notes_it(kube)
    await stepped(kube, Version(1, 37, 1))


async def steps_back(kube):
    await notes_it(kube, "v1.35.4")
    await stepped(kube, Version(1, 35, 4))


@pytest.mark.parametrize(
    ("at", "looks", "act", "tag"),
    [
        ("look", 1, asks, "v1.36.4"),
        ("look", 2, asks, "v1.36.4"),
        ("look", 1, notes_it, "v1.36.4"),
        ("look", 2, notes_it, "v1.36.4"),
        ("look", 1, takes_a_step, "v1.37.1"),
        ("look", 2, takes_a_step, "v1.37.1"),
        ("apply", 1, takes_a_step, "v1.37.1"),
        ("look", 2, steps_back, "v1.35.4"),
        ("apply", 1, steps_back, "v1.35.4"),
    ],
)
async def test_an_upgrade_that_begins_between_a_look_and_its_write_is_left_what_it_steps_through(
    make_context, notes, at, looks, act, tag
):
    kube = Meanwhile()
    context = make_context(kube=kube)
    await PHASE.run(context, notes)
    context.cluster = replace(context.cluster, extra_args={"kube-apiserver": {"v": "5"}})
    kube.at, kube.looks, kube.act = at, looks, act
    await PHASE.run(context, notes)
    assert kube.act is None
    live = container(await kube.get("apps/v1", "DaemonSet", "kube-apiserver", "kube-system"))
    assert live["image"].endswith(f":{tag}")
    assert "--v=5" not in live["command"]
    assert "DaemonSet kube-system/kube-apiserver is left to the upgrade that was asked for meanwhile" in notes.notes


async def test_a_status_that_is_written_between_a_look_and_its_write_is_no_reason_to_give_up(make_context, notes):
    async def status(kube):
        live = await kube.get("apps/v1", "DaemonSet", "kube-apiserver", "kube-system")
        await kube.replace({**live, "status": {"numberReady": 1}}, subresource="status")

    kube = Meanwhile()
    context = make_context(kube=kube)
    await PHASE.run(context, notes)
    context.cluster = replace(context.cluster, extra_args={"kube-apiserver": {"v": "5"}})
    kube.at, kube.act = "apply", status
    await PHASE.run(context, notes)
    assert kube.act is None
    live = await kube.get("apps/v1", "DaemonSet", "kube-apiserver", "kube-system")
    assert "--v=5" in container(live)["command"]
    assert context.applied["DaemonSet", "kube-apiserver"] == live["spec"]["template"]
    assert await planned(context) == []


async def test_with_ownership_taken_a_version_that_nobody_has_begun_with_holds_up_nothing(make_context, notes, kube):
    context = make_context(kube=kube)
    await PHASE.run(context, notes)
    await asks(kube)
    await edited(kube, lambda live: container(live)["command"].append("--v=9"), name="kube-proxy")
    context.take_ownership = True
    await PHASE.run(context, notes)
    assert "--v=9" not in container(await kube.get("apps/v1", "DaemonSet", "kube-proxy", "kube-system"))["command"]
    assert await planned(context) == []


@pytest.mark.parametrize("version", [Version(1, 37, 1), Version(1, 35, 4)])
async def test_a_dry_run_shows_what_is_applied_after_an_upgrade_of_our_own_and_no_run_applies_it_before(
    make_context, notes, kube, version
):
    context = make_context(kube=kube)
    await PHASE.run(context, notes)
    before = {name: (await kube.get("apps/v1", "DaemonSet", name, "kube-system"))["spec"] for name in DAEMON_SETS}
    context.upgrade_from = context.cluster.kubernetes_version
    context.cluster = replace(context.cluster, kubernetes_version=version)
    images = {name: f"registry.k8s.io/{name}:{version}" for name in DAEMON_SETS}
    inputs = replace(context.inputs(), images={**context.inputs().images, **images})
    phase = ApplyParts(lambda _: parts(inputs))
    found = [one for one in await phase.plan(context) if not isinstance(one, Kept)]
    assert {f"apply DaemonSet kube-system/{name}" for name in DAEMON_SETS} <= {one.sentence for one in found}
    assert not [one for one in await PHASE.plan(context) if isinstance(one, Warn)]
    part = next(one for one in parts(inputs) if one.name == "kube-apiserver")
    await ApplyParts(lambda _: [part]).run(context, notes)
    assert (await kube.get("apps/v1", "DaemonSet", "kube-apiserver", "kube-system"))["spec"] == before["kube-apiserver"]
