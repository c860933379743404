"""The operator's record of control nodes is its own."""

from __future__ import annotations

import pytest

from autarky.control.control_nodes.decide.observed import Record, State
from autarky.control.control_nodes.manifests import RECORD
from autarky.control.control_nodes.operator import record as node_record
from autarky.render.values import SYSTEM, is_ours
from fakes.kube import FakeKube

MADE = Record("5b2f1c0e", State("made"))
PLANTED = '{"uid": "5b2f1c0e", "state": "made"}'


class Seen:
    """What a reflector holds."""

    def __init__(self, obj):
        self.items = {(SYSTEM, RECORD): obj}


async def recorded(kube):
    seen = Seen(await kube.get("v1", "ConfigMap", RECORD, SYSTEM))
    return node_record.records(seen)  # type: ignore[arg-type]


@pytest.mark.parametrize("immutable", [False, True])
async def test_what_somebody_else_has_put_in_its_place_makes_no_control_node_and_is_overwritten(immutable):
    kube = FakeKube()
    meta = {"name": RECORD, "namespace": SYSTEM, "finalizers": []}
    there = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"w1": PLANTED}}
    kube.put({**there, "immutable": immutable})
    assert await recorded(kube) == {}
    await node_record.remember(kube, "n1", MADE)
    assert await recorded(kube) == {"n1": MADE}
    assert is_ours(await kube.get("v1", "ConfigMap", RECORD, SYSTEM))


async def test_what_is_remembered_stays_beside_what_comes_and_goes():
    kube = FakeKube()
    for name in ("n1", "n2"):
        await node_record.remember(kube, name, MADE)
    await node_record.forget(kube, "n1")
    assert await recorded(kube) == {"n2": MADE}
