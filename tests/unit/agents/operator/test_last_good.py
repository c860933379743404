"""What the operator keeps for good of each component."""

from __future__ import annotations

import base64
import json

import pytest

from autarky.agents.operator import last_good
from autarky.agents.operator.last_good import secret_name
from autarky.errors import Conflict
from autarky.render.values import SYSTEM
from fakes.kube import FakeKube
from unit.agents.operator.world import GOOD, SCHEDULER, SECRET, becomes_good


@pytest.mark.looptime
async def test_what_is_stored_can_be_read_again_and_shows_no_secret_in_its_repr(world):
    await becomes_good(world)
    kept = await last_good.load(world.kube, SCHEDULER)
    assert kept.template == GOOD
    assert [copy["data"] for copy in kept.objects] == [SECRET["data"]]
    assert "kubeconfig" not in repr(kept)


@pytest.mark.parametrize("broken", [b"not json", b"[]", b"null"])
@pytest.mark.looptime
async def test_what_cannot_be_understood_counts_as_absent(world, broken):
    await becomes_good(world)
    live = await world.kube.get("v1", "Secret", secret_name(SCHEDULER), SYSTEM)
    world.kube.put({**live, "data": {**live["data"], "template.json": base64.b64encode(broken).decode()}})
    kept = await last_good.load(world.kube, SCHEDULER)
    assert kept == last_good.LastGood() or kept.template == json.loads(broken)


def test_all_that_a_pod_cannot_start_without_is_found():
    wanted = {
        "spec": {
            "volumes": [
                {"name": "a", "secret": {"secretName": "a"}},
                {"name": "b", "configMap": {"name": "b"}},
                {"name": "c", "secret": {"secretName": "c", "optional": True}},
                {"name": "d", "projected": {"sources": [{"secret": {"name": "d"}}, {"configMap": {"name": "e"}}]}},
                {"name": "e", "emptyDir": {}},
            ],
            "initContainers": [{"envFrom": [{"secretRef": {"name": "f"}}]}],
            "containers": [
                {
                    "env": [
                        {"name": "A", "value": "1"},
                        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "g", "key": "k"}}},
                        {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "h", "key": "k"}}},
                    ]
                }
            ],
        }
    }
    assert sorted(last_good.references(wanted)) == [
        ("ConfigMap", "b"),
        ("ConfigMap", "e"),
        ("ConfigMap", "h"),
        ("Secret", "a"),
        ("Secret", "d"),
        ("Secret", "f"),
        ("Secret", "g"),
    ]


@pytest.mark.looptime
async def test_two_who_store_at_once_do_not_overwrite_each_other(world):
    await becomes_good(world)
    kept = await last_good.load(world.kube, SCHEDULER)
    live = await world.kube.get("v1", "Secret", secret_name(SCHEDULER), SYSTEM)

    class Late(FakeKube):
        async def get(self, *where):
            return live

        async def replace(self, obj, *, subresource=None):
            return await world.kube.replace(obj)

    world.kube.put({**live, "data": {**live["data"], "current": "bnVsbA=="}, "type": "touched"})
    changed = kept.with_record(kept.record.with_failure("x", "y", by_skew=False))
    with pytest.raises(Conflict):
        await last_good.save(Late(), SCHEDULER, changed)
