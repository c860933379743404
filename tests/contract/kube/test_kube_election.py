"""Leader election on the fake and on a real API server, whose own checks of a Lease must accept what we write."""

from __future__ import annotations

import asyncio
import time

from autarky.clock import SystemClock
from autarky.kube import Lister
from autarky.kube.elector import LEASE, Elector


def elector(kube: Lister, namespace: str, identity: str) -> Elector:
    """Quick ones: a short lease, which a busy machine renews in time all the same."""
    return Elector(
        kube, SystemClock(), namespace, "op", identity, lease_seconds=6, renew_seconds=4.5, retry_seconds=0.2
    )


async def leading(one: Elector) -> None:
    async with asyncio.timeout(60):
        while not one.leads:  # noqa: ASYNC110 # nobody tells
            await asyncio.sleep(0.02)


async def forever() -> None:
    await asyncio.Event().wait()


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_the_lease_changes_hands_when_it_is_released(kube: Lister, namespace: str) -> None:
    first, second = elector(kube, namespace, "first"), elector(kube, namespace, "second")
    holding = asyncio.create_task(first.run(forever))
    await leading(first)
    waiting = asyncio.create_task(second.run(forever))
    await asyncio.sleep(6.5)
    assert first.leads, "it is renewed beyond its own duration"
    assert not second.leads
    await ended(holding)
    await leading(second)
    lease = await kube.get(*LEASE, "op", namespace)
    assert lease is not None
    assert lease["spec"]["holderIdentity"] == "second"
    assert lease["spec"]["leaseTransitions"] == 1
    await ended(waiting)


async def test_a_lease_whose_holder_is_silent_is_taken_after_its_time(kube: Lister, namespace: str) -> None:
    stamp = "2001-01-01T00:00:00.000000Z"
    dead = {"holderIdentity": "dead", "leaseDurationSeconds": 2, "acquireTime": stamp, "renewTime": stamp}
    await kube.create(
        {"apiVersion": LEASE[0], "kind": LEASE[1], "metadata": {"name": "op", "namespace": namespace}, "spec": dead}
    )
    one, begin = elector(kube, namespace, "one"), time.monotonic()
    campaign = asyncio.create_task(one.run(forever))
    await leading(one)
    assert time.monotonic() - begin > 2, "its stamps are of another clock and say nothing"
    await ended(campaign)
