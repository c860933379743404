"""Leader election in simulated time, on an API that is slow, fails and loses answers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import looptime
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autarky.errors import Conflict, Unreachable
from autarky.kube.elector import LEASE, Elector
from autarky.kube.fenced import Fenced
from autarky.ports import Object
from fakes.clock import BEGAN, LoopClock
from fakes.kube import FakeKube

TERM = 15


@dataclass
class Line:
    """One candidate's line to the API: `fault` is asked at each request for (seconds before, what happens)."""

    api: FakeKube
    fault: Callable[[], tuple[float, str]] = lambda: (0.0, "")

    async def get(self, *where: str) -> Object | None:
        return await self._send(lambda: self.api.get(*where))

    async def create(self, obj: Object) -> Object:
        return await self._send(lambda: self.api.create(obj))

    async def replace(self, obj: Object, *, subresource: str | None = None) -> Object:
        return await self._send(lambda: self.api.replace(obj))

    async def _send(self, request):
        delay, what = self.fault()
        await asyncio.sleep(delay)
        if what == "lost":
            raise Unreachable("the request was lost")
        answer = await request()
        if what == "answer lost":
            raise Unreachable("no answer, it may have been carried out")
        await asyncio.sleep(delay)
        return answer


@dataclass
class Stage:
    """Candidates, and what they do: while one leads it acts again and again, and says when."""

    api: FakeKube = field(default_factory=FakeKube)
    electors: dict[str, Elector] = field(default_factory=dict)
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    acted: list[tuple[float, str]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    pace: float = 0.1

    def enter(self, name: str, fault: Callable[[], tuple[float, str]] = lambda: (0.0, ""), offset: float = 0.0) -> None:
        line: Any = Line(self.api, fault)
        elector = Elector(
            line, LoopClock(BEGAN + offset), "kube-system", "op", name, say=self.said.append, jitter=lambda: 1.5
        )
        self.electors[name] = elector
        self.tasks[name] = asyncio.create_task(elector.run(lambda: self._act(name)), name=name)

    async def _act(self, name: str) -> None:
        while True:
            if self.electors[name].leads:
                self.acted.append((asyncio.get_running_loop().time(), name))
                others = [one for one, elector in self.electors.items() if elector.leads and one != name]
                assert not others, f"{name} and {others} act at once"
            await asyncio.sleep(self.pace)

    async def leave(self, name: str) -> None:
        """A clean stop."""
        self.tasks[name].cancel()
        await asyncio.gather(self.tasks[name], return_exceptions=True)

    async def close(self) -> None:
        for name, task in self.tasks.items():
            if task.done() and not task.cancelled():
                task.result()
            await self.leave(name)

    def leader(self) -> str | None:
        return next((name for name, elector in self.electors.items() if elector.leads), None)

    async def lease(self) -> Object:
        found = await self.api.get(*LEASE, "op", "kube-system")
        assert found is not None
        return found


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    yield stage
    await stage.close()


@pytest.mark.looptime
async def test_one_leads_and_writes_who_it_is(stage):
    stage.enter("a")
    await asyncio.sleep(5)
    stage.enter("b")
    await asyncio.sleep(30)
    assert {name for _, name in stage.acted} == {"a"}
    spec = (await stage.lease())["spec"]
    assert spec["holderIdentity"] == "a"
    assert spec["leaseDurationSeconds"] == TERM
    assert spec["leaseTransitions"] == 0
    assert spec["acquireTime"] < spec["renewTime"]


@pytest.mark.looptime
async def test_a_clean_stop_hands_over_within_a_retry(stage):
    stage.enter("a")
    await asyncio.sleep(5)
    stage.enter("b")
    await asyncio.sleep(5)
    await stage.leave("a")
    assert (await stage.lease())["spec"]["holderIdentity"] == ""
    await asyncio.sleep(3.5)
    assert stage.leader() == "b"
    assert (await stage.lease())["spec"]["leaseTransitions"] == 1


@pytest.mark.looptime
async def test_a_dead_leader_is_waited_out_by_the_watchers_own_clock(stage):
    stage.enter("a", offset=3600)
    await asyncio.sleep(1)
    lease = await stage.lease()
    stage.tasks["a"].cancel()  # and what it would still write is undone, as if its power had gone
    await asyncio.gather(stage.tasks["a"], return_exceptions=True)
    stage.api.put({**await stage.lease(), "spec": lease["spec"]})
    begin = asyncio.get_running_loop().time()
    stage.enter("b", offset=-3600)
    await asyncio.sleep(30)
    first = min(when for when, name in stage.acted if name == "b")
    assert TERM < first - begin < TERM + 4


@pytest.mark.looptime
async def test_a_leader_without_the_api_stops_before_another_can_lead(stage):
    cut: list[str] = []
    stage.enter("a", lambda: (0.0, "lost" if cut else ""))
    await asyncio.sleep(5)
    stage.enter("b")
    await asyncio.sleep(5)
    cut.append("now")
    begin = asyncio.get_running_loop().time()
    await asyncio.sleep(40)
    last_of_a = max(when for when, name in stage.acted if name == "a")
    first_of_b = min(when for when, name in stage.acted if name == "b")
    assert last_of_a - begin <= 10
    assert first_of_b - last_of_a >= 4
    assert "the lease is lost" in stage.said


@pytest.mark.looptime
async def test_a_request_that_hangs_does_not_keep_the_leader_acting(stage):
    slow: list[float] = [0.0]
    stage.enter("a", lambda: (slow[0], ""))
    await asyncio.sleep(5)
    slow[0] = 3600.0
    begin = asyncio.get_running_loop().time()
    await asyncio.sleep(30)
    assert max(when for when, _ in stage.acted) - begin <= 10


@pytest.mark.looptime
async def test_one_request_that_hangs_does_not_cost_the_lease(stage):
    """As by a connection to a server that hangs: the next one is another connection."""
    slow: list[float] = []
    stage.enter("a", lambda: (slow.pop() if slow else 0.0, ""))
    await asyncio.sleep(5)
    stage.enter("b")
    slow.append(3600.0)
    await asyncio.sleep(60)
    assert not slow
    assert {name for _, name in stage.acted} == {"a"}
    assert "the lease is lost" not in stage.said


@pytest.mark.looptime
async def test_the_one_who_lost_it_campaigns_again(stage):
    cut: list[str] = []
    stage.enter("a", lambda: (0.0, "lost" if cut else ""))
    await asyncio.sleep(5)
    cut.append("now")
    await asyncio.sleep(30)
    assert stage.leader() is None
    cut.clear()
    await asyncio.sleep(5)
    assert stage.leader() == "a"


@pytest.mark.looptime
async def test_somebody_who_writes_the_lease_by_hand_ends_the_term(stage):
    stage.enter("a")
    await asyncio.sleep(5)
    lease = await stage.lease()
    stage.api.put({**lease, "spec": {**lease["spec"], "holderIdentity": "by-hand"}})
    await asyncio.sleep(2.5)
    assert stage.leader() is None


@pytest.mark.looptime
async def test_a_touch_of_the_metadata_ends_nothing(stage):
    stage.enter("a")
    await asyncio.sleep(5)
    lease = await stage.lease()
    stage.api.put({**lease, "metadata": {**lease["metadata"], "labels": {"touched": "yes"}}})
    await asyncio.sleep(5)
    assert stage.leader() == "a"
    assert "the lease is lost" not in stage.said


@pytest.mark.looptime
async def test_a_deleted_lease_is_made_again(stage):
    stage.enter("a")
    await asyncio.sleep(5)
    await stage.api.delete(*LEASE, "op", "kube-system")
    await asyncio.sleep(2.5)
    assert "the lease is lost" not in stage.said
    assert (await stage.lease())["spec"]["holderIdentity"] == "a"


@pytest.mark.looptime
async def test_an_error_of_the_leader_is_raised_after_the_lease_was_released():
    api = FakeKube()
    elector = Elector(api, LoopClock(), "kube-system", "op", "a")

    async def fail() -> None:
        await asyncio.sleep(1)
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        await elector.run(fail)
    found = await api.get(*LEASE, "op", "kube-system")
    assert found is not None
    assert found["spec"]["holderIdentity"] == ""
    assert not elector.leads


@pytest.mark.parametrize("seconds", [(10, 10.0, 2.0), (15, 2.0, 2.0), (15, 10.0, 0.0)])
def test_times_that_cannot_be_safe_are_refused(seconds):
    lease, renew, retry = seconds
    with pytest.raises(ValueError, match="must outlast"):
        Elector(
            FakeKube(),
            LoopClock(),
            "kube-system",
            "op",
            "a",
            lease_seconds=lease,
            renew_seconds=renew,
            retry_seconds=retry,
        )


# --- whatever the network does -----------------------------------------------------------------------

FAULTS = ("", "", "", "lost", "answer lost")


async def _play(seed: int, candidates: int) -> Stage:
    """Some candidates for five minutes, each with a network of its own that has good and bad hours; then all is
    well for one minute."""
    chance, stage, well = random.Random(seed), Stage(pace=0.5), [False]  # noqa: S311 # a game

    def line() -> Callable[[], tuple[float, str]]:
        mood = {"bad": False}

        def fault() -> tuple[float, str]:
            if well[0]:
                return 0.0, ""
            if chance.random() < 0.1:
                mood["bad"] = not mood["bad"]
            delay = chance.choice([0.0, 0.1, 3.0, 12.0] if mood["bad"] else [0.0, 0.05])
            return delay, chance.choice(FAULTS) if mood["bad"] else ""

        return fault

    for number in range(candidates):
        stage.enter(f"c{number}", line(), offset=chance.uniform(-1000, 1000))
    for _ in range(20):
        await asyncio.sleep(chance.uniform(1, 20))
        if chance.random() < 0.2:
            name = chance.choice(list(stage.tasks))
            await stage.leave(name)
            stage.enter(name, line())
    well[0] = True
    await asyncio.sleep(60)
    return stage


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 3))
@example(7, 3)  # ends a renewal a moment before the lease does
def test_two_never_act_at_once_and_in_the_end_somebody_does(seed, candidates):
    loop = looptime.patch_event_loop(asyncio.SelectorEventLoop(), start=0)

    async def play() -> None:
        stage = await _play(seed, candidates)
        assert stage.leader() is not None
        await stage.close()

    try:
        loop.run_until_complete(play())
    finally:
        loop.close()


# --- the fence ---------------------------------------------------------------------------------------


async def test_without_the_lease_nothing_is_written_and_everything_can_be_read():
    api, may = FakeKube(), [True]
    kube = Fenced(api, lambda: may[0])
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}}
    created = await kube.create(obj)
    may[0] = False
    writes = [
        lambda: kube.create({**obj, "metadata": {"name": "b", "namespace": "default"}}),
        lambda: kube.apply({**obj, "data": {"a": "1"}}, manager="m"),
        lambda: kube.replace({**created, "data": {"a": "1"}}),
        lambda: kube.patch("v1", "ConfigMap", "a", {"data": {"a": "1"}}, namespace="default"),
        lambda: kube.delete("v1", "ConfigMap", "a", "default"),
    ]
    for write in writes:
        with pytest.raises(Conflict, match="does not hold the lease"):
            await write()
    assert await kube.get("v1", "ConfigMap", "a", "default") == created
    assert [item["metadata"]["name"] for item in await kube.list("v1", "ConfigMap", namespace="default")] == ["a"]
    assert await kube.healthy() is None
