"""What the operator's metrics say of an upgrade, scraped as Prometheus does."""

from __future__ import annotations

import pytest
from prometheus_client import REGISTRY

from autarky.control.upgrade.decide.reported import State
from autarky.control.upgrade.operator import metrics
from autarky.model.components import API_SERVER
from unit.control.upgrade.upgrade_scene import NEW, Scene, until_complete, watched

pytestmark = pytest.mark.looptime


def states() -> dict[str, float]:
    name = "autarky_operator_upgrade_state"
    return {str(state): REGISTRY.get_sample_value(name, {"state": str(state)}) or 0.0 for state in metrics.STATES}


def steps(component: str) -> float:
    return REGISTRY.get_sample_value("autarky_operator_upgrade_steps_total", {"component": component}) or 0.0


async def test_its_state_and_its_steps_are_shown() -> None:
    async with watched(scene := Scene()):
        metrics.observe(lambda: scene.upgrade.report)
        await scene.settles()
        before = steps(API_SERVER)
        assert set(states().values()) == {0.0}
        await scene.wants(NEW)
        await scene.one_pass()
        assert states() == {str(state): float(state is State.UPGRADING) for state in metrics.STATES}
        await until_complete(scene)
        assert set(states().values()) == {0.0}
        assert steps(API_SERVER) == before + 1
