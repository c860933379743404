"""The controllers of backups where a clock was ahead, or behind, when one of them was made."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from autarky.control.backup.manifests import definitions
from autarky.ports import Object
from autarky.render.crds import API_VERSION
from fakes.clock import BEGAN
from unit.control.backup.test_backup_controllers import (
    RESULT,
    TEMPLATE,
    measured,
    passes,
    running,
    schedule,
    stamp,
    workers,
    world,
)
from unit.control.world import World

__all__ = ["world"]  # the fixture
pytestmark = pytest.mark.looptime
HOUR, YEAR = 3600.0, 365 * 86400.0


def made(world: World, number: int, age: float, *, verified: float | None = None, node: str = "n1") -> Object:
    """In this order. age, verified: seconds before now, by the clock of whoever wrote that."""
    one = definitions.backup(f"s-{number}", TEMPLATE, "s")
    one["metadata"]["creationTimestamp"] = stamp(BEGAN - age)
    said = {"verified": stamp(BEGAN - (age if verified is None else verified)), "revision": number}
    return world.kube.put({**one, "status": {**RESULT, **said, "phase": "Complete", "node": node}})


def put_schedule(world: World, keep: Object | None = None) -> None:
    one = schedule(keep=keep or {})
    world.kube.put({**one, "metadata": {**one["metadata"], "creationTimestamp": stamp(BEGAN - YEAR)}})


async def state(world: World, number: int) -> str:
    found = await world.kube.get(API_VERSION, definitions.BACKUP, f"s-{number}")
    assert found is not None
    return str(found["spec"]["state"])


async def status_of_schedule(world: World) -> Object:
    (found,) = await world.kube.list(API_VERSION, definitions.SCHEDULE)
    said: Object = found["status"]
    return said


async def test_a_backup_from_the_future_does_not_cost_those_that_follow(world: World) -> None:
    """It was kept as the newest one for a year, and each new one was removed when it was made."""
    put_schedule(world, keep={"count": 1})
    for number, age in enumerate((2 * HOUR, -YEAR, 60)):
        made(world, number + 1, age)
    async with running(world) as (_, schedules):
        await passes(schedules)
        assert schedules.seen == ()
        assert [await state(world, number) for number in (1, 2, 3)] == [definitions.REMOVED] * 2 + [definitions.KEPT]
        assert (await status_of_schedule(world))["lastBackup"] == "s-3"


async def test_a_backup_from_the_future_hides_no_failures_and_is_named(world: World) -> None:
    """For a year all seemed to be well."""
    put_schedule(world)
    made(world, 1, 4 * HOUR)
    made(world, 2, -YEAR)
    async with running(world) as (_, schedules):
        await passes(schedules)
        (sentence,) = schedules.seen or ()
        assert sentence.startswith("s: backups are overdue: the last one is s-1; s-2 is from the future")
        said = await status_of_schedule(world)
        assert (said["lastBackup"], said["message"]) == ("s-1", sentence.removeprefix("s: "))
        assert measured("s") == BEGAN - 4 * HOUR


async def test_while_none_is_overdue_it_is_named_by_the_schedule_alone(world: World) -> None:
    put_schedule(world)
    made(world, 1, -YEAR)
    made(world, 2, 60)
    async with running(world) as (_, schedules):
        await passes(schedules)
        assert schedules.seen == ()
        assert (await status_of_schedule(world))["message"].startswith("s-1 is from the future")


async def test_of_a_node_whose_clock_is_ahead_the_metric_is_when_the_backup_was_asked_for(world: World) -> None:
    put_schedule(world)
    made(world, 1, 60, verified=-YEAR)
    async with running(world) as (_, schedules):
        await passes(schedules)
        assert measured("s") == BEGAN - 60
        assert (await status_of_schedule(world))["lastVerified"] == stamp(BEGAN - 60)


async def test_one_from_the_future_does_not_keep_its_node_from_its_turn(world: World) -> None:
    """All archives would be on the other node's disk."""
    made(world, 1, -YEAR, node="n1")
    made(world, 2, HOUR, node="n2")
    world.kube.put(definitions.backup("b", TEMPLATE))
    async with running(world) as (backups, _):
        await passes(backups)
        (pod,) = await workers(world)
        assert pod["spec"]["nodeName"] == "n1"


async def test_a_clock_that_comes_back_to_the_same_second_costs_no_backup(world: World) -> None:
    """It begins at 1970 at each boot: the name was that of an earlier backup, and none was made for an interval."""
    put_schedule(world)
    for second in range(10):
        when = datetime.fromtimestamp(BEGAN + second, UTC).strftime("%Y%m%d-%H%M%S")
        one = definitions.backup(f"s-{when}", TEMPLATE, "s")
        one["metadata"]["creationTimestamp"] = stamp(BEGAN - 2 * HOUR)
        world.kube.put({**one, "status": {**RESULT, "phase": "Complete"}})
    async with running(world) as (_, schedules):
        await passes(schedules)
        assert len(await world.kube.list(API_VERSION, definitions.BACKUP)) == 11
