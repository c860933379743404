"""`up` is killed right before or right after any of its writes about add-ons: nothing that it has made is forgotten,
and nothing that is wanted is deleted, also where the next run wants something else.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from autarky.control.inventory import manifests
from autarky.render.values import SYSTEM
from unit.phases.test_own_add_ons_applied import Cluster, config, deployment, names, own, up

pytestmark = pytest.mark.looptime

FIRST = (config("stays", a="1"), config("goes"), deployment("goes-too"))
SECOND = (config("stays", a="2"), config("comes"), deployment("comes-too"))
THIRD = (config("comes"), config("other"))


class Killed(BaseException):
    """Nobody catches it."""


class Mortal(Cluster):
    """Dies at the write of that number: before it, or after it."""

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None
        self.after = False

    async def _write(self, write: Any, *args: Any, **options: Any) -> Any:
        if self.left is None or options.get("dry_run"):
            return await write(*args, **options)
        self.left -= 1
        if self.left < 0 and not self.after:
            raise Killed
        done = await write(*args, **options)
        if self.left < 0:
            raise Killed
        return done

    async def apply(self, *args: Any, **options: Any) -> Any:
        return await self._write(super().apply, *args, **options)

    async def create(self, *args: Any, **options: Any) -> Any:
        return await self._write(super().create, *args, **options)

    async def replace(self, *args: Any, **options: Any) -> Any:
        return await self._write(super().replace, *args, **options)

    async def patch(self, *args: Any, **options: Any) -> Any:
        return await self._write(super().patch, *args, **options)

    async def delete(self, *args: Any, **options: Any) -> Any:
        return await self._write(super().delete, *args, **options)


@pytest.mark.parametrize("after", [False, True])
async def test_killed_at_any_write_the_next_run_ends_with_what_it_wants(make_context, notes, after: bool) -> None:
    for number in itertools.count():
        kube = Mortal()
        context = make_context(kube=kube)
        context.own_add_ons = own(*FIRST)
        await up(context, notes)
        kube.left, kube.after = number, after
        context.own_add_ons = own(*SECOND)
        try:
            await up(context, notes)
        except Killed:
            was_killed = True
        else:
            was_killed = False
        kube.left = None
        assert await _is_there(kube) <= await _noted(kube), f"forgotten, at write {number}"
        context.own_add_ons = own(*THIRD)
        await up(context, notes)
        assert await _is_there(kube) == await _noted(kube) == {"comes", "other"}, f"at write {number}"
        if not was_killed:
            break
    assert number > 5, "it was not killed in the middle of anything"


async def _is_there(kube: Mortal) -> set[str]:
    return {*await names(kube), *await names(kube, "Deployment", "apps/v1")}


async def _noted(kube: Mortal) -> set[str]:
    live = await kube.get("v1", "ConfigMap", manifests.NAME, SYSTEM)
    return {entry.name for entry in manifests.entries_in(live) or [] if entry.part == "add-ons"}
