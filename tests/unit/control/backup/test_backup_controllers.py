"""The controllers of backups in a small cluster in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import REGISTRY

from autarky.control.backup.decide.step import MOST_ATTEMPTS
from autarky.control.backup.manifests import definitions, pods
from autarky.control.backup.operator import Backups, Schedules
from autarky.control.base.operator_view import View
from autarky.control.etcd.manifests import members as etcd_members
from autarky.ports import Object
from autarky.render.crds import API_VERSION
from autarky.render.values import SYSTEM
from fakes.clock import LoopClock
from unit.control.world import World

pytestmark = pytest.mark.looptime

TEMPLATE = {
    "target": {"directory": "/var/lib/autarky/backups"},
    "encryption": {"recipients": ["age1x"]},
}
RESULT = {"file": "c-b.tar.gz.age", "size": 10, "keys": 4, "verified": "2026-11-26T10:00:00Z"}


@pytest.fixture
def world() -> World:
    found = World()
    for definition in (etcd_members.crd(), *definitions.objects()):
        found.kube.put(definition)
    containers = [{"name": "autarky-operator", "image": "registry.example/autarky:1"}]
    found.kube.put(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "autarky-operator", "namespace": SYSTEM},
            "spec": {"template": {"spec": {"containers": containers}}},
        }
    )
    for name in ("n1", "n2"):
        found.node(name)
    return found


@asynccontextmanager
async def running(world: World) -> AsyncIterator[tuple[Backups, Schedules]]:
    view = View(world.kube, LoopClock(), lambda: None, print)
    watching = asyncio.create_task(view.run())
    await asyncio.sleep(1)
    try:
        yield (
            Backups(world.say, view, world.kube, LoopClock()),
            Schedules(world.say, view, world.kube, LoopClock()),
        )
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def passes(*controllers: Backups | Schedules, count: int = 3) -> None:
    for _ in range(count):
        for one in controllers:
            await one.reconcile()
        await asyncio.sleep(1)


async def status(world: World, name: str) -> dict[str, Any]:
    found = await world.kube.get(API_VERSION, definitions.BACKUP, name)
    assert found is not None
    return found.get("status") or {}


async def workers(world: World) -> list[Object]:
    return await world.kube.list("v1", "Pod", namespace=SYSTEM, labels=pods.BACKUP_LABEL)


def ended(world: World, pod: Object, said: object, phase: str = "Succeeded") -> None:
    state = {"terminated": {"message": said if isinstance(said, str) else json.dumps(said)}}
    world.kube.put({**pod, "status": {"phase": phase, "containerStatuses": [{"state": state}]}})


async def test_a_backup_from_beginning_to_end(world: World) -> None:
    world.kube.put(definitions.backup("b", TEMPLATE))
    async with running(world) as (backups, _):
        await passes(backups)
        assert (await status(world, "b"))["phase"] == "Running"
        (pod,) = await workers(world)
        assert pod["spec"]["nodeName"] == (await status(world, "b"))["node"]
        assert pod["spec"]["containers"][0]["image"] == "registry.example/autarky:1"
        assert not pod["spec"]["automountServiceAccountToken"]
        ended(world, pod, RESULT)
        await passes(backups)
        assert (await status(world, "b")) == {**(await status(world, "b")), **RESULT, "phase": "Complete"}
        assert await workers(world) == []


async def test_two_are_made_one_after_the_other_on_different_nodes(world: World) -> None:
    for name in ("a", "b"):
        world.kube.put(definitions.backup(name, TEMPLATE))
    async with running(world) as (backups, _):
        await backups.reconcile()
        await backups.reconcile()  # before the live copies have seen anything of the first pass
        await passes(backups)
        (first,) = await workers(world)
        assert (await status(world, "b"))["message"] == "another backup is being worked on"
        ended(world, first, RESULT)
        await passes(backups)
        (second,) = await workers(world)
        assert second["spec"]["nodeName"] != first["spec"]["nodeName"]


async def test_what_a_mirror_pod_says_counts_for_nothing(world: World) -> None:
    """A worker's kubelet can create one with any labels and any status."""
    created = world.kube.put(definitions.backup("b", TEMPLATE))
    name = pods.name(created["metadata"]["uid"], "make", 1)
    forged = pods.pod(created, "make", "n9", 1, image="x", plane=None)
    forged["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    forged["metadata"]["name"] = "forged"
    ended(world, forged, RESULT)
    async with running(world) as (backups, _):
        await passes(backups)
        assert (await status(world, "b"))["phase"] == "Running"
        assert name in [one["metadata"]["name"] for one in await workers(world)]


async def test_a_mirror_pod_with_the_name_of_ours_takes_one_attempt_and_no_more(world: World) -> None:
    created = world.kube.put(definitions.backup("b", TEMPLATE))
    forged = pods.pod(created, "make", "n9", 1, image="x", plane=None)
    forged["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    ended(world, forged, RESULT)
    async with running(world) as (backups, _):
        await passes(backups, count=5)
        assert (await status(world, "b"))["attempt"] > 1
        assert pods.name(created["metadata"]["uid"], "make", 2) in [
            one["metadata"]["name"] for one in await workers(world)
        ]


@pytest.mark.parametrize("said", ["", "not JSON", "[]"])
async def test_a_pod_that_says_nothing_is_tried_again_and_then_given_up(world: World, said: str) -> None:
    world.kube.put(definitions.backup("b", TEMPLATE))
    async with running(world) as (backups, _):
        for attempt in range(1, MOST_ATTEMPTS + 1):
            await passes(backups, count=5)
            (pod,) = await workers(world)
            assert (await status(world, "b"))["attempt"] == attempt
            ended(world, pod, said, "Failed")
        await passes(backups, count=5)
        assert (await status(world, "b"))["phase"] == "Failed"
        assert await workers(world) == []


async def test_what_is_wrong_is_in_its_status(world: World) -> None:
    world.kube.put(definitions.backup("b", TEMPLATE))
    async with running(world) as (backups, _):
        await passes(backups)
        (pod,) = await workers(world)
        ended(world, pod, {"error": "no space"}, "Failed")
        await passes(backups)
        assert (await status(world, "b"))["message"] == "no space"


async def test_a_node_whose_member_is_unfit_is_followed_by_another_one(world: World) -> None:
    world.kube.put(definitions.backup("b", TEMPLATE))
    async with running(world) as (backups, _):
        await passes(backups)
        (first,) = await workers(world)
        ended(world, first, {"error": "its member of etcd does not reach a quorum", "elsewhere": True}, "Failed")
        await passes(backups, count=5)
        (second,) = await workers(world)
        assert {first["spec"]["nodeName"], second["spec"]["nodeName"]} == {"n1", "n2"}
        assert (await status(world, "b"))["phase"] == "Running"
        ended(world, second, RESULT)
        await passes(backups)
        assert (await status(world, "b"))["phase"] == "Complete"


async def test_where_all_are_unfit_it_fails_and_says_why(world: World) -> None:
    world.kube.put(definitions.backup("b", TEMPLATE))
    async with running(world) as (backups, _):
        for _ in range(MOST_ATTEMPTS):
            await passes(backups, count=5)
            for pod in await workers(world):
                ended(world, pod, {"error": "no quorum", "elsewhere": True}, "Failed")
        await passes(backups, count=5)
        assert (await status(world, "b")) == {
            **(await status(world, "b")),
            "phase": "Failed",
            "message": "no quorum",
        }


def member(name: str, message: str = "", phase: str = "Member") -> Object:
    return {
        "apiVersion": API_VERSION,
        "kind": etcd_members.KIND,
        "metadata": {"name": name},
        "spec": {"nodeName": name, "address": f"192.0.2.1{name[1:]}", "state": "Member"},
        "status": {"phase": phase, "message": message},
    }


@pytest.mark.parametrize(
    ("messages", "wanted"),
    [
        ({"n1": "it does not serve", "n2": ""}, "n2"),
        ({"n1": "", "n2": "it does not serve"}, "n1"),
        ({"n1": "it waits", "n2": "it waits"}, "n1"),
    ],
)
async def test_a_member_of_which_something_is_said_is_left_out_unless_that_is_said_of_all(
    world: World, messages: dict[str, str], wanted: str
) -> None:
    """Of all it is said while they wait for a change that does not come: they may be well, and the pod looks itself."""
    for name, message in messages.items():
        world.kube.put(member(name, message))
    world.kube.put(definitions.backup("b", TEMPLATE))
    async with running(world) as (backups, _):
        await passes(backups)
        (pod,) = await workers(world)
        assert pod["spec"]["nodeName"] == wanted


async def test_a_member_that_does_not_vote_is_left_out(world: World) -> None:
    world.kube.put(member("n1", phase="Learner"))
    world.kube.put(member("n2"))
    world.kube.put(definitions.backup("b", TEMPLATE))
    async with running(world) as (backups, _):
        await passes(backups)
        (pod,) = await workers(world)
        assert pod["spec"]["nodeName"] == "n2"


async def test_an_archive_is_removed_when_it_is_asked_for_and_then_the_object(world: World) -> None:
    unwanted = definitions.backup("b", TEMPLATE)
    unwanted["spec"]["state"] = definitions.REMOVED
    unwanted["status"] = {**RESULT, "phase": "Complete", "node": "n2", "attempt": 1}
    world.kube.put(unwanted)
    async with running(world) as (backups, _):
        await passes(backups)
        (pod,) = await workers(world)
        assert pod["spec"]["nodeName"] == "n2"
        asked = json.loads(pod["spec"]["containers"][0]["env"][0]["value"])
        assert (asked["verb"], asked["file"]) == ("remove", RESULT["file"])
        ended(world, pod, {})
        await passes(backups)
        assert await world.kube.get(API_VERSION, definitions.BACKUP, "b") is None
        assert await workers(world) == []


async def test_a_pod_that_removes_an_archive_knows_which_others_should_be_beside_it(world: World) -> None:
    """None of them is where the disk is not mounted."""
    elsewhere = {**TEMPLATE, "target": {"directory": "/mnt/b"}}
    for name, node, phase, state, template in (
        ("a", "n2", "Complete", definitions.REMOVED, TEMPLATE),
        ("b", "n2", "Complete", definitions.KEPT, TEMPLATE),
        ("c", "n1", "Complete", definitions.KEPT, TEMPLATE),
        ("d", "n2", "Failed", definitions.KEPT, TEMPLATE),
        ("e", "n2", "Complete", definitions.REMOVED, TEMPLATE),
        ("f", "n2", "Complete", definitions.KEPT, elsewhere),
    ):
        one = definitions.backup(name, template)
        one["spec"]["state"] = state
        world.kube.put({**one, "status": {"phase": phase, "file": f"{name}.tar.gz.age", "node": node, "attempt": 1}})
    async with running(world) as (backups, _):
        await passes(backups)
        (pod,) = await workers(world)
        asked = json.loads(pod["spec"]["containers"][0]["env"][0]["value"])
        assert (asked["file"], asked["beside"]) == ("a.tar.gz.age", ["b.tar.gz.age"])


async def test_when_the_object_is_deleted_its_pod_ends_and_nothing_is_removed(world: World) -> None:
    world.kube.put(definitions.backup("b", TEMPLATE))
    async with running(world) as (backups, _):
        await passes(backups)
        assert len(await workers(world)) == 1
        await world.kube.delete(API_VERSION, definitions.BACKUP, "b")
        await passes(backups)
        assert await workers(world) == []


def schedule(every: str = "1h", **spec: object) -> Object:
    return {
        "apiVersion": API_VERSION,
        "kind": definitions.SCHEDULE,
        "metadata": {"name": "s"},
        "spec": {"every": every, "template": TEMPLATE, **spec},
    }


async def test_a_schedule_asks_for_one_and_not_for_another_meanwhile(world: World) -> None:
    world.kube.put(schedule())
    async with running(world) as (_, schedules):
        await passes(schedules, count=5)
        (found,) = await world.kube.list(API_VERSION, definitions.BACKUP)
        assert found["metadata"]["labels"] == {definitions.OF_SCHEDULE: "s"}
        assert found["spec"]["encryption"] == TEMPLATE["encryption"]


async def test_a_paused_schedule_asks_for_none(world: World) -> None:
    world.kube.put(schedule(paused=True))
    async with running(world) as (_, schedules):
        await passes(schedules)
        assert await world.kube.list(API_VERSION, definitions.BACKUP) == []


async def test_what_has_outlived_its_use_is_given_up_and_the_newest_is_named(world: World) -> None:
    world.kube.put(schedule(keep={"count": 1}))
    for number in (1, 2):
        one = definitions.backup(f"s-{number}", TEMPLATE, "s")
        one["status"] = {**RESULT, "phase": "Complete"}
        one["metadata"]["creationTimestamp"] = f"2026-11-26T0{number}:00:00Z"
        world.kube.put(one)
    async with running(world) as (_, schedules):
        await passes(schedules)
        found = {one["metadata"]["name"]: one for one in await world.kube.list(API_VERSION, definitions.BACKUP)}
        assert found["s-1"]["spec"]["state"] == definitions.REMOVED
        assert found["s-2"]["spec"]["state"] == definitions.KEPT
        (said,) = await world.kube.list(API_VERSION, definitions.SCHEDULE)
        assert said["status"]["lastBackup"] == "s-2"


@pytest.mark.parametrize(("age", "late"), [(3600.0, 0), (3 * 3600.0 + 60, 1)])
async def test_a_schedule_whose_last_backup_is_too_old_says_so(world: World, age: float, late: int) -> None:
    began = LoopClock().time()
    world.kube.put(schedule(paused=False))
    one = definitions.backup("s-1", TEMPLATE, "s")
    one["status"] = {**RESULT, "phase": "Complete"}
    one["metadata"]["creationTimestamp"] = stamp(began - age)
    world.kube.put(one)
    async with running(world) as (_, schedules):
        await passes(schedules)
        assert schedules.seen is not None
        assert len(schedules.seen) == late
        (said,) = await world.kube.list(API_VERSION, definitions.SCHEDULE)
        assert bool(said["status"]["message"]) == bool(late)


def measured(schedule: str) -> float | None:
    """As Prometheus sees it."""
    return REGISTRY.get_sample_value("autarky_backup_last_verified_timestamp_seconds", {"schedule": schedule})


async def test_the_metric_is_when_the_newest_complete_one_was_verified(world: World) -> None:
    """Not when it was asked for, nor of one that failed since."""
    world.kube.put(schedule())
    ages = (("s-1", 0, "Complete", "2026-11-26T09:00:05Z"), ("s-2", 1, "Complete", "2026-11-26T10:20:30Z"))
    for name, hours, phase, verified in (*ages, ("s-3", 2, "Failed", "2026-11-26T11:00:00Z")):
        one = definitions.backup(name, TEMPLATE, "s")
        one["status"] = {**RESULT, "phase": phase, "verified": verified}
        one["metadata"]["creationTimestamp"] = f"2026-11-26T{9 + hours:02}:00:00Z"
        world.kube.put(one)
    async with running(world) as (_, schedules):
        await passes(schedules)
        assert measured("s") == datetime(2026, 11, 26, 10, 20, 30, tzinfo=UTC).timestamp()
        (said,) = await world.kube.list(API_VERSION, definitions.SCHEDULE)
        assert said["status"]["lastVerified"] == "2026-11-26T10:20:30Z"


async def test_the_metric_is_0_while_there_is_none_and_goes_with_its_schedule(world: World) -> None:
    world.kube.put(schedule())
    async with running(world) as (_, schedules):
        await passes(schedules)
        assert measured("s") == 0
        await world.kube.delete(API_VERSION, definitions.SCHEDULE, "s")
        await passes(schedules)
        assert measured("s") is None


async def test_without_a_schedule_nothing_is_said_of_backups(world: World) -> None:
    async with running(world) as (_, schedules):
        await passes(schedules)
        assert schedules.seen is None


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def test_one_that_waits_for_its_node_keeps_no_other_from_being_made(world: World) -> None:
    waiting = definitions.backup("a", {**TEMPLATE, "node": "n9"})
    waiting["status"] = {"phase": "Running", "node": "n9", "attempt": 1, "message": ""}
    world.kube.put(waiting)
    world.kube.put(definitions.backup("b", TEMPLATE))
    async with running(world) as (backups, _):
        await passes(backups)
        assert (await status(world, "a"))["message"] == "waiting for node n9"
        assert (await status(world, "b"))["phase"] == "Running"


async def test_an_operator_whose_clock_is_behind_asks_once_in_an_interval(world: World) -> None:
    """Each one seems to be from the future, and is complete at once."""
    world.kube.put(schedule(every="1h"))
    async with running(world) as (_, schedules):
        schedules.clock = LoopClock(began=0)
        for _ in range(5):
            await passes(schedules)
            for one in await world.kube.list(API_VERSION, definitions.BACKUP):
                world.kube.put({**one, "status": {**RESULT, "phase": "Complete"}})
        assert len(await world.kube.list(API_VERSION, definitions.BACKUP)) == 1
