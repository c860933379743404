"""Labels are written under the version that was decided on, and a heartbeat that came first wakes nobody: then the
controller looks again by itself."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from autarky.control.control_nodes.decide.observed import Record
from autarky.control.control_nodes.operator import record
from autarky.control.control_nodes.operator.roles import LOOK_SECONDS
from autarky.errors import Conflict
from autarky.render.values import CONTROL_PLANE_REQUESTED
from unit.control.control_nodes.test_labelled_node import Scene

pytestmark = pytest.mark.looptime


async def test_a_label_that_could_not_be_restored_is_soon_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path)
    await record.remember(scene.kube, "n2", Record("of a Node that was deleted"))

    async def refused(*_: Any, **__: Any) -> Any:
        raise Conflict("the object has been modified")

    async with scene.watched():
        await asyncio.sleep(1)
        monkeypatch.setattr(type(scene.kube), "patch", refused)
        assert await scene.control_nodes.reconcile() == LOOK_SECONDS
        monkeypatch.undo()
        await scene.control_nodes.reconcile()
    assert CONTROL_PLANE_REQUESTED in (await scene.metadata())["labels"]
