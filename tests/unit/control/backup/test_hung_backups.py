"""The controller of backups where a target hangs: the others go on."""

from __future__ import annotations

import pytest

from autarky.control.backup import operator
from autarky.control.backup.decide.step import AGAIN_SECONDS
from autarky.control.backup.manifests import definitions, pods
from autarky.control.backup.operator import Backups
from autarky.ports import Object
from fakes.clock import BEGAN, LoopClock
from unit.control.backup.test_backup_controllers import (
    RESULT,
    TEMPLATE,
    ended,
    passes,
    running,
    stamp,
    status,
    workers,
    world,
)
from unit.control.world import World

__all__ = ["world"]  # the fixture
pytestmark = pytest.mark.looptime


async def of(world: World) -> str:
    """Whose pod there is."""
    (pod,) = await workers(world)
    return str(pod["metadata"]["labels"][pods.BACKUP_LABEL])


async def killed(world: World, backups: Backups, said: str = "", reason: str = "") -> None:
    (pod,) = await workers(world)
    ended(world, pod, said, "Failed")
    if reason:
        world.kube.put({**pod, "status": {"phase": "Failed", "reason": reason}})
    await passes(backups, count=6)


async def test_after_an_attempt_that_died_whoever_waits_has_a_turn(world: World) -> None:
    """Three attempts followed one another, each of which may take hours."""
    for name in ("a", "b"):
        world.kube.put(definitions.backup(name, TEMPLATE))
    async with running(world) as (backups, _):
        await passes(backups)
        assert await of(world) == "a"
        await killed(world, backups)
        assert await of(world) == "b"
        assert (await status(world, "a"))["message"] == "another backup goes first"
        world.kube.put(definitions.backup("c", TEMPLATE))
        await passes(backups)
        (pod,) = await workers(world)
        ended(world, pod, RESULT)
        await passes(backups, count=6)
        assert await of(world) == "a", "c has come later"
        assert (await status(world, "a"))["attempt"] == 2
        await killed(world, backups)
        assert await of(world) == "c"


async def test_whoever_waits_has_a_turn_also_where_the_operator_is_another_one(world: World) -> None:
    for name in ("a", "b"):
        world.kube.put(definitions.backup(name, TEMPLATE))
    async with running(world) as (backups, _):
        await passes(backups)
        (pod,) = await workers(world)
        ended(world, pod, "", "Failed")
        await passes(Backups(world.say, backups.view, world.kube, LoopClock()), count=6)
        assert await of(world) == "b"


async def test_who_waits_for_a_node_that_is_away_is_let_nobody_wait_for(world: World) -> None:
    world.kube.put(definitions.backup("a", TEMPLATE))
    world.kube.put(definitions.backup("b", {**TEMPLATE, "node": "n9"}))
    async with running(world) as (backups, _):
        await passes(backups)
        await killed(world, backups)
        assert await of(world) == "a"
        assert (await status(world, "a"))["attempt"] == 2


async def test_one_whose_pod_had_no_time_left_is_not_tried_again(world: World) -> None:
    """Its schedule asks for another one, after those that wait."""
    world.kube.put(definitions.backup("a", TEMPLATE))
    async with running(world) as (backups, _):
        await passes(backups)
        await killed(world, backups, reason="DeadlineExceeded")
        found = await status(world, "a")
        assert (found["phase"], found["attempt"]) == ("Failed", 1)
        assert "was not done after 6 h" in found["message"]
        assert await workers(world) == []


async def test_a_pod_that_is_not_seen_yet_gives_way_to_nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two would work at once: the live copy of the pods is behind that of the Backups."""
    for name in ("a", "b"):
        world.kube.put(definitions.backup(name, TEMPLATE))
    async with running(world) as (backups, _):
        await passes(backups)
        monkeypatch.setattr(operator, "_pods", lambda _: [])
        await backups.reconcile()
        assert await of(world) == "a"
        assert (await status(world, "a")) == {**(await status(world, "a")), "phase": "Running", "message": ""}


async def test_archives_that_could_not_be_removed_let_a_backup_go_first(world: World) -> None:
    """Of a server that hangs, each of them takes minutes, and is tried again each hour."""
    for number in range(3):
        world.kube.put(unwanted(f"a{number}"))
    world.kube.put(definitions.backup("b", TEMPLATE))
    async with running(world) as (backups, _):
        await passes(backups)
        assert await of(world) == "b"
        (pod,) = await workers(world)
        ended(world, pod, RESULT)
        await passes(backups)
        assert await of(world) == "a0"


def unwanted(name: str) -> Object:
    found = definitions.backup(name, TEMPLATE)
    found["spec"]["state"] = definitions.REMOVED
    found["metadata"]["creationTimestamp"] = "2025-11-26T00:00:00Z"
    status = {"phase": "NotRemoved", "node": "n2", "attempt": 1, "started": stamp(BEGAN - 2 * AGAIN_SECONDS)}
    return {**found, "status": {**RESULT, **status}}
