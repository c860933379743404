from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from autarky.errors import ApiError, AutarkyError, Unreachable
from autarky.kube import Listing, Reflector
from autarky.kube.reflector import FIRST_PAUSE, LONGEST_PAUSE, WATCH_SECONDS
from autarky.model.patience import WATCH_IDLE
from autarky.ports import Object, WatchEvent
from fakes.clock import LoopClock
from fakes.kube import FakeKube

pytestmark = pytest.mark.looptime

GONE = ApiError(410, "Expired", "too old resource version")


def config_map(name: str, **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data}


@dataclass
class Runs:
    """Starts reflectors, and ends them with the test."""

    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self, kube: FakeKube, accepts: Callable[[Object], bool] = lambda _: True) -> Reflector:
        reflector = Reflector(
            kube, LoopClock(), "v1", "ConfigMap", namespace="default", accepts=accepts, jitter=lambda: 1.0
        )
        self.tasks.append(asyncio.create_task(reflector.run(), name="reflector"))
        return reflector


@pytest.fixture
async def runs() -> AsyncIterator[Runs]:
    runs = Runs()
    yield runs
    for task in runs.tasks:
        task.cancel()
    await asyncio.gather(*runs.tasks, return_exceptions=True)


@dataclass(slots=True)
class ScriptedKube(FakeKube):
    """Lists nothing, at version 100, and watches as the script says: versions of bookmarks, then an error or
    the end. The last entry is for all further watches. It notes the time of each call."""

    script: list[Iterable[int | AutarkyError]] = field(default_factory=list)
    lists: list[float] = field(default_factory=list)
    watches: list[tuple[float, str | None]] = field(default_factory=list)

    async def list_at(self, api_version: str, kind: str, **_: object) -> Listing:
        self.lists.append(asyncio.get_running_loop().time())
        return Listing([], "100")

    async def watch(
        self, api_version: str, kind: str, *, resource_version: str | None = None, **_: object
    ) -> AsyncGenerator[WatchEvent, None]:
        self.watches.append((asyncio.get_running_loop().time(), resource_version))
        for entry in self.script.pop(0) if len(self.script) > 1 else self.script[0]:
            if isinstance(entry, AutarkyError):
                raise entry
            yield WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": str(entry)}})


def pauses(times: list[float]) -> list[float]:
    return [round(later - earlier, 3) for earlier, later in pairwise(times)]


# --- while all is well -----------------------------------------------------------------------------------


async def test_before_the_first_list_nothing_is_known(runs: Runs) -> None:
    reflector = runs.start(FakeKube())
    assert not reflector.synced
    assert reflector.age == float("inf")
    assert dict(reflector.items) == {}


async def test_the_copy_follows_the_collection(runs: Runs) -> None:
    kube = FakeKube()
    await kube.create(config_map("a"))
    reflector = runs.start(kube)
    await asyncio.sleep(1)
    assert set(reflector.items) == {("default", "a")}
    await kube.create(config_map("b"))
    await kube.patch("v1", "ConfigMap", "b", {"data": {"colour": "red"}}, namespace="default")
    await kube.delete("v1", "ConfigMap", "a", "default")
    await asyncio.sleep(1)
    assert set(reflector.items) == {("default", "b")}
    assert reflector.items["default", "b"]["data"] == {"colour": "red"}


async def test_every_change_is_announced_and_nothing_else_is(runs: Runs) -> None:
    kube = FakeKube()
    announced = 0

    def announce() -> None:
        nonlocal announced
        announced += 1

    runs.start(kube).on_change = announce
    await asyncio.sleep(1)
    assert announced == 1, "the first list is a change"
    await kube.create(config_map("a"))
    await kube.create({**config_map("x"), "metadata": {"name": "x", "namespace": "kube-system"}})
    await asyncio.sleep(1000)
    assert announced == 2


async def test_a_watch_that_ends_at_its_time_goes_on_without_a_new_list(runs: Runs) -> None:
    kube = ScriptedKube(script=[[105], [110, Unreachable("cut")], [111]])
    runs.start(kube)
    await asyncio.sleep(1)
    assert [version for _, version in kube.watches][:3] == ["100", "105", "110"]
    assert len(kube.lists) == 1


async def test_what_is_not_accepted_counts_as_absent_whether_it_was_listed_or_came_later(runs: Runs) -> None:
    kube = FakeKube()
    for name, colour in (("listed", "odd"), ("well", "red"), ("turns", "red")):
        await kube.create(config_map(name, colour=colour))
    reflector = runs.start(kube, accepts=lambda obj: obj["data"]["colour"] != "odd")
    await asyncio.sleep(1)
    assert {name for _, name in reflector.items} == {"well", "turns"}
    assert {name for _, name in reflector.refused} == {"listed"}
    await kube.create(config_map("watched", colour="odd"))
    await kube.patch("v1", "ConfigMap", "turns", {"data": {"colour": "odd"}}, namespace="default")
    await asyncio.sleep(1)
    assert {name for _, name in reflector.items} == {"well"}
    assert {name for _, name in reflector.refused} == {"listed", "watched", "turns"}
    await kube.patch("v1", "ConfigMap", "turns", {"data": {"colour": "red"}}, namespace="default")
    await kube.delete("v1", "ConfigMap", "watched", "default")
    await asyncio.sleep(1)
    assert {name for _, name in reflector.items} == {"well", "turns"}
    assert {name for _, name in reflector.refused} == {"listed"}


async def test_a_quiet_collection_stays_young(runs: Runs) -> None:
    reflector = runs.start(FakeKube())
    await asyncio.sleep(3000)
    assert reflector.age <= WATCH_SECONDS
    assert reflector.error is None


async def test_a_quiet_watch_ends_before_its_silence_counts_as_a_fault() -> None:
    assert WATCH_SECONDS < WATCH_IDLE


# --- outages ---------------------------------------------------------------------------------------------


async def test_an_outage_leaves_the_copy_and_its_age_grows(runs: Runs) -> None:
    kube = FakeKube()
    await kube.create(config_map("a"))
    reflector = runs.start(kube)
    await asyncio.sleep(1)
    kube.set_outage("the cable is cut")
    await asyncio.sleep(100)
    assert set(reflector.items) == {("default", "a")}
    assert reflector.error == "the cable is cut"
    assert reflector.age == pytest.approx(100, abs=1.5)


async def test_after_an_outage_the_copy_catches_up(runs: Runs) -> None:
    kube = FakeKube()
    await kube.create(config_map("a"))
    reflector = runs.start(kube)
    await asyncio.sleep(1)
    kube.set_outage("the cable is cut")
    await asyncio.sleep(100)
    kube.put(config_map("b"))
    kube.set_outage(None)
    await asyncio.sleep(LONGEST_PAUSE + 0.1)
    assert set(reflector.items) == {("default", "a"), ("default", "b")}
    assert reflector.error is None
    assert reflector.age < LONGEST_PAUSE


async def test_an_outage_at_the_start_is_waited_out(runs: Runs) -> None:
    kube = FakeKube(outage="not up yet")
    reflector = runs.start(kube)
    await asyncio.sleep(50)
    assert not reflector.synced
    kube.set_outage(None)
    await asyncio.sleep(LONGEST_PAUSE + 0.1)
    assert reflector.synced


async def test_pauses_grow_to_their_limit(runs: Runs) -> None:
    kube = ScriptedKube(script=[[Unreachable("down")]])
    runs.start(kube)
    await asyncio.sleep(60)
    found = pauses([when for when, _ in kube.watches])
    assert found[:5] == [0.2, 0.4, 0.8, 1.6, 3.2]
    assert set(found[5:]) == {LONGEST_PAUSE}


async def test_a_sign_of_life_makes_the_next_pause_short_again(runs: Runs) -> None:
    kube = ScriptedKube(script=[[Unreachable("down")]] * 6 + [[120, Unreachable("down")], [Unreachable("down")]])
    runs.start(kube)
    await asyncio.sleep(60)
    assert pauses([when for when, _ in kube.watches])[6] == FIRST_PAUSE


async def test_an_error_of_the_api_is_an_outage_too(runs: Runs) -> None:
    kube = ScriptedKube(script=[[ApiError(403, "Forbidden", "no")], [105]])
    reflector = runs.start(kube)
    await asyncio.sleep(0.1)
    assert reflector.error == "403 Forbidden: no"
    await asyncio.sleep(0.2)
    assert reflector.error is None


# --- versions that are forgotten -------------------------------------------------------------------------


async def test_a_forgotten_version_is_listed_again(runs: Runs) -> None:
    kube = ScriptedKube(script=[[105, GONE], [106]])
    runs.start(kube)
    await asyncio.sleep(0.5)
    assert len(kube.lists) == 2
    assert [version for _, version in kube.watches][:2] == ["100", "100"]


async def test_what_vanished_while_the_version_was_forgotten_vanishes_from_the_copy(runs: Runs) -> None:
    kube = FakeKube()
    await kube.create(config_map("a"))
    reflector = runs.start(kube)
    await asyncio.sleep(1)
    kube.set_outage("down")
    await asyncio.sleep(10)
    kube._history.clear()
    kube._objects.pop(("v1", "ConfigMap", "default", "a"))
    reflector._version = "1"
    kube.set_outage(None)
    await asyncio.sleep(LONGEST_PAUSE + 1)
    assert dict(reflector.items) == {}


async def test_a_version_that_is_forgotten_at_once_does_not_make_a_storm(runs: Runs) -> None:
    kube = ScriptedKube(script=[[GONE]])
    runs.start(kube)
    await asyncio.sleep(60)
    assert len(kube.lists) < 20


async def test_a_server_that_ends_each_watch_at_once_is_not_asked_in_a_storm(runs: Runs) -> None:
    kube = ScriptedKube(script=[[100]])
    runs.start(kube)
    await asyncio.sleep(60)
    assert len(kube.watches) < 20


# --- the end ---------------------------------------------------------------------------------------------


async def test_what_nobody_has_foreseen_is_raised_and_all_is_listed_again_by_the_next_run(runs: Runs) -> None:
    """The event in which it came may have been lost."""
    kube, odd = FakeKube(), True

    def accepts(obj: Object) -> bool:
        if odd and obj["metadata"]["name"] == "odd":
            raise RecursionError("maximum recursion depth exceeded")
        return True

    reflector = runs.start(kube, accepts)
    await kube.create(config_map("a"))
    await asyncio.sleep(1)
    await kube.create(config_map("odd"))
    await asyncio.sleep(1)
    with pytest.raises(RecursionError):
        await runs.tasks[0]
    assert reflector.error == "RecursionError: maximum recursion depth exceeded"
    assert set(reflector.items) == {("default", "a")}
    with pytest.raises(RecursionError):
        async with asyncio.timeout(60):
            await reflector.run()
    assert reflector.error is not None, "the list has begun, and is not complete"
    odd = False
    runs.tasks.append(asyncio.create_task(reflector.run()))
    await asyncio.sleep(1)
    assert set(reflector.items) == {("default", "a"), ("default", "odd")}
    assert reflector.error is None


async def test_cancelling_ends_it(runs: Runs) -> None:
    runs.start(FakeKube())
    await asyncio.sleep(1)
    runs.tasks[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await runs.tasks[0]
