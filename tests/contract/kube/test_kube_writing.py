"""What every ports.Kube does when it writes: the fake and the real API server alike."""

from __future__ import annotations

import asyncio
import base64

import pytest

from autarky.errors import ApiError, Conflict
from autarky.kube import Lister
from autarky.ports import Object
from contract.kube.objects import config_map, defined, deployment


def version(obj: Object) -> str:
    found: str = obj["metadata"]["resourceVersion"]
    return found


async def data_of(kube: Lister, namespace: str, name: str) -> dict[str, str]:
    found = await kube.get("v1", "ConfigMap", name, namespace)
    assert found is not None
    data: dict[str, str] = found.get("data") or {}
    return data


# --- server-side apply ---------------------------------------------------------------------------------


async def test_apply_creates_what_is_absent(kube: Lister, namespace: str) -> None:
    applied = await kube.apply(config_map(namespace, "a", colour="red"), manager="one")
    assert applied["metadata"]["uid"]
    assert await data_of(kube, namespace, "a") == {"colour": "red"}


async def test_apply_changes_what_differs(kube: Lister, namespace: str) -> None:
    before = await kube.apply(config_map(namespace, "a", colour="red"), manager="one")
    after = await kube.apply(config_map(namespace, "a", colour="blue"), manager="one")
    assert version(after) != version(before)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert await data_of(kube, namespace, "a") == {"colour": "blue"}


async def test_applying_the_same_again_changes_nothing(kube: Lister, namespace: str) -> None:
    before = await kube.apply(deployment(namespace, "a", env={"A": "1"}), manager="one")
    after = await kube.apply(deployment(namespace, "a", env={"A": "1"}), manager="one")
    assert version(after) == version(before)


async def test_a_field_that_is_applied_no_more_is_removed(kube: Lister, namespace: str) -> None:
    await kube.apply(config_map(namespace, "a", colour="red", shape="round"), manager="one")
    await kube.apply(config_map(namespace, "a", shape="round"), manager="one")
    assert await data_of(kube, namespace, "a") == {"shape": "round"}


async def test_a_field_that_another_manager_applies_too_stays(kube: Lister, namespace: str) -> None:
    await kube.apply(config_map(namespace, "a", colour="red", shape="round"), manager="one")
    await kube.apply(config_map(namespace, "a", colour="red"), manager="two")
    await kube.apply(config_map(namespace, "a", shape="round"), manager="one")
    assert await data_of(kube, namespace, "a") == {"colour": "red", "shape": "round"}


async def test_fields_of_other_managers_stay(kube: Lister, namespace: str) -> None:
    await kube.apply(config_map(namespace, "a", colour="red"), manager="one")
    await kube.apply(config_map(namespace, "a", shape="round"), manager="two")
    assert await data_of(kube, namespace, "a") == {"colour": "red", "shape": "round"}


async def test_apply_takes_a_field_from_whoever_has_it(kube: Lister, namespace: str) -> None:
    await kube.apply(config_map(namespace, "a", colour="red"), manager="one")
    await kube.apply(config_map(namespace, "a", colour="blue"), manager="two")
    assert await data_of(kube, namespace, "a") == {"colour": "blue"}


async def test_items_of_a_list_are_merged_by_name(kube: Lister, namespace: str) -> None:
    await kube.apply(deployment(namespace, "a", env={"A": "1", "B": "2"}), manager="one")
    await kube.apply(deployment(namespace, "a", env={"C": "3"}), manager="two")
    found = await kube.apply(deployment(namespace, "a", env={"B": "20"}), manager="one")
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert {entry["name"]: entry["value"] for entry in container["env"]} == {"B": "20", "C": "3"}
    assert container["image"] == "example.org/main:1"


async def test_a_dry_run_shows_the_result_and_changes_nothing(kube: Lister, namespace: str) -> None:
    await kube.apply(config_map(namespace, "a", colour="red"), manager="one")
    shown = await kube.apply(config_map(namespace, "a", colour="blue"), manager="one", dry_run=True)
    assert shown["data"] == {"colour": "blue"}
    assert await data_of(kube, namespace, "a") == {"colour": "red"}


async def test_apply_into_an_absent_namespace_is_an_error(kube: Lister) -> None:
    with pytest.raises(ApiError, match="namespaces") as caught:
        await kube.apply(config_map("no-such-namespace", "a"), manager="one")
    assert caught.value.status == 404


async def test_apply_to_another_version_than_the_live_one_is_a_conflict(kube: Lister, namespace: str) -> None:
    old = await kube.apply(config_map(namespace, "a", colour="red"), manager="one")
    await kube.apply(config_map(namespace, "a", colour="blue"), manager="one")
    stale = config_map(namespace, "a", colour="green")
    stale["metadata"]["resourceVersion"] = version(old)
    with pytest.raises(Conflict):
        await kube.apply(stale, manager="one")


# --- create, patch, replace ----------------------------------------------------------------------------


async def test_creating_what_exists_is_a_conflict(kube: Lister, namespace: str) -> None:
    await kube.create(config_map(namespace, "a"))
    with pytest.raises(Conflict, match="AlreadyExists"):
        await kube.create(config_map(namespace, "a"))


async def test_a_name_can_be_made_up_by_the_server(kube: Lister, namespace: str) -> None:
    obj = config_map(namespace, "")
    obj["metadata"] = {"generateName": "made-", "namespace": namespace}
    created = await kube.create(obj)
    name = created["metadata"]["name"]
    assert name.startswith("made-")
    assert await kube.get("v1", "ConfigMap", name, namespace) is not None


async def test_plain_text_of_a_secret_is_kept_as_data(kube: Lister, namespace: str) -> None:
    meta = {"name": "a", "namespace": namespace}
    await kube.create({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"key": "word"}})
    found = await kube.get("v1", "Secret", "a", namespace)
    assert found is not None
    assert found["data"] == {"key": base64.b64encode(b"word").decode()}
    assert "stringData" not in found


async def test_patch_merges_and_null_removes(kube: Lister, namespace: str) -> None:
    await kube.create(config_map(namespace, "a", colour="red", shape="round"))
    patched = await kube.patch("v1", "ConfigMap", "a", {"data": {"colour": None, "size": "big"}}, namespace=namespace)
    assert patched["data"] == {"shape": "round", "size": "big"}


async def test_patching_what_is_absent_is_an_error(kube: Lister, namespace: str) -> None:
    with pytest.raises(ApiError) as caught:
        await kube.patch("v1", "ConfigMap", "absent", {"data": {"a": "b"}}, namespace=namespace)
    assert caught.value.status == 404


async def test_patching_another_version_is_a_conflict(kube: Lister, namespace: str) -> None:
    old = await kube.create(config_map(namespace, "a", colour="red"))
    await kube.patch("v1", "ConfigMap", "a", {"data": {"colour": "blue"}}, namespace=namespace)
    stale = {"metadata": {"resourceVersion": version(old)}, "data": {"colour": "green"}}
    with pytest.raises(Conflict):
        await kube.patch("v1", "ConfigMap", "a", stale, namespace=namespace)


async def test_status_is_written_as_a_subresource_only(kube: Lister, namespace: str) -> None:
    await kube.create(deployment(namespace, "a"))
    patch = {"status": {"replicas": 3}}
    await kube.patch("apps/v1", "Deployment", "a", patch, namespace=namespace)
    found = await kube.get("apps/v1", "Deployment", "a", namespace)
    assert found is not None
    assert (found.get("status") or {}).get("replicas") is None
    found = await kube.patch("apps/v1", "Deployment", "a", patch, namespace=namespace, subresource="status")
    assert found["status"]["replicas"] == 3


async def test_writing_the_status_leaves_the_rest(kube: Lister, namespace: str) -> None:
    created = await kube.create(deployment(namespace, "a", replicas=1))
    created["spec"]["replicas"] = 9
    created["status"] = {"replicas": 1}
    found = await kube.replace(created, subresource="status")
    assert (found["spec"]["replicas"], found["status"]["replicas"]) == (1, 1)


async def test_only_a_change_of_the_spec_is_a_new_generation(kube: Lister, namespace: str) -> None:
    created = await kube.create(deployment(namespace, "a", replicas=1))
    labelled = await kube.patch("apps/v1", "Deployment", "a", {"metadata": {"labels": {"a": "b"}}}, namespace=namespace)
    scaled = await kube.patch("apps/v1", "Deployment", "a", {"spec": {"replicas": 2}}, namespace=namespace)
    assert [obj["metadata"]["generation"] for obj in (created, labelled, scaled)] == [1, 1, 2]


async def test_replace_puts_the_complete_object(kube: Lister, namespace: str) -> None:
    created = await kube.create(config_map(namespace, "a", colour="red", shape="round"))
    replaced = await kube.replace({**created, "data": {"size": "big"}})
    assert replaced["data"] == {"size": "big"}
    assert replaced["metadata"]["uid"] == created["metadata"]["uid"]


async def test_replacing_another_version_than_the_live_one_is_a_conflict(kube: Lister, namespace: str) -> None:
    created = await kube.create(config_map(namespace, "a", colour="red"))
    await kube.replace({**created, "data": {"colour": "blue"}})
    with pytest.raises(Conflict, match="Conflict"):
        await kube.replace({**created, "data": {"colour": "green"}})
    assert await data_of(kube, namespace, "a") == {"colour": "blue"}


async def test_replacing_what_is_absent_is_an_error(kube: Lister, namespace: str) -> None:
    with pytest.raises(ApiError) as caught:
        await kube.replace(config_map(namespace, "absent"))
    assert caught.value.status == 404


async def test_what_a_list_returned_can_be_written_back(kube: Lister, namespace: str) -> None:
    await kube.create(config_map(namespace, "a", colour="red"))
    (found,) = await kube.list("v1", "ConfigMap", namespace=namespace)
    await kube.replace({**found, "data": {"colour": "blue"}})
    assert await data_of(kube, namespace, "a") == {"colour": "blue"}


# --- delete ----------------------------------------------------------------------------------------------


async def test_delete_says_whether_there_was_something(kube: Lister, namespace: str) -> None:
    await kube.create(config_map(namespace, "a"))
    assert await kube.delete("v1", "ConfigMap", "a", namespace) is True
    assert await kube.delete("v1", "ConfigMap", "a", namespace) is False
    assert await kube.get("v1", "ConfigMap", "a", namespace) is None


async def test_only_the_object_that_was_read_is_deleted(kube: Lister, namespace: str) -> None:
    read = await kube.create(config_map(namespace, "a"))
    changed = await kube.patch("v1", "ConfigMap", "a", {"data": {"other": "1"}}, namespace=namespace)
    with pytest.raises(Conflict):
        await kube.delete("v1", "ConfigMap", "a", namespace, as_read=read)
    another = {**changed, "metadata": {**changed["metadata"], "uid": "00000000-0000-0000-0000-000000000000"}}
    with pytest.raises(Conflict):
        await kube.delete("v1", "ConfigMap", "a", namespace, as_read=another)
    assert await kube.delete("v1", "ConfigMap", "a", namespace, as_read=changed) is True
    assert await kube.delete("v1", "ConfigMap", "a", namespace, as_read=changed) is False
    assert await kube.get("v1", "ConfigMap", "a", namespace) is None


async def test_an_object_with_finalizers_goes_with_the_last_of_them(kube: Lister, namespace: str) -> None:
    obj = config_map(namespace, "a")
    obj["metadata"]["finalizers"] = ["example.org/held"]
    await kube.create(obj)
    assert await kube.delete("v1", "ConfigMap", "a", namespace) is True
    found = await kube.get("v1", "ConfigMap", "a", namespace)
    assert found is not None
    assert found["metadata"]["deletionTimestamp"]
    await kube.patch("v1", "ConfigMap", "a", {"metadata": {"finalizers": None}}, namespace=namespace)
    assert await kube.get("v1", "ConfigMap", "a", namespace) is None


async def test_a_pod_is_given_the_time_to_end_that_is_asked_for(kube: Lister, namespace: str) -> None:
    meta = {"name": "a", "namespace": namespace, "finalizers": ["example.org/held"]}
    spec = {"nodeName": "n1", "containers": [{"name": "main", "image": "example.org/main:1"}]}
    await kube.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    assert await kube.delete("v1", "Pod", "a", namespace, grace_seconds=7) is True
    found = await kube.get("v1", "Pod", "a", namespace)
    assert found is not None
    assert found["metadata"]["deletionGracePeriodSeconds"] == 7


# --- kinds -----------------------------------------------------------------------------------------------


async def test_a_kind_is_usable_once_it_is_defined(kube: Lister, namespace: str) -> None:
    gadgets = await defined(kube)
    meta = {"name": "a", "namespace": namespace}
    gadget = {"apiVersion": gadgets, "kind": "Gadget", "metadata": meta, "spec": {"anything": {"goes": [1, 2]}}}
    applied = await kube.apply(gadget, manager="one")
    assert applied["spec"] == gadget["spec"]
    assert await kube.get(gadgets, "Gadget", "b", namespace) is None
    assert [found["metadata"]["name"] for found in await kube.list(gadgets, "Gadget")] == ["a"]


async def test_a_kind_that_is_defined_no_more_is_an_error(kube: Lister, namespace: str) -> None:
    gadgets = await defined(kube)
    await kube.delete("apiextensions.k8s.io/v1", "CustomResourceDefinition", f"gadgets.{gadgets.split('/')[0]}")
    with pytest.raises(ApiError) as caught:
        await _until_not_served(kube, gadgets, namespace)
    assert caught.value.status == 404


async def _until_not_served(kube: Lister, api_version: str, namespace: str) -> None:
    """The API server notices by and by; until then the object is merely absent."""
    for _ in range(200):
        assert await kube.get(api_version, "Gadget", "a", namespace) is None
        await asyncio.sleep(0.05)


# --- eviction --------------------------------------------------------------------------------------------


async def test_a_pod_is_evicted_and_one_that_is_absent_passed_over(kube: Lister, namespace: str) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}}
    await kube.apply(account, manager="test")
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": namespace},
        "spec": {"containers": [{"name": "main", "image": "example.org/main:1"}]},
    }
    await kube.create(pod)
    assert await kube.evict(namespace, "a") is True
    assert await kube.get("v1", "Pod", "a", namespace) is None  # no kubelet has it, so it goes at once
    assert await kube.evict(namespace, "a") is False
