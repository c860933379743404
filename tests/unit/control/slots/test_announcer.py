"""What the agent tells on its Node: when it changes, when somebody else has changed it, and never else."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from autarky import places
from autarky.control.base.pending_events import MOST_EVENTS, Happened, PendingEvents
from autarky.control.base.reconciler import Reconciler
from autarky.control.slots.decide.report import ANNOTATION, Slots, read
from autarky.control.slots.node import announce
from autarky.control.slots.node.announce import Announcer
from autarky.errors import ApiError
from fakes.clock import LoopClock
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


def announcer_of(kube: Counting, reported: list[tuple[str, ...]], file: Path) -> Announcer:
    def tell(*words: str) -> None:
        reported.append(words)

    return Announcer("n1", kube, Api(kube), LoopClock(), tell, PendingEvents(tell, file))  # type: ignore[arg-type]


@pytest.fixture
async def scene(tmp_path):
    Counting.patches = 0
    kube, reported = Counting(), list[tuple[str, ...]]()
    kube.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "u1", "resourceVersion": "1"}})
    announcer = announcer_of(kube, reported, tmp_path / "pending.json")
    running = asyncio.create_task(Reconciler(announcer, announcer.clock, print).run())
    yield announcer, kube, reported
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
async def test_what_somebody_else_has_written_is_corrected(scene):
    announcer, kube, _ = scene
    announcer.wants(2, SLOTS)
    await asyncio.sleep(1)
    kube.put({**kube.node, "metadata": {**kube.node["metadata"], "annotations": {ANNOTATION: "{}"}}})
    announcer.changed.set()
    await asyncio.sleep(1)
    assert read(kube.node)["level"] == 2


@pytest.mark.looptime
async def test_an_api_that_does_not_answer_is_tried_again(scene):
    announcer, kube, reported = scene
    kube.set_outage("connection refused")
    announcer.wants(2, SLOTS)
    await asyncio.sleep(12)
    assert reported
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
    assert first_at < second_at, "of when it happened, not of when it could be reported"


@pytest.mark.looptime
async def test_an_annotation_that_is_refused_holds_up_no_event_and_an_event_that_is_refused_no_other(
    scene, monkeypatch
):
    announcer, kube, reported = scene

    async def refuses(*_args, **_options):
        raise ApiError(403, "Forbidden", "a policy says no")

    async def create(obj):
        if obj["reason"] == "Odd":
            raise ApiError(422, "Invalid", "not like this")
        return await FakeKube.create(kube, obj)

    monkeypatch.setattr(kube, "patch", refuses)
    monkeypatch.setattr(kube, "create", create)
    announcer.wants(2, SLOTS)
    announcer.happened("Odd", "cannot be reported")
    announcer.happened("Activated", "can be reported")
    await asyncio.sleep(1)
    assert [event["message"] for event in await kube.list("v1", "Event")] == ["can be reported"]
    said = " ".join(sentence for _, sentence in reported)
    assert "a policy says no" in said
    assert "not like this" in said


@pytest.mark.looptime
async def test_of_a_long_outage_the_latest_is_told(scene):
    announcer, kube, _ = scene
    kube.set_outage("connection refused")
    for number in range(2 * MOST_EVENTS):
        announcer.happened("StandbyActivated", f"the {number}th")
        await asyncio.sleep(1)
    kube.set_outage(None)
    await asyncio.sleep(12)
    reported = [message for *_, message in await events_of(kube)]
    assert reported == [f"the {number}th" for number in range(MOST_EVENTS, 2 * MOST_EVENTS)]


@pytest.mark.looptime
async def test_what_one_agent_could_not_tell_the_next_one_tells_once(scene, tmp_path):
    first, kube, reported = scene
    kube.set_outage("connection refused")
    first.happened("LeaseFreed", "kube-scheduler: it died")
    first.happened("StandbyActivated", "kube-apiserver: it is absent")
    await asyncio.sleep(1)
    kube.set_outage(None)
    following = announcer_of(kube, reported, tmp_path / "pending.json")
    await tell_for_a_while(following)
    messages = ["kube-apiserver: it is absent", "kube-scheduler: it died"]
    assert sorted(message for *_, message in await events_of(kube)) == messages
    third = announcer_of(kube, reported, tmp_path / "pending.json")
    assert third.pending.first is None


async def tell_for_a_while(announcer: Announcer) -> None:
    announcer.changed.set()
    running = asyncio.create_task(Reconciler(announcer, announcer.clock, print).run())
    await asyncio.sleep(1)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("content", ["", "{", "[1]", '[{"reason": "x"}]', '{"a": 1}', "null"])
def test_a_file_of_no_use_is_none(tmp_path, content):
    file = tmp_path / "pending.json"
    file.write_text(content)
    assert PendingEvents(lambda *_: None, file).first is None


def test_a_disk_that_takes_nothing_down_loses_the_file_only(tmp_path):
    reported = []
    (tmp_path / "file").write_text("")
    pending = PendingEvents(lambda *words: reported.append(words), tmp_path / "file" / "pending.json")
    one = Happened("StandbyActivated", "kube-apiserver: it is absent", 1.0)
    pending.append(one)
    assert pending.first is one
    assert reported


def test_a_standby_is_told_with_its_version_and_with_what_it_emulates(tmp_path, monkeypatch):
    monkeypatch.setattr(places, "STANDBY", str(tmp_path))
    command = ["kube-scheduler", "--emulated-version=1.36"]
    for name, words, told in (("new", command, ("v1.37.1", "1.36")), ("plain", command[:1], ("v1.37.1", ""))):
        container = {"name": "kube-scheduler", "image": "registry.k8s.io/kube-scheduler:v1.37.1", "command": words}
        directory = tmp_path / "kube-scheduler" / name
        directory.mkdir(parents=True)
        (directory / "pod.json").write_text(json.dumps({"spec": {"containers": [container]}}))
        current = tmp_path / "kube-scheduler" / "current"
        current.unlink(missing_ok=True)
        current.symlink_to(name)
        assert announce.current_version("kube-scheduler") == told
    assert announce.current_version("kube-apiserver") == ("", "")
