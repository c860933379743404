"""What the operator stores of each component."""

from __future__ import annotations

import base64
import json

import pytest

from autarky.control.rollout.manifests import FAILURES, failure_in, secret_name
from autarky.control.rollout.operator import last_good
from autarky.errors import Conflict
from autarky.render.values import SYSTEM
from fakes.kube import FakeKube
from unit.control.world import GOOD, SCHEDULER, SECRET, becomes_good


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


@pytest.mark.parametrize(
    ("written", "start"),
    [(b"150.5", 150.5), (b"7", 7.0), (None, None), (b"null", None), (b'"long"', None), (b"-1", None), (b"true", None)],
)
@pytest.mark.looptime
async def test_how_long_a_start_took_is_known_where_an_operator_wrote_it(world, written, start):
    """One of an earlier release did not; what means nothing takes nothing else with it."""
    await becomes_good(world)
    live = await world.kube.get("v1", "Secret", secret_name(SCHEDULER), SYSTEM)
    data = {name: content for name, content in live["data"].items() if name != "start.json"}
    if written is not None:
        data["start.json"] = base64.b64encode(written).decode()
    world.kube.put({**live, "data": data})
    kept = await last_good.load(world.kube, SCHEDULER)
    assert kept.template == GOOD
    assert kept.record.start == start
    await last_good.save(world.kube, SCHEDULER, kept)
    assert await last_good.load(world.kube, SCHEDULER) == kept


OTHERS = {
    "no label": {"labels": {}},
    "another's label": {"labels": {"app.kubernetes.io/managed-by": "Helm"}},
    "another type": {"type": "Opaque"},
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
@pytest.mark.looptime
async def test_a_secret_of_that_name_that_is_not_ours_is_not_believed_and_is_overwritten(world, other):
    await becomes_good(world)
    kept = await last_good.load(world.kube, SCHEDULER)
    live = await world.kube.get("v1", "Secret", secret_name(SCHEDULER), SYSTEM)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "y"}
    meta = {**live["metadata"], "labels": other.get("labels", live["metadata"]["labels"]), "ownerReferences": [owner]}
    world.kube.put({**live, "metadata": meta, "type": other.get("type", live["type"])})
    assert await last_good.load(world.kube, SCHEDULER) == last_good.LastGood()
    await last_good.save(world.kube, SCHEDULER, kept)
    assert await last_good.load(world.kube, SCHEDULER) == kept
    now = await world.kube.get("v1", "Secret", secret_name(SCHEDULER), SYSTEM)
    assert "ownerReferences" not in now["metadata"]
    assert now["type"] == live["type"]


COPIES = {
    "another kind": {"kind": "ServiceAccount"},
    "another API": {"apiVersion": "example.org/v1"},
    "another name": {"metadata": {"name": "x", "namespace": SYSTEM}},
    "another namespace": {"metadata": {"name": SECRET["metadata"]["name"], "namespace": "default"}},
    "no name": {"metadata": {}},
}


@pytest.mark.parametrize("change", COPIES.values(), ids=COPIES.keys())
@pytest.mark.looptime
async def test_copies_of_what_the_template_does_not_name_are_not_believed(world, change):
    """They would be created with the operator's rights."""
    await becomes_good(world)
    live = await world.kube.get("v1", "Secret", secret_name(SCHEDULER), SYSTEM)
    [copy] = json.loads(base64.b64decode(live["data"]["objects.json"]))
    planted = base64.b64encode(json.dumps([{**copy, **change}]).encode()).decode()
    world.kube.put({**live, "data": {**live["data"], "objects.json": planted}})
    assert await last_good.load(world.kube, SCHEDULER) == last_good.LastGood()


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

    world.kube.put({**live, "data": {**live["data"], "current": "Im90aGVyIg=="}})
    changed = kept.with_record(kept.record.with_failure("x", "y", by_skew=False))
    with pytest.raises(Conflict):
        await last_good.save(Late(), SCHEDULER, changed)


@pytest.mark.looptime
async def test_others_read_from_it_why_a_revision_was_rolled_back(world):
    await becomes_good(world)
    kept = await last_good.load(world.kube, SCHEDULER)
    record = kept.record.with_failure("bad", "it did not lead", by_skew=False, by_workers=True)
    await last_good.save(world.kube, SCHEDULER, kept.with_record(record))
    live = await world.kube.get("v1", "Secret", secret_name(SCHEDULER), SYSTEM)
    found = failure_in(live, "bad")
    assert found is not None
    assert found == record.failure("bad")
    assert failure_in(live, record.good) is None
    assert failure_in(None, "bad") is None
    assert failure_in({**live, "type": "Opaque"}, "bad") is None, "somebody else's"
    for odd in ("bnVsbA==", "WzFd", "W3t9XQ==", "e30=", "x"):
        assert failure_in({**live, "data": {**live["data"], FAILURES: odd}}, "bad") is None
