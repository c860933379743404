"""The user's own add-ons and the inventory: applied in order, kept where others edited, deleted once not wanted."""

from __future__ import annotations

import asyncio
import json
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from autarky.control.addons.on_workers import HASH
from autarky.control.drift.decide import applied
from autarky.control.inventory import manifests
from autarky.control.inventory.decide.entries import Entry
from autarky.control.inventory.decide.pruning import Seen
from autarky.control.rollout.decide.failures import Record as Revisions
from autarky.control.rollout.manifests import secret_name
from autarky.control.rollout.operator import last_good
from autarky.control.rollout.operator.last_good import LastGood
from autarky.engine.phase import Change, Kept, Warn
from autarky.errors import ApiError, Problems, TimedOut, UserError
from autarky.model import patience
from autarky.model.own_add_ons import OwnAddOns, OwnObject
from autarky.phases.inventory import PruneObjects, RecordApplied, _look, _Users
from autarky.phases.objects import ApplyObjects
from autarky.phases.own_add_ons import ApplyAddOns, refuse_ours
from autarky.render.values import CONTROL_PLANE_ACTIVE, RENDERED_HASH, SYSTEM, immutable_config_map
from fakes.kube import FakeKube

pytestmark = pytest.mark.looptime

Object = dict[str, Any]


class Cluster(FakeKube):
    """Namespaces are there at once, and Deployments available; keeps the order of what is applied."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[str] = []
        self.unavailable: set[str] = set()
        self.refused: dict[str, int] = {}

    async def apply(self, obj, *, manager, dry_run=False):
        name = obj["metadata"]["name"]
        if name in self.refused:
            raise ApiError(self.refused[name], "Invalid", "it is immutable")
        result = await super().apply(obj, manager=manager, dry_run=dry_run)
        if not dry_run and manager == "autarky-add-ons":
            self.order.append(name)
            if obj["kind"] == "Deployment" and name not in self.unavailable:
                self.available(result)
        return result

    def available(self, live: Object) -> None:
        counts = dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas"), live["spec"].get("replicas", 1))
        self.put({**live, "status": {"observedGeneration": live["metadata"]["generation"], **counts}})


@pytest.fixture
def kube() -> Cluster:
    return Cluster()


def config(name: str, **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data}


def deployment(name: str, replicas: int = 1, **spec: Any) -> Object:
    template = {"metadata": {"labels": {"a": name}}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"a": name}}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def own(*objects: Object, **files: list[Object]) -> OwnAddOns:
    content = {"a.yaml": list(objects)} | {f"{name}.yaml": listed for name, listed in files.items()}
    found = [OwnObject(file, f"{file} (document 1)", obj) for file, listed in content.items() for obj in listed]
    return OwnAddOns("/d/addons", given=True, objects=tuple(found))


async def up(context, notes) -> None:
    """The phases that are about it, as the runner runs them."""
    for phase in (RecordApplied(), ApplyAddOns(), PruneObjects()):
        if any(isinstance(found, Change) for found in await phase.plan(context)):
            await phase.run(context, notes)


async def plans(context) -> list[Any]:
    return [found for phase in (RecordApplied(), ApplyAddOns(), PruneObjects()) for found in await phase.plan(context)]


async def noted(kube, part="add-ons") -> list[str]:
    live = await kube.get("v1", "ConfigMap", manifests.NAME, SYSTEM)
    return [entry.name for entry in manifests.entries_in(live) or [] if entry.part == part]


async def names(kube, kind="ConfigMap", api_version="v1") -> list[str]:
    found = [obj["metadata"]["name"] for obj in await kube.list(api_version, kind, namespace="default")]
    return [name for name in found if name != "kube-root-ca.crt"]


async def test_files_are_applied_in_their_order_and_a_second_run_changes_nothing(make_context, notes, kube) -> None:
    context = make_context(kube=kube)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "demo"}}
    context.own_add_ons = own(config("x"), namespace, b=[deployment("y")], c=[config("z")])
    await up(context, notes)
    assert kube.order == ["demo", "x", "y", "z"]
    assert await noted(kube) == ["x", "demo", "y", "z"]
    assert await plans(context) == []


async def test_the_next_file_waits_for_the_health_of_the_one_before(make_context, notes, kube) -> None:
    context = make_context(kube=kube)
    kube.unavailable = {"y"}
    context.own_add_ons = own(deployment("y"), b=[config("z")])
    with pytest.raises(TimedOut, match="Deployment default/y"):
        await up(context, notes)
    assert kube.order == ["y"]
    waits = [found.sentence for found in await ApplyAddOns().plan(context) if isinstance(found, Change)]
    assert waits[0].startswith("wait: Deployment default/y its last change was not observed")
    kube.available(await kube.get("apps/v1", "Deployment", "y", "default"))
    await up(context, notes)
    assert kube.order == ["y", "z"]


async def test_an_object_without_a_namespace_is_in_default_where_its_kind_has_namespaces(
    make_context, notes, kube
) -> None:
    context = make_context(kube=kube)
    bare = config("x")
    del bare["metadata"]["namespace"]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": []}
    context.own_add_ons = own(bare, {**role, "metadata": {"name": "r", "namespace": "default"}})
    await up(context, notes)
    assert await kube.get("v1", "ConfigMap", "x", "default")
    assert await kube.get(role["apiVersion"], "ClusterRole", "r")
    assert await plans(context) == []


async def test_an_edit_stands_beside_a_change_of_the_file_and_can_be_taken_back(make_context, notes, kube) -> None:
    context = make_context(kube=kube)
    context.own_add_ons = own(config("x", a="1", b="1"))
    await up(context, notes)
    await kube.patch("v1", "ConfigMap", "x", {"data": {"a": "theirs", "more": "2"}}, namespace="default")
    [found] = await plans(context)
    assert isinstance(found, Kept)
    assert (found.field, found.ours, found.live) == ("data.a", "1", "theirs")
    context.own_add_ons = own(config("x", a="1", b="2"))
    await up(context, notes)
    live = await kube.get("v1", "ConfigMap", "x", "default")
    assert live["data"] == {"a": "theirs", "b": "2", "more": "2"}
    context.take_ownership = True
    assert any("take back ConfigMap default/x: data.a" in getattr(one, "sentence", "") for one in await plans(context))
    await up(context, notes)
    live = await kube.get("v1", "ConfigMap", "x", "default")
    assert live["data"] == {"a": "1", "b": "2", "more": "2"}


async def test_an_edit_of_a_secret_is_said_without_its_values(make_context, notes, kube) -> None:
    context = make_context(kube=kube)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}
    context.own_add_ons = own({**secret, "stringData": {"a": "b"}})
    await up(context, notes)
    live = await kube.get("v1", "Secret", "s", "default")
    assert "autarky.dev/applied" not in live["metadata"]["annotations"]
    assert await plans(context) == []
    await kube.patch("v1", "Secret", "s", {"data": {"a": "Yw=="}}, namespace="default")
    [found] = await plans(context)
    assert (found.field, found.ours, found.live) == ("data.a", "(not shown)", "(not shown)")


async def test_a_removed_document_is_deleted_and_what_others_have_edited_is_not(make_context, notes, kube) -> None:
    context = make_context(kube=kube)
    context.own_add_ons = own(config("x"), config("y", a="1"), b=[config("z")])
    await up(context, notes)
    await kube.patch("v1", "ConfigMap", "y", {"data": {"a": "theirs"}}, namespace="default")
    context.own_add_ons = own(b=[config("z")])
    said = await plans(context)
    assert [type(one) for one in said] == [Warn, Change]
    assert said[1].sentence == "delete ConfigMap default/x, which is no longer wanted"
    await up(context, notes)
    assert await names(kube) == ["y", "z"]
    assert await noted(kube) == ["y", "z"]
    [warning] = await plans(context)
    assert "data.a was edited" in warning.sentence


async def test_no_directory_and_no_file_delete_nothing_and_a_comment_says_that_nothing_is_wanted(
    make_context, notes, kube
) -> None:
    context = make_context(kube=kube)
    context.own_add_ons = own(config("x"))
    await up(context, notes)
    for said in (None, OwnAddOns("/d/addons", given=False)):
        context.own_add_ons = said
        assert not [one for one in await plans(context) if isinstance(one, Change)]
        await up(context, notes)
        assert await names(kube) == ["x"]
        assert await noted(kube) == ["x"]
    [warning] = await plans(context)
    assert "has no add-ons, and 1 objects of earlier ones" in warning.sentence
    context.own_add_ons = own()
    await up(context, notes)
    assert await names(kube) == []


async def test_a_configuration_and_its_workload_go_together(make_context, notes, kube) -> None:
    context = make_context(kube=kube)
    uses: Any = {"volumes": [{"name": "v", "configMap": {"name": "x"}}]}
    context.own_add_ons = own(config("x"), deployment("y", **uses))
    await up(context, notes)
    context.own_add_ons = own()
    sentences = [one.sentence for one in await plans(context)]
    assert sentences == [
        "delete Deployment default/y, which is no longer wanted",
        "delete ConfigMap default/x, once Deployment default/y no longer uses it",
    ]
    await up(context, notes)
    assert await names(kube) == await names(kube, "Deployment", "apps/v1") == []


async def test_an_object_that_is_still_used_stays_and_is_deleted_later(make_context, notes, kube) -> None:
    context = make_context(kube=kube)
    context.own_add_ons = own(config("x"))
    await up(context, notes)
    uses = deployment("theirs", volumes=[{"name": "v", "configMap": {"name": "x"}}])
    kube.put(uses)
    context.own_add_ons = own()
    [warning] = await plans(context)
    assert "stays while Deployment default/theirs uses it" in warning.sentence
    await up(context, notes)
    assert await names(kube) == ["x"]
    await kube.delete("apps/v1", "Deployment", "theirs", "default")
    await up(context, notes)
    assert await names(kube) == []


async def test_what_the_api_refuses_is_said_with_its_document(make_context, notes, kube) -> None:
    context = make_context(kube=kube)
    context.own_add_ons = own(config("x"))
    kube.refused = {"x": 422}
    with pytest.raises(UserError, match=r"a\.yaml \(document 1\): the API refuses ConfigMap default/x"):
        await ApplyAddOns().run(context, notes)


def test_what_is_ours_is_refused_all_at_once(make_context) -> None:
    context = make_context()
    system = {"namespace": SYSTEM}
    context.own_add_ons = own(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "coredns", **system}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "autarky-applied", **system}},
        config("x"),
    )
    with pytest.raises(Problems) as caught:
        refuse_ours(context)
    assert len(caught.value.problems) == 2


# --- ours ----------------------------------------------------------------------------------------------


async def test_what_was_and_will_be_applied_is_noted_before(make_context, notes, kube) -> None:
    context = make_context(kube=kube)
    await RecordApplied().run(context, notes)
    assert "coredns" in await noted(kube, "coredns")
    assert await RecordApplied().plan(context) == []
    former = Entry("flannel", "v1", "ConfigMap", SYSTEM, "former")
    live = await kube.get("v1", "ConfigMap", manifests.NAME, SYSTEM)
    kube.put({**live, **manifests.config_map([former, *(manifests.entries_in(live) or [])])})
    await RecordApplied().run(context, notes)
    assert "former" in await noted(kube, "flannel")


async def test_what_a_release_renders_no_more_is_deleted_if_it_is_ours(make_context, notes, kube) -> None:
    context = make_context(kube=kube)
    await RecordApplied().run(context, notes)
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    ours = {"name": "autarky:former", "labels": {"app.kubernetes.io/managed-by": "autarky"}}
    kube.put({**role, "metadata": ours})
    kube.put({**role, "metadata": {"name": "autarky:theirs"}})
    live = await kube.get("v1", "ConfigMap", manifests.NAME, SYSTEM)
    more = [Entry("flannel", role["apiVersion"], "ClusterRole", "", f"autarky:{name}") for name in ("former", "theirs")]
    kube.put({**live, **manifests.config_map([*(manifests.entries_in(live) or []), *more])})
    said = await PruneObjects().plan(context)
    assert sorted(type(one).__name__ for one in said) == ["Change", "Warn"]
    await PruneObjects().run(context, notes)
    assert await kube.get(role["apiVersion"], "ClusterRole", "autarky:former") is None
    assert await kube.get(role["apiVersion"], "ClusterRole", "autarky:theirs")
    assert await PruneObjects().plan(context) == []


async def test_an_inventory_that_cannot_be_read_deletes_nothing(make_context, notes, kube) -> None:
    context = make_context(kube=kube)
    context.own_add_ons = own(config("x"))
    await up(context, notes)
    await kube.patch("v1", "ConfigMap", manifests.NAME, {"data": {manifests.KEY: "{"}}, namespace=SYSTEM)
    context.own_add_ons = own()
    assert any("cannot be read" in one.sentence for one in await plans(context))
    await up(context, notes)
    assert await names(kube) == ["x"]


async def test_the_former_configuration_of_coredns_goes_once_nothing_uses_it(make_context, notes, kube) -> None:
    context = make_context(kube=kube)
    await ApplyObjects().run(context, notes)
    former = kube.put(immutable_config_map("coredns", {"Corefile": "former"}))
    name = former["metadata"]["name"]
    live = await kube.get("apps/v1", "Deployment", "coredns", SYSTEM)
    now = live["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"]
    assert now == "coredns"
    live["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"] = name
    await kube.replace(live)
    [_, warning] = [*await RecordApplied().plan(context), *await PruneObjects().plan(context)]
    assert f"{name} is no longer wanted, and stays while Deployment kube-system/coredns uses it" in warning.sentence
    context.take_ownership = True
    await RecordApplied().run(context, notes)
    [change] = [one for one in await PruneObjects().plan(context) if "coredns-" in one.sentence]
    assert change.sentence.endswith("once Deployment kube-system/coredns no longer uses it")
    await ApplyObjects().run(context, notes)
    await PruneObjects().run(context, notes)
    assert await kube.get("v1", "ConfigMap", name, SYSTEM) is None
    assert await kube.get("v1", "ConfigMap", "coredns", SYSTEM)


async def test_a_configuration_that_an_earlier_release_has_left_beside_an_inventory_goes_as_well(
    make_context, notes, kube
) -> None:
    """It kept none: it was here again after a later one, which comes back now."""
    context = make_context(kube=kube)
    await RecordApplied().run(context, notes)
    await ApplyObjects().run(context, notes)
    await PruneObjects().run(context, notes)
    name = kube.put(immutable_config_map("coredns", {"Corefile": "former"}))["metadata"]["name"]
    assert [one.sentence for one in await RecordApplied().plan(context)] == []
    assert [one for one in await PruneObjects().plan(context) if name in one.sentence]
    await PruneObjects().run(context, notes)
    assert await kube.get("v1", "ConfigMap", name, SYSTEM) is None
    assert await plans(context) == []


@pytest.mark.parametrize("edited", [True, False])
async def test_a_corefile_that_was_mounted_instead_of_the_one_of_a_former_release_stands(
    make_context, notes, kube, edited: bool
) -> None:
    """The former release named it by its content, which nobody can edit."""
    context = make_context(kube=kube)
    await ApplyObjects().run(context, notes)
    former = kube.put(immutable_config_map("coredns", {"Corefile": "former"}))["metadata"]["name"]
    live = await kube.get("apps/v1", "Deployment", "coredns", SYSTEM)
    record = deepcopy(live)
    record["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"] = former
    mounted = "my-corefile" if edited else former
    live["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"] = mounted
    await kube.replace(applied.with_record(live, record))
    kept = [one.live for one in await ApplyObjects().plan(context) if isinstance(one, Kept)]
    await ApplyObjects().run(context, notes)
    live = await kube.get("apps/v1", "Deployment", "coredns", SYSTEM)
    now = live["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"]
    assert now == ("my-corefile" if edited else "coredns")
    assert ("my-corefile" in str(kept)) is edited, kept


async def test_what_the_last_good_revision_of_an_add_on_uses_is_not_deleted_while_another_is_on_trial(
    make_context, notes, kube
) -> None:
    context = make_context(kube=kube)
    await ApplyObjects().run(context, notes)
    former = kube.put(immutable_config_map("coredns", {"Corefile": "former"}))
    name = former["metadata"]["name"]
    live = await kube.get("apps/v1", "Deployment", "coredns", SYSTEM)
    good = deepcopy(live["spec"]["template"])
    good["spec"]["volumes"][0]["configMap"]["name"] = name
    await last_good.save(kube, "coredns", LastGood(Revisions("good"), good))
    await RecordApplied().run(context, notes)
    [change] = [one for one in await PruneObjects().plan(context) if "coredns-" in one.sentence]
    assert change.sentence.endswith("once the last good revision of Deployment kube-system/coredns no longer uses it")
    await PruneObjects().run(context, notes)
    assert await kube.get("v1", "ConfigMap", name, SYSTEM), "it stays until the next run"
    assert name in await noted(kube, "coredns")
    await last_good.save(kube, "coredns", LastGood(Revisions("better"), live["spec"]["template"]))
    await PruneObjects().run(context, notes)
    assert await kube.get("v1", "ConfigMap", name, SYSTEM) is None


async def test_what_is_kept_of_an_add_on_that_is_not_ours_holds_nothing(make_context, notes, kube) -> None:
    """Nor what others have written under that name."""
    context = make_context(kube=kube)
    await ApplyObjects().run(context, notes)
    former = kube.put(immutable_config_map("kube-flannel", {"net-conf.json": "former"}))
    name = former["metadata"]["name"]
    live = await kube.get("apps/v1", "DaemonSet", "kube-flannel", SYSTEM)
    good = deepcopy(live["spec"]["template"])
    good["spec"]["volumes"][0]["configMap"]["name"] = name
    await last_good.save(kube, "kube-flannel", LastGood(Revisions("good"), good))
    entry = Entry("flannel", "v1", "ConfigMap", SYSTEM, name)
    assert (await _used(context, entry)).pods
    secret = await kube.get("v1", "Secret", secret_name("kube-flannel"), SYSTEM)
    for theirs in ({**secret, "type": "Opaque"}, {**secret, "data": {"template.json": "bm90IGpzb24="}}):
        kube.put(theirs)
        assert not (await _used(context, entry)).pods
    kube.put(secret)
    kube.put({**live, "metadata": {**live["metadata"], "labels": {}}})
    assert not (await _used(context, entry)).pods


async def _used(context, entry: Entry) -> Seen:
    found = await _look(context, entry, await _Users.of(context, [entry]))
    assert found is not None
    return found


async def test_an_edited_corefile_stands_and_is_reported(make_context, notes, kube) -> None:
    context = make_context(kube=kube)
    await ApplyObjects().run(context, notes)
    await kube.patch("v1", "ConfigMap", "coredns", {"data": {"Corefile": "edited"}}, namespace=SYSTEM)
    [found] = [one for one in await ApplyObjects().plan(context) if not isinstance(one, Warn)]
    assert isinstance(found, Kept)
    assert (found.subject, found.field, found.live) == ("ConfigMap kube-system/coredns", "data.Corefile", "edited")
    context.cluster = replace(context.cluster, network=replace(context.cluster.network, dns_domain="other.local"))
    await ApplyObjects().run(context, notes)
    assert await corefile(kube) == "edited"
    context.take_ownership = True
    await ApplyObjects().run(context, notes)
    assert "kubernetes other.local" in await corefile(kube)


async def corefile(kube) -> str:
    live = await kube.get("v1", "ConfigMap", "coredns", SYSTEM)
    found: str = live["data"]["Corefile"]
    return found


async def test_an_unedited_corefile_follows_the_release_and_one_that_was_put_in_its_place_stands(
    make_context, notes, kube
) -> None:
    context = make_context(kube=kube)
    theirs = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "coredns", "namespace": SYSTEM}}
    kube.put({**theirs, "data": {"Corefile": "a stray one"}})
    await ApplyObjects().run(context, notes)
    assert "kubernetes cluster.local" in await corefile(kube)
    context.cluster = replace(context.cluster, network=replace(context.cluster.network, dns_domain="other.local"))
    await ApplyObjects().run(context, notes)
    assert "kubernetes other.local" in await corefile(kube)
    kube.put({**theirs, "data": {"Corefile": "replaced"}})
    await ApplyObjects().run(context, notes)
    assert await corefile(kube) == "replaced"
    assert any(isinstance(one, Kept) and one.live == "replaced" for one in await ApplyObjects().plan(context))


@pytest.mark.parametrize("mounts", ["coredns-0123456789", None])
@pytest.mark.parametrize("hashed", [True, False])
async def test_a_corefile_that_our_coredns_never_read_is_replaced_whatever_it_says_of_itself(
    make_context, notes, kube, mounts: str | None, hashed: bool
) -> None:
    """Whoever could create ConfigMaps under a release that did not reserve the name chose its Corefile else."""
    context = make_context(kube=kube)
    await ApplyObjects().run(context, notes)
    ours = await kube.get("v1", "ConfigMap", "coredns", SYSTEM)
    live = await kube.get("apps/v1", "Deployment", "coredns", SYSTEM)
    if mounts is None:
        await kube.delete("apps/v1", "Deployment", "coredns", SYSTEM)
    else:
        live["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"] = mounts
        await kube.replace(live)
    said = {applied.ANNOTATION: json.dumps({"metadata": {}, "data": {"Corefile": "x"}})}
    if hashed:
        said |= {RENDERED_HASH: ours["metadata"]["annotations"][RENDERED_HASH]}
    meta = {"name": "coredns", "namespace": SYSTEM, "annotations": said}
    kube.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"Corefile": "evil"}})
    await ApplyObjects().run(context, notes)
    live = await kube.get("v1", "ConfigMap", "coredns", SYSTEM)
    assert live["data"] == ours["data"]
    assert applied.record_of(live) == applied.record_of(ours)


async def test_a_corefile_of_ours_that_nothing_mounts_is_not_applied_again(make_context, notes, kube) -> None:
    context = make_context(kube=kube)
    await ApplyObjects().run(context, notes)
    await kube.delete("apps/v1", "Deployment", "coredns", SYSTEM)
    said = [getattr(one, "sentence", "") for one in await ApplyObjects().plan(context)]
    assert not [one for one in said if "ConfigMap kube-system/coredns" in one]


# --- workers that hold it up -----------------------------------------------------------------------------


class OnNodes(Cluster):
    """Four nodes, of which n1 is a control node. A DaemonSet has a pod on each, which is ready but on those in
    `without`; it is of the former template on those in `former`. On those in `bare` each one is ended at once."""

    def __init__(self) -> None:
        super().__init__()
        self.without, self.former, self.bare = set[str](), set[str](), set[str]()
        for name in ("n1", "w1", "w2", "w3"):
            labels = {CONTROL_PLANE_ACTIVE: ""} if name == "n1" else {}
            self.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})

    async def apply(self, obj, *, manager, dry_run=False):
        result = await super().apply(obj, manager=manager, dry_run=dry_run)
        if obj["kind"] == "DaemonSet" and not dry_run and manager == "autarky-add-ons":
            self.settle(result)
        return result

    def settle(self, live: Object) -> None:
        owner = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": live["metadata"]["uid"]}]
        labels = {"a": "d"}
        for number, name in enumerate(("former", "present")):
            meta: Object = {
                "name": name,
                "namespace": "default",
                "labels": {**labels, HASH: name},
                "ownerReferences": owner,
            }
            self.put(
                {
                    "apiVersion": "apps/v1",
                    "kind": "ControllerRevision",
                    "metadata": meta,
                    "revision": number,
                    "data": {},
                }
            )
        for node in sorted({"n1", "w1", "w2", "w3"} - self.bare):
            of = "former" if node in self.former else "present"
            meta = {
                "name": f"d-{node}",
                "namespace": "default",
                "labels": {**labels, HASH: of},
                "ownerReferences": owner,
            }
            ready = {"type": "Ready", "status": str(node not in self.without), "reason": "x", "message": "x"}
            ready["lastTransitionTime"] = "2026-11-01T00:00:00Z"
            spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}
            self.put(
                {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {"conditions": [ready]}}
            )
        status = {
            "observedGeneration": live["metadata"]["generation"],
            "desiredNumberScheduled": 4,
            "updatedNumberScheduled": 4 - len(self.former | self.bare),
            "numberAvailable": 4 - len(self.without | self.bare),
        }
        self.put({**live, "status": status})


def daemon_set() -> Object:
    made = deployment("d")
    spec = {name: value for name, value in made["spec"].items() if name != "replicas"}
    return {**made, "kind": "DaemonSet", "spec": spec}


@pytest.mark.parametrize("stuck", ["without", "former", "bare"])
async def test_a_worker_does_not_keep_the_next_file_from_being_applied(make_context, notes, stuck) -> None:
    kube = OnNodes()
    getattr(kube, stuck).add("w1")
    context = make_context(kube=kube)
    context.own_add_ons = own(daemon_set(), b=[config("z")])
    began = asyncio.get_running_loop().time()
    await up(context, notes)
    assert kube.order == ["d", "z"]
    have = 4 if stuck == "former" else 3
    [warning] = [one for one in notes.notes if one.startswith("warning")]
    assert f"DaemonSet default/d has {have} of 4 pods available" in warning
    assert "only on workers: w1;" in warning
    assert asyncio.get_running_loop().time() - began < patience.WORKLOADS, "it may still come by itself for a while"
    assert asyncio.get_running_loop().time() - began >= patience.ON_WORKERS


@pytest.mark.parametrize(("without", "former"), [({"n1"}, set()), ({"n1", "w1"}, set()), ({"w1"}, {"n1"})])
async def test_a_pod_that_lacks_on_a_control_node_is_waited_for(make_context, notes, without, former) -> None:
    kube = OnNodes()
    kube.without, kube.former = without, former
    context = make_context(kube=kube)
    context.own_add_ons = own(daemon_set(), b=[config("z")])
    with pytest.raises(TimedOut, match="DaemonSet default/d"):
        await up(context, notes)
    assert kube.order == ["d"]
    assert not [one for one in notes.notes if one.startswith("warning")]
