"""What every ports.Kube does when it reads: the fake and the real API server alike."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from autarky.control.common.slim import bare
from autarky.errors import ApiError
from autarky.kube import Lister
from autarky.kube.paging import FIRST
from autarky.ports import WatchEvent
from contract.kube.objects import config_map, defined


def names(objects: list[dict[str, dict[str, str]]]) -> list[str]:
    return [obj["metadata"]["name"] for obj in objects]


def reported(event: WatchEvent) -> tuple[str, str]:
    return event.type, event.object["metadata"]["name"]


async def events(
    kube: Lister, namespace: str, count: int, *, since: str | None, labels: str | None = None
) -> list[WatchEvent]:
    """The first so many events that are not bookmarks."""
    found: list[WatchEvent] = []
    watch = kube.watch("v1", "ConfigMap", namespace=namespace, resource_version=since, labels=labels)
    async with asyncio.timeout(60), aclosing(watch) as stream:
        async for event in stream:
            if event.type != "BOOKMARK":
                found.append(event)
            if len(found) == count:
                break
    return found


# --- get and list ----------------------------------------------------------------------------------------


async def test_what_is_absent_is_none(kube: Lister, namespace: str) -> None:
    assert await kube.get("v1", "ConfigMap", "absent", namespace) is None
    assert await kube.get("v1", "Node", "absent") is None
    assert await kube.get("v1", "ConfigMap", "absent", "no-such-namespace") is None


async def test_a_kind_that_is_not_served_is_an_error_and_not_absent(kube: Lister) -> None:
    with pytest.raises(ApiError) as caught:
        await kube.get("example.org/v1", "Gadget", "a", "default")
    assert caught.value.status == 404
    with pytest.raises(ApiError):
        await kube.list("v1", "Gadget")


async def test_a_namespace_too_few_or_too_many_is_a_mistake_of_the_caller(kube: Lister) -> None:
    with pytest.raises(ValueError, match="needs a namespace"):
        await kube.get("v1", "ConfigMap", "a")
    with pytest.raises(ValueError, match="not namespaced"):
        await kube.get("v1", "Node", "a", "default")


async def test_names_with_colons_are_found(kube: Lister) -> None:
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "test:colon"},
        "rules": [],
    }
    await kube.apply(role, manager="one")
    assert await kube.get("rbac.authorization.k8s.io/v1", "ClusterRole", "test:colon") is not None
    assert await kube.delete("rbac.authorization.k8s.io/v1", "ClusterRole", "test:colon")


async def test_a_list_is_in_order_and_its_items_know_their_kind(kube: Lister, namespace: str) -> None:
    for name in ("b", "a", "c"):
        await kube.create(config_map(namespace, name))
    found = await kube.list("v1", "ConfigMap", namespace=namespace)
    assert names(found) == ["a", "b", "c"]
    assert {(obj["apiVersion"], obj["kind"]) for obj in found} == {("v1", "ConfigMap")}


async def test_a_list_without_namespace_has_those_of_all(kube: Lister, namespace: str) -> None:
    await kube.create(config_map(namespace, f"in-{namespace}"))
    await kube.create(config_map("default", f"also-{namespace}"))
    assert {f"in-{namespace}", f"also-{namespace}"} <= set(names(await kube.list("v1", "ConfigMap")))


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("tier=front", ["a"]),
        ("tier!=front", ["b", "c"]),
        ("tier", ["a", "b"]),
        ("!tier", ["c"]),
        ("tier in (front, back)", ["a", "b"]),
        ("tier notin (front)", ["b", "c"]),
        ("tier=back,size=big", ["b"]),
    ],
)
async def test_a_list_can_be_narrowed_by_labels(
    kube: Lister, namespace: str, selector: str, expected: list[str]
) -> None:
    await kube.create(config_map(namespace, "a", {"tier": "front"}))
    await kube.create(config_map(namespace, "b", {"tier": "back", "size": "big"}))
    await kube.create(config_map(namespace, "c", {"size": "big"}))
    assert names(await kube.list("v1", "ConfigMap", namespace=namespace, labels=selector)) == expected


async def test_a_list_can_be_narrowed_by_fields(kube: Lister, namespace: str) -> None:
    for name in ("a", "b"):
        await kube.create(config_map(namespace, name))
    assert names(await kube.list("v1", "ConfigMap", namespace=namespace, fields="metadata.name=b")) == ["b"]
    assert names(await kube.list("v1", "ConfigMap", namespace=namespace, fields="metadata.name!=b")) == ["a"]


async def test_what_comes_one_after_the_other_is_what_a_list_has(kube: Lister, namespace: str) -> None:
    for name in ("b", "a", "c"):
        await kube.create(config_map(namespace, name))
    for fields in (None, "metadata.name!=b"):
        found = [obj async for obj in kube.each("v1", "ConfigMap", namespace=namespace, fields=fields)]
        assert found == await kube.list("v1", "ConfigMap", namespace=namespace, fields=fields)
        assert names(found) == (["a", "b", "c"] if fields is None else ["a", "c"])
        listing = await kube.list_at("v1", "ConfigMap", namespace=namespace, fields=fields, slim=bare)
        assert listing.items == [bare(obj) for obj in found]


async def test_a_list_of_more_than_one_page_is_complete(kube: Lister, namespace: str) -> None:
    expected = [f"m{number:03}" for number in range(FIRST + 5)]
    await asyncio.gather(*(kube.create(config_map(namespace, name)) for name in expected))
    assert names(await kube.list("v1", "ConfigMap", namespace=namespace)) == expected
    assert names([obj async for obj in kube.each("v1", "ConfigMap", namespace=namespace)]) == expected


async def test_an_empty_list_is_a_list(kube: Lister, namespace: str) -> None:
    assert await kube.list("v1", "ConfigMap", namespace=namespace) == []


# --- watch -----------------------------------------------------------------------------------------------


async def test_a_watch_tells_what_happens_after_its_version(kube: Lister, namespace: str) -> None:
    before = await kube.create(config_map(namespace, "before"))
    await kube.create(config_map(namespace, "a"))
    await kube.patch("v1", "ConfigMap", "a", {"data": {"colour": "red"}}, namespace=namespace)
    await kube.delete("v1", "ConfigMap", "a", namespace)
    found = await events(kube, namespace, 3, since=before["metadata"]["resourceVersion"])
    assert [reported(event) for event in found] == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert found[1].object["data"] == {"colour": "red"}
    versions = [int(event.object["metadata"]["resourceVersion"]) for event in found]
    assert versions == sorted(versions)


async def test_a_watch_goes_on_while_things_happen(kube: Lister, namespace: str) -> None:
    listing = await kube.list_at("v1", "ConfigMap", namespace=namespace)
    watching = asyncio.create_task(events(kube, namespace, 2, since=listing.resource_version))
    await asyncio.sleep(0.05)
    await kube.create(config_map(namespace, "a"))
    await asyncio.sleep(0.05)
    await kube.create(config_map(namespace, "b"))
    assert [reported(event) for event in await watching] == [("ADDED", "a"), ("ADDED", "b")]


async def test_a_watch_that_resumes_misses_nothing(kube: Lister, namespace: str) -> None:
    listing = await kube.list_at("v1", "ConfigMap", namespace=namespace)
    await kube.create(config_map(namespace, "a"))
    (first,) = await events(kube, namespace, 1, since=listing.resource_version)
    for name in ("b", "c"):
        await kube.create(config_map(namespace, name))
    rest = await events(kube, namespace, 2, since=first.object["metadata"]["resourceVersion"])
    assert [reported(event) for event in rest] == [("ADDED", "b"), ("ADDED", "c")]


async def test_a_watch_without_version_begins_with_what_is_there(kube: Lister, namespace: str) -> None:
    for name in ("a", "b"):
        await kube.create(config_map(namespace, name))
    found = await events(kube, namespace, 2, since=None)
    assert sorted(reported(event) for event in found) == [("ADDED", "a"), ("ADDED", "b")]


async def test_for_a_watch_with_a_selector_an_object_goes_when_it_matches_no_more(kube: Lister, namespace: str) -> None:
    listing = await kube.list_at("v1", "ConfigMap", namespace=namespace)
    await kube.create(config_map(namespace, "a", {"tier": "front"}))
    await kube.create(config_map(namespace, "b"))
    await kube.patch("v1", "ConfigMap", "a", {"metadata": {"labels": {"tier": "back"}}}, namespace=namespace)
    await kube.patch("v1", "ConfigMap", "b", {"metadata": {"labels": {"tier": "front"}}}, namespace=namespace)
    found = await events(kube, namespace, 3, since=listing.resource_version, labels="tier=front")
    assert [reported(event) for event in found] == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "b")]


async def test_an_accepted_watch_begins_with_a_bookmark_of_its_version(kube: Lister, namespace: str) -> None:
    listing = await kube.list_at("v1", "ConfigMap", namespace=namespace)
    watch = kube.watch("v1", "ConfigMap", namespace=namespace, resource_version=listing.resource_version)
    async with asyncio.timeout(60), aclosing(watch) as stream:
        first = await anext(stream)
    assert first.type == "BOOKMARK"
    assert first.object["metadata"]["resourceVersion"] == listing.resource_version


async def test_a_watch_ends_in_peace_at_its_time(kube: Lister, namespace: str) -> None:
    listing = await kube.list_at("v1", "ConfigMap", namespace=namespace)
    watch = kube.watch(
        "v1", "ConfigMap", namespace=namespace, resource_version=listing.resource_version, timeout_seconds=1
    )
    async with asyncio.timeout(60):
        assert {event.type async for event in watch} == {"BOOKMARK"}


async def test_a_watch_from_a_forgotten_version_is_an_error_410(kube: Lister) -> None:
    gadgets = await defined(kube)  # of a new kind, no server remembers anything old
    with pytest.raises(ApiError, match="too old resource version") as caught:
        async with asyncio.timeout(60), aclosing(kube.watch(gadgets, "Gadget", resource_version="1")) as stream:
            assert {event.type async for event in stream} == {"BOOKMARK"}
    assert caught.value.status == 410


async def test_a_watch_of_a_kind_that_is_not_served_is_an_error(kube: Lister) -> None:
    with pytest.raises(ApiError) as caught:
        await anext(kube.watch("example.org/v1", "Gadget"))
    assert caught.value.status == 404


# --- the rest --------------------------------------------------------------------------------------------


async def test_a_server_that_is_ready_is_healthy(kube: Lister) -> None:
    assert await kube.healthy() is None
    assert await kube.healthy("/readyz?exclude=etcd&exclude=etcd-readiness") is None


async def test_lines_of_a_text_are_those_that_begin_so(kube: Lister) -> None:
    [line] = await kube.lines("/metrics", ["process_open_fds "])
    assert float(line.partition(" ")[2]) > 0
    with pytest.raises(ApiError) as caught:
        await kube.lines("/no-such-text", [""])
    assert caught.value.status == 404


async def test_logs_of_an_absent_pod_are_an_error(kube: Lister, namespace: str) -> None:
    with pytest.raises(ApiError, match="absent") as caught:
        await kube.logs(namespace, "absent")
    assert caught.value.status == 404
