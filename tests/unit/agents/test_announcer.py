"""What the agent tells on its Node: when it changes, when somebody else has changed it, and never else."""

from __future__ import annotations

import asyncio

import pytest

from autarky.agents.node.announce import MOST_EVENTS, Announcer
from autarky.decide.node_slots import ANNOTATION, Slots, read
from fakes.kube import FakeKube

SLOTS = {"kube-apiserver": Slots("hosted")}


class Api:
    """The live copy of the Node, as fresh as can be."""

    def __init__(self, kube: Counting) -> None:
        self.kube = kube

    @property
    def own_node(self):
        return self.kube.node


class Counting(FakeKube):
    patches = 0

    @property
    def node(self):
        return self._objects.get(("v1", "Node", None, "n1"))

    async def patch(self, *args, **options):
        type(self).patches += 1
        return await super().patch(*args, **options)


class LoopClock:
    def time(self) -> float:
        return 1_800_000_000 + asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@pytest.fixture
async def scene():
    Counting.patches = 0
    kube, told = Counting(), []
    kube.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "u1", "resourceVersion": "1"}})
    announcer = Announcer("n1", kube, Api(kube), LoopClock(), lambda *words: told.append(words))
    running = asyncio.create_task(announcer.run())
    yield announcer, kube, told
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.looptime
async def test_what_changes_is_told_once(scene):
    announcer, kube, _ = scene
    for _ in range(5):
        announcer.wants(2, SLOTS)
        announcer.changed.set()
        await asyncio.sleep(1)
    assert kube.patches == 1
    assert read(kube.node)["slots"]["kube-apiserver"]["slot"] == "hosted"
    announcer.wants(2, {"kube-apiserver": Slots("both")})
    await asyncio.sleep(1)
    assert kube.patches == 2


@pytest.mark.looptime
async def test_what_somebody_else_has_written_is_mended(scene):
    announcer, kube, _ = scene
    announcer.wants(2, SLOTS)
    await asyncio.sleep(1)
    kube.put({**kube.node, "metadata": {**kube.node["metadata"], "annotations": {ANNOTATION: "{}"}}})
    announcer.changed.set()
    await asyncio.sleep(1)
    assert read(kube.node)["level"] == 2


@pytest.mark.looptime
async def test_an_api_that_does_not_answer_is_tried_again(scene):
    announcer, kube, told = scene
    kube.set_outage("connection refused")
    announcer.wants(2, SLOTS)
    await asyncio.sleep(12)
    assert told
    kube.set_outage(None)
    await asyncio.sleep(12)
    assert read(kube.node)["level"] == 2


async def events_of(kube: Counting) -> list[tuple[str, str, str]]:
    found = await kube.list("v1", "Event", namespace="default")
    return sorted((event["firstTimestamp"], event["type"], event["message"]) for event in found)


@pytest.mark.looptime
async def test_what_happens_becomes_an_event_of_that_time_when_the_api_answers_again(scene):
    announcer, kube, _ = scene
    kube.set_outage("connection refused")
    announcer.happened("CheckpointRefused", "kube-apiserver: restart it")
    await asyncio.sleep(60)
    announcer.happened("StandbyActivated", "kube-apiserver: it is absent")
    kube.set_outage(None)
    await asyncio.sleep(12)
    (first_at, *first), (second_at, *second) = await events_of(kube)
    assert first == ["Warning", "kube-apiserver: restart it"]
    assert second == ["Normal", "kube-apiserver: it is absent"]
    assert first_at < second_at, "of when it happened, not of when it could be told"


@pytest.mark.looptime
async def test_of_a_long_outage_the_latest_is_told(scene):
    announcer, kube, _ = scene
    kube.set_outage("connection refused")
    for number in range(2 * MOST_EVENTS):
        announcer.happened("StandbyActivated", f"the {number}th")
        await asyncio.sleep(1)
    kube.set_outage(None)
    await asyncio.sleep(12)
    told = [message for *_, message in await events_of(kube)]
    assert told == [f"the {number}th" for number in range(MOST_EVENTS, 2 * MOST_EVENTS)]
