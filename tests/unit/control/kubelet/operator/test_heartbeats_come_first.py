"""A Node is written under the version that was decided on, and a heartbeat that came first wakes nobody: then the
controller looks again by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from autarky.control.kubelet.decide.hosted_report import TURN
from autarky.control.kubelet.decide.hosted_report import State as OfHosted
from autarky.control.kubelet.decide.report import State
from autarky.control.kubelet.operator.kubelets import LOOK_SECONDS
from unit.control.kubelet.operator.kubelets_scene import Scene, watched
from unit.control.kubelet.operator.test_hosted_kubelets_turns import Hosted

pytestmark = pytest.mark.looptime


@pytest.fixture
async def scene() -> AsyncIterator[Hosted]:
    async with watched(Hosted()) as scene:
        assert isinstance(scene, Hosted)
        yield scene


def beats_first(scene: Scene, name: str) -> None:
    """Its kubelet writes right before the next write of somebody else, once."""

    async def beat() -> None:
        scene.kube.before.clear()
        live = await scene.live(name)
        beating = [{**one, "lastHeartbeatTime": "2026-11-21T10:05:00Z"} for one in live["status"]["conditions"]]
        scene.kube.put({**live, "status": {**live["status"], "conditions": beating}})

    scene.kube.before[name] = beat


async def test_a_cordon_that_could_not_be_taken_away_is_soon_tried_again() -> None:
    async with watched(Scene()) as scene:
        await scene.passes()
        assert await scene.is_cordoned("w1") == (True, True)
        await scene.reports("w1", State.REFUSED)
        await scene.wants(pools="x")
        await asyncio.sleep(1)
        beats_first(scene, "w1")
        scene.kubelets.begin_pass()
        assert await scene.kubelets.reconcile() == LOOK_SECONDS
        assert await scene.is_cordoned("w1") == (True, True)
        await scene.passes()
        assert await scene.is_cordoned("w1") == (False, False)
        assert await scene.kubelets.reconcile() is None


async def test_a_turn_that_could_not_be_taken_back_is_soon_tried_again(scene: Hosted) -> None:
    await scene.says("w1", OfHosted.WAITING)
    await scene.passes(2)
    assert await scene.turns() == {"w1": scene.uids["w1"]}
    await scene.wants(selfHosted="2-4")
    await asyncio.sleep(1)
    beats_first(scene, "w1")
    await scene.kubelets.reconcile()
    assert await scene.hosted.reconcile() == LOOK_SECONDS
    assert await scene.turns() == {"w1": scene.uids["w1"]}
    await scene.passes()
    assert await scene.turns() == {}
    await scene.kubelets.reconcile()
    assert await scene.hosted.reconcile() is None


async def test_a_turn_that_could_not_be_given_is_soon_tried_again_also_where_no_clock_runs_for_it(
    scene: Hosted,
) -> None:
    """It has had one for this pod, which has ended, and somebody has removed it."""
    await scene.says("w1", OfHosted.WAITING)
    await scene.passes(2)
    await scene.says("w1", OfHosted.IN_FORCE)
    await scene.passes(2)
    await scene.annotate("w1", {TURN: None})
    await scene.says("w1", OfHosted.WAITING)
    await asyncio.sleep(1)
    await scene.kubelets.reconcile()
    beats_first(scene, "w1")
    assert await scene.hosted.reconcile() == LOOK_SECONDS
    assert await scene.turns() == {}
    await scene.passes()
    assert await scene.turns() == {"w1": scene.uids["w1"]}
