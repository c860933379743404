"""Stale leases are freed once per boot, and no others; clocks do not matter."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from autarky.control.base.reconciler import Reconciler
from autarky.control.leadership.decide.leader import Lease
from autarky.control.leadership.decide.stale_leases import Noted
from autarky.control.leadership.node.stale_leases import StaleLeases
from autarky.control.slots.node import on_disk as slots_on_disk
from autarky.errors import Unreachable
from fakes.clock import HandClock
from fakes.kube import FakeKube

NAME = "kube-scheduler"
OWN = f"{socket.gethostname()}_x"


def lease(holder: str, renewed: str = "2026-11-21T12:00:00.000000Z") -> dict:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": NAME, "namespace": "kube-system"},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed},
    }


@pytest.fixture(autouse=True)
def boots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots_on_disk, "THIS_BOOT", tmp_path / "boot")
    monkeypatch.setattr(slots_on_disk, "HOLDERS", tmp_path / "holders")
    booted("this")


def booted(boot: str, at: float = 1000.0) -> None:
    slots_on_disk.THIS_BOOT.write_text(f"{boot} {at}\n")


async def holder_after(obj: dict) -> str:
    kube = FakeKube()
    await kube.create(obj)
    said: list[str] = []
    events: list[tuple[str, ...]] = []

    def report(*event: str) -> None:
        events.append(event)

    await a_while(StaleLeases({NAME: kube}, HandClock(), lambda said_, **_: said.append(said_), report, lambda _: None))
    live = await kube.get("coordination.k8s.io/v1", "Lease", NAME, "kube-system")
    assert live is not None
    holder: str = live["spec"]["holderIdentity"]
    assert bool(said) == (holder == "")
    assert events == [("LeaseFreed", f"{NAME}: {sentence}") for sentence in said]
    return holder


async def a_while(stale_leases: StaleLeases) -> None:
    acting = asyncio.create_task(Reconciler(stale_leases, stale_leases.clock, print).run())
    for _ in range(200):
        await asyncio.sleep(0)
    assert not acting.done(), "it never ends"
    acting.cancel()
    await asyncio.gather(acting, return_exceptions=True)


async def note(holder: str) -> None:
    await a_while(StaleLeases({NAME: FakeKube()}, HandClock(), print, print, lambda _: Lease(holder, "", 15)))


@pytest.mark.parametrize("renewed", ["1970-01-01T00:00:00.000000Z", "2126-11-21T12:00:00.000000Z"])
async def test_the_lease_of_a_process_of_the_last_boot_is_freed_whatever_the_clocks_say(renewed: str) -> None:
    await note(OWN)
    booted("next", at=0.0)
    assert await holder_after(lease(OWN, renewed)) == ""


@pytest.mark.parametrize("renewed", ["1970-01-01T00:00:00.000000Z", "2126-11-21T12:00:00.000000Z"])
async def test_a_lease_that_is_held_in_this_boot_is_left_alone_whatever_the_clocks_say(renewed: str) -> None:
    await note(OWN)
    assert await holder_after(lease(OWN, renewed)) == OWN


async def test_who_took_the_lease_after_the_boot_is_left_alone() -> None:
    await note(OWN)
    booted("next")
    successor = f"{socket.gethostname()}_y"
    await note(successor)
    assert await holder_after(lease(successor)) == successor


async def test_a_note_of_the_last_boot_is_not_taken_over_by_this_one() -> None:
    """The API shows the dead holder for a while."""
    await note(OWN)
    booted("next")
    await note(OWN)
    assert slots_on_disk.noted_holders() == {NAME: Noted(OWN, "this")}


async def test_the_lease_of_another_host_is_neither_noted_nor_freed() -> None:
    await note("elsewhere_x")
    booted("next")
    assert slots_on_disk.noted_holders() == {}
    assert await holder_after(lease("elsewhere_x")) == "elsewhere_x"


async def test_a_holder_that_was_never_noted_is_left_alone() -> None:
    assert await holder_after(lease(OWN)) == OWN


async def test_who_holds_a_lease_is_written_down_once_the_disk_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    full, write = [OSError(28, "No space left on device")], slots_on_disk.note_holders

    def refuse_once(holders: dict[str, Noted]) -> None:
        if full:
            raise full.pop()
        write(holders)

    monkeypatch.setattr(slots_on_disk, "note_holders", refuse_once)
    said: list[str] = []
    held = Lease(OWN, "", 15)
    await a_while(
        StaleLeases({NAME: FakeKube()}, HandClock(), lambda said_, **_: said.append(said_), print, lambda _: held)
    )
    assert slots_on_disk.noted_holders() == {NAME: Noted(OWN, "this")}
    assert "No space left" in said[0]


class Silent(FakeKube):
    """Answers every other request."""

    asked = 0

    async def get(self, *what: str) -> dict | None:
        self.asked += 1
        if self.asked % 2:
            raise Unreachable("no answer")
        return await super().get(*what)


async def test_an_api_that_does_not_answer_is_asked_again() -> None:
    await note(OWN)
    booted("next")
    kube = Silent()
    await kube.create(lease(OWN))
    await a_while(StaleLeases({NAME: kube}, HandClock(), lambda *_, **__: None, lambda *_: None, lambda _: None))
    live = await FakeKube.get(kube, "coordination.k8s.io/v1", "Lease", NAME, "kube-system")
    assert live is not None
    assert live["spec"]["holderIdentity"] == ""
