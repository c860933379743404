"""Leases of the dead are freed once per boot, and no others."""

from __future__ import annotations

import asyncio
import socket
from datetime import UTC, datetime, timedelta

import pytest

from autarky.agents.node import slots_on_disk
from autarky.agents.node.undertaker import Undertaker
from autarky.decide.dead_leases import Boot
from autarky.errors import Unreachable
from fakes.kube import FakeKube
from unit.agents.disks import HandClock

NAME = "kube-scheduler"
BEGAN = datetime.now(UTC)


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
    events: list[tuple[str, ...]] = []

    def report(*event: str) -> None:
        events.append(event)

    await Undertaker({NAME: kube}, HandClock(), lambda sentence, **_: said.append(sentence), report).run()
    live = await kube.get("coordination.k8s.io/v1", "Lease", NAME, "kube-system")
    assert live is not None
    holder: str = live["spec"]["holderIdentity"]
    assert bool(said) == (holder == "")
    assert events == [("LeaseFreed", f"{NAME}: {sentence}") for sentence in said]
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


async def test_that_it_was_done_is_written_down_once_the_disk_takes_it(
    remembered: list[Boot], monkeypatch: pytest.MonkeyPatch
) -> None:
    full = [OSError(28, "No space left on device")]

    def remember(boot: Boot) -> None:
        if full:
            raise full.pop()
        remembered.append(boot)

    monkeypatch.setattr(slots_on_disk, "remember_boot", remember)
    said: list[str] = []
    await Undertaker({}, HandClock(), lambda sentence, **_: said.append(sentence), print).run()
    assert len(remembered) == 1
    assert "No space left" in said[0]


class Silent(FakeKube):
    """Answers every other request."""

    asked = 0

    async def get(self, *what: str) -> dict | None:
        self.asked += 1
        if self.asked % 2:
            raise Unreachable("no answer")
        return await super().get(*what)


async def test_a_lease_that_is_seen_now_and_then_only_is_not_silent(remembered: list[Boot]) -> None:
    kube, clock = Silent(), HandClock()
    await kube.create(lease(f"{socket.gethostname()}_x", BEGAN - timedelta(minutes=1)))
    acting = asyncio.create_task(Undertaker({NAME: kube}, clock, lambda *_, **__: None, print).run())
    for _ in range(1000):
        await asyncio.sleep(0)
    acting.cancel()
    assert clock.now > 60
    assert remembered == []
