"""The operator's controller through a soak: flags that come and go, what the status says, and who may take over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from autarky.control.common.emulation import EMULATING, minor_text
from autarky.control.drift.decide import applied
from autarky.control.rollout.decide.failures import Record
from autarky.control.rollout.decide.good_revision import revision_of
from autarky.control.rollout.operator.last_good import LastGood
from autarky.control.upgrade.decide import reported
from autarky.control.upgrade.decide.reported import State
from autarky.control.upgrade.decide.steps import ORDER
from autarky.control.upgrade.decide.templates import with_step
from autarky.model.components import API_SERVER, CONTROLLER_MANAGER, SCHEDULER
from autarky.ports import Object
from unit.control.upgrade.upgrade_scene import NEW, OLD, PLANE, Scene, until_complete, watched

pytestmark = pytest.mark.looptime
MINOR = minor_text(OLD)
SECONDS = 50


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    async with watched(scene):
        await scene.settles()
        yield scene


async def asks(scene: Scene, seconds: int = SECONDS) -> None:
    await scene.kube.patch(*PLANE, {"spec": {"version": str(NEW), "upgrade": {"soakSeconds": seconds}}})


async def state(scene: Scene) -> State | None:
    report = reported.read(await scene.plane())
    return None if report is None else report.state


async def until_it_soaks(scene: Scene) -> None:
    for _ in range(60):
        await scene.one_pass()
        assert await drifted(scene) == []
        await scene.settles()
        if await state(scene) is State.SOAKING:
            return
    raise AssertionError(f"{scene.upgrade.unapplied}")


async def until_done(scene: Scene) -> None:
    for _ in range(60):
        await scene.one_pass()
        await scene.settles()
        if not (await scene.plane())["status"].get("upgrade"):
            return
    raise AssertionError(f"it does not end: {scene.upgrade.unapplied}")


async def drifted(scene: Scene) -> list[str]:
    """What would be reported as somebody's edit, or applied by the next `up`."""
    found = {name: applied.drift_of(await scene.live(name)) for name in ORDER}
    return [name for name, comparison in found.items() if comparison is None or comparison.differences]


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_the_binaries_emulate_the_minor_from_before_for_as_long_as_was_asked_for(scene: Scene) -> None:
    await asks(scene)
    await until_it_soaks(scene)
    assert await scene.emulated() == dict.fromkeys(EMULATING, MINOR)
    assert set((await scene.versions()).values()) == {NEW}
    status = (await scene.plane())["status"]
    assert (status["version"], status["upgrade"]["emulates"]) == (str(OLD), MINOR)
    assert status["upgrade"]["soaking"]["version"] == str(NEW)
    began, order = now(), list[dict[str, str]]()
    for _ in range(90):
        await scene.one_pass()
        assert await drifted(scene) == []
        if (found := await scene.emulated()) not in order:
            order.append(found)
        if len(order) == 2 and now() - began < SECONDS:
            raise AssertionError("it was raised too early")
        await scene.settles()
        if not (await scene.plane())["status"].get("upgrade"):
            break
    names = (API_SERVER, CONTROLLER_MANAGER, SCHEDULER)
    assert [set(one) for one in order] == [set(names[n:]) for n in range(len(names) + 1)]
    status = (await scene.plane())["status"]
    assert (status["version"], status["formerVersion"], "upgrade" in status) == (str(NEW), str(OLD), False)
    assert now() - began < SECONDS + 30


async def test_an_operator_that_takes_over_goes_on_with_the_soak(scene: Scene) -> None:
    await asks(scene)
    await until_it_soaks(scene)
    began, counted = now(), 0
    for _ in range(3):
        for _ in range(12):
            await scene.one_pass()
        assert await scene.emulated()
        scene.begins()
        async with watched(scene):
            await scene.settles()
            await scene.one_pass()
        before, counted = counted, int((await scene.plane())["status"]["upgrade"]["soaking"]["seconds"])
        assert counted > before, "what another operator has counted is lost"
    async with watched(scene):
        for _ in range(2 * SECONDS):
            await scene.settles()
            await scene.one_pass()
            if not await scene.emulated():
                break
        else:
            raise AssertionError("it is not raised")
    assert SECONDS <= now() - began < 2 * SECONDS


async def test_an_operator_that_leads_again_counts_no_second_that_another_has_counted(scene: Scene) -> None:
    """The same process: its lease was lost for a while, and it has looked at nothing since."""
    await asks(scene)
    await until_it_soaks(scene)
    began = now()
    first = (scene.view, scene.rollouts, scene.upgrade)
    scene.begins()
    async with watched(scene):
        await scene.settles()
        for _ in range(SECONDS // 2):
            await scene.one_pass()
    scene.view, scene.rollouts, scene.upgrade = first
    scene.upgrade.begin_term()
    for _ in range(SECONDS):
        await scene.settles()
        await scene.one_pass()
        if not await scene.emulated():
            break
    assert now() - began >= SECONDS


async def test_the_time_in_which_something_is_away_does_not_count(scene: Scene) -> None:
    await asks(scene)
    await until_it_soaks(scene)
    live = await scene.live(API_SERVER)
    scene.kube.put({**live, "status": {**live["status"], "numberReady": 0}})
    for _ in range(SECONDS + 20):
        await scene.one_pass()
    assert len(await scene.emulated()) == len(EMULATING)
    assert await state(scene) is State.UPGRADING


async def test_a_soak_of_nothing_raises_it_at_once(scene: Scene) -> None:
    await asks(scene, 86400)
    await until_it_soaks(scene)
    await asks(scene, 0)
    await until_done(scene)
    assert await scene.emulated() == {}
    assert (await scene.plane())["status"]["version"] == str(NEW)


async def test_given_up_while_it_soaks_everything_goes_back_without_a_flag(scene: Scene) -> None:
    await asks(scene)
    await until_it_soaks(scene)
    scene.begins()
    async with watched(scene):
        await scene.settles()
        await scene.wants(OLD)
        await until_complete(scene)
    assert (await scene.emulated(), set((await scene.versions()).values())) == ({}, {OLD})
    assert await drifted(scene) == []
    await asks(scene)
    async with watched(scene):
        await until_it_soaks(scene)
        began = now()
        for _ in range(SECONDS - 10):
            await scene.one_pass()
        assert len(await scene.emulated()) == len(EMULATING), f"the former soak counts: {now() - began}"


async def test_a_flag_that_somebody_has_set_is_refused_and_left_alone_where_nothing_is_to_soak(scene: Scene) -> None:
    live = await scene.live(SCHEDULER)
    live["spec"]["template"]["spec"]["containers"][0]["command"].append(f"--emulated-version={MINOR}")
    scene.kube.put(live)
    await scene.settles()
    await asks(scene)
    for _ in range(3):
        await scene.one_pass()
    report = reported.read(await scene.plane())
    assert report is not None
    assert report.state is State.REFUSED
    assert f"kube-scheduler has --emulated-version={MINOR}, which somebody has set" in report.message
    assert set((await scene.versions()).values()) == {OLD}
    await asks(scene, 0)
    for _ in range(40):
        await scene.one_pass()
    await until_complete(scene)
    assert await scene.emulated() == {SCHEDULER: MINOR}


async def test_a_raise_that_goes_back_stops_the_plan(scene: Scene) -> None:
    await asks(scene, 20)
    await until_it_soaks(scene)
    template: Object = (await scene.live(API_SERVER))["spec"]["template"]
    raised = with_step(template, API_SERVER, NEW, "", flagged=True)
    failed = Record(good=revision_of(template)).with_failure(revision_of(raised), "it did not start", by_skew=False)
    for _ in range(30):
        scene.rollouts.kept[API_SERVER] = LastGood(failed, template)
        await scene.one_pass()
    report = reported.read(await scene.plane())
    assert report is not None
    assert (report.state, report.component) == (State.STOPPED, API_SERVER)
    assert f"that no longer emulates {MINOR} was rolled back: it did not start" in report.message
    assert len(await scene.emulated()) == len(EMULATING)


async def test_paused_it_soaks_and_is_not_raised(scene: Scene) -> None:
    await asks(scene, 20)
    await until_it_soaks(scene)
    await scene.kube.patch(*PLANE, {"spec": {"paused": True}})
    for _ in range(40):
        await scene.one_pass()
    assert await state(scene) is State.PAUSED
    assert len(await scene.emulated()) == len(EMULATING)
    await scene.kube.patch(*PLANE, {"spec": {"paused": None}})
    await until_done(scene)
    assert await scene.emulated() == {}
