"""The live copies that all controllers of the operator share."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from autarky.control.backup.manifests import definitions
from autarky.control.base.operator_view import View
from autarky.control.etcd.manifests import members
from autarky.render.crds import control_plane_crd
from fakes.clock import LoopClock
from fakes.kube import FakeKube


@dataclass(slots=True)
class CountingKube(FakeKube):
    """watches: how often each collection is watched, by its kind and field selector."""

    watches: Counter[tuple[str, str | None]] = field(default_factory=Counter)

    def watch(self, api_version: str, kind: str, **options: Any) -> Any:
        self.watches[kind, options["fields"]] += 1
        return FakeKube.watch(self, api_version, kind, **options)


@pytest.mark.looptime
async def test_what_several_controllers_read_is_followed_once() -> None:
    kube = CountingKube()
    for definition in (control_plane_crd(), members.crd(), *definitions.objects()):
        kube.put(definition)
    view = View(kube, LoopClock(), lambda: None, lambda *said: pytest.fail(str(said)))
    running = asyncio.create_task(view.run())
    await asyncio.sleep(5)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert kube.watches == {(source.kind, source.fields): 1 for source in view.sources}
