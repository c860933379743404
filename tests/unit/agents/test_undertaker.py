"""Leases of the dead are freed once per boot, and no others."""

from __future__ import annotations

import asyncio
import socket
import time
from datetime import UTC, datetime, timedelta

import pytest

from autarky.agents.node import slots_on_disk
from autarky.agents.node.agent import Undertaker
from autarky.decide.dead_leases import Boot
from fakes.kube import FakeKube

NAME = "kube-scheduler"
BEGAN = datetime.now(UTC)


class RealClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def time(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 20)


def lease(holder: str, renewed: datetime) -> dict:
    stamp = renewed.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": NAME, "namespace": "kube-system"},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": stamp},
    }


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> list[Boot]:
    boots: list[Boot] = []
    monkeypatch.setattr(slots_on_disk, "this_boot", lambda: Boot("this", BEGAN, "the last"))
    monkeypatch.setattr(slots_on_disk, "remember_boot", boots.append)
    return boots


async def holder_after(obj: dict) -> str:
    kube = FakeKube()
    await kube.create(obj)
    said: list[str] = []
    await Undertaker({NAME: kube}, RealClock(), lambda sentence, **_: said.append(sentence)).run()
    live = await kube.get("coordination.k8s.io/v1", "Lease", NAME, "kube-system")
    assert live is not None
    holder: str = live["spec"]["holderIdentity"]
    assert bool(said) == (holder == "")
    return holder


async def test_the_lease_of_a_process_of_the_last_boot_is_freed(remembered: list[Boot]) -> None:
    assert await holder_after(lease(f"{socket.gethostname()}_x", BEGAN - timedelta(minutes=1))) == ""
    assert len(remembered) == 1


async def test_the_lease_of_another_host_is_left_alone(remembered: list[Boot]) -> None:
    assert await holder_after(lease("elsewhere_x", BEGAN - timedelta(minutes=1))) == "elsewhere_x"
    assert len(remembered) == 1


async def test_a_lease_that_is_renewed_in_this_boot_is_left_alone(remembered: list[Boot]) -> None:
    alive = f"{socket.gethostname()}_x"
    assert await holder_after(lease(alive, BEGAN + timedelta(seconds=1))) == alive
