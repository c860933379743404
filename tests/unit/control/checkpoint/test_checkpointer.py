"""The checkpointer's round: what it says of a pod that cannot become a standby, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autarky import places
from autarky.clock import SystemClock
from autarky.control.checkpoint.node.checkpointer import Checkpointer
from autarky.control.slots.decide.pivot import Health, Slot
from autarky.ports import Object
from fakes.kube import FakeKube
from unit.render.checkpoints import SCHEDULER, a_pod

START = "2026-11-21T09:00:00Z"
CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}


class Node:
    """The live copies of the agent, of which the checkpointer asks for one pod."""

    def __init__(self, pod: Object) -> None:
        self.pod = pod

    def hosted_pod(self, _component: str) -> Object:
        return self.pod

    def version_unstarted(self, _pod: Object) -> int | None:
        return 1


class NoImages:
    def have(self, _owner: str, _images: object) -> None:
        return None


def running(pod: Object) -> Object:
    state = {"name": SCHEDULER, "restartCount": 0, "state": {"running": {"startedAt": START}}}
    return {**pod, "status": {"startTime": START, "containerStatuses": [state]}}


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(places, "STANDBY", str(tmp_path))
    monkeypatch.setattr(places, "MANIFESTS", str(tmp_path))
    (tmp_path / SCHEDULER).mkdir()
    return tmp_path


async def test_a_pod_that_cannot_be_static_is_told_with_rule_and_remedy_and_nothing_else_happens(disk: Path) -> None:
    said: list[str] = []
    node = Node(running(a_pod(volumes=[CLAIM])))

    def tell(_about: str, text: str) -> None:
        said.append(text)

    events: list[tuple[str, str]] = []
    kube: Any = FakeKube()
    api: Any = node
    images: Any = NoImages()
    reported: Any = events.append
    checkpointer = Checkpointer(SCHEDULER, kube, api, SystemClock(), images, tell, lambda *event: reported(event))
    for _ in range(2):
        await checkpointer.reconcile(Slot.HOSTED, Health.READY, etcd_up=True)
    assert "spec.volumes[data].persistentVolumeClaim" in said[-1]
    assert "to go on: use a hostPath" in said[-1]
    assert "to go on: use a hostPath" in checkpointer.refused
    ((reason, message),) = events
    assert reason == "CheckpointRefused"
    assert message == f"{SCHEDULER}: {said[-1]}"
    assert list((disk / SCHEDULER).iterdir()) == []
