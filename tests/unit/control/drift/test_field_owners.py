from __future__ import annotations

from typing import Any

import pytest

from autarky.control.drift.decide.field_owners import edits
from autarky.control.drift.decide.owners import compare

OURS = {"spec": {"replicas": 2, "containers": [{"name": "main", "image": "a:1", "command": ["main", "--v=1"]}]}}


def live(*entries):
    container = {"name": "main", "image": "a:2", "command": ["main", "--v=2"]}
    return {"metadata": {"managedFields": list(entries)}, "spec": {"replicas": 1, "containers": [container]}}


def entry(manager, time, fields, **more):
    return {"manager": manager, "time": time, "fieldsV1": {"f:spec": fields}, **more}


IMAGE: dict[str, Any] = {"f:containers": {'k:{"name":"main"}': {".": {}, "f:image": {}}}}
COMMAND: dict[str, Any] = {"f:containers": {'k:{"name":"main"}': {"f:command": {}}}}


def found(obj):
    return {one.field: (one.manager, one.since) for one in edits("Pod x", compare(OURS, OURS, obj).differences, obj)}


def test_each_field_is_told_with_its_last_writer():
    writers = found(
        live(
            entry("kubectl-set", "2026-11-21T10:00:00Z", IMAGE),
            entry("kubectl-edit", "2026-11-21T11:00:00Z", COMMAND),
            entry("kubectl", "2026-11-21T12:00:00Z", {"f:replicas": {}}, subresource="scale"),
        )
    )
    assert writers == {
        "spec.containers[main].image": ("kubectl-set", "2026-11-21T10:00:00Z"),
        "spec.containers[main].command[--v]": ("kubectl-edit", "2026-11-21T11:00:00Z"),
        "spec.replicas": ("kubectl", "2026-11-21T12:00:00Z"),
    }


def test_the_last_of_several_counts_and_others_count_before_ourselves():
    writers = found(
        live(
            entry("kubectl-set", "2026-11-21T10:00:00Z", IMAGE),
            entry("argocd", "2026-11-21T10:30:00Z", IMAGE),
            entry("autarky-kube-apiserver", "2026-11-21T11:00:00Z", IMAGE),
        )
    )
    assert writers["spec.containers[main].image"] == ("argocd", "2026-11-21T10:30:00Z")


def test_who_took_a_field_away_or_writes_status_is_not_known():
    writers = found(live(entry("kubelet", "2026-11-21T10:00:00Z", IMAGE, subresource="status")))
    assert set(writers.values()) == {("", "")}


@pytest.mark.parametrize("name", ["k:", "k:banana", "k:[]", "k:" + "[" * 100_000, "k:" + '{"name":' * 100_000])
def test_a_key_that_nobody_understands_is_that_of_no_item(name):
    odd = entry("odd", "2026-11-21T12:00:00Z", {"f:containers": {name: {"f:image": {}}}})
    writers = found(live(odd, entry("kubectl-set", "2026-11-21T10:00:00Z", IMAGE)))
    assert writers["spec.containers[main].image"] == ("kubectl-set", "2026-11-21T10:00:00Z")


def test_an_edit_is_a_sentence():
    obj = live(entry("kubectl-set", "2026-11-21T10:00:00Z", IMAGE))
    (image,) = [one for one in edits("Pod x", compare(OURS, OURS, obj).differences, obj) if "image" in one.field]
    assert image.sentence == (
        "Pod x: spec.containers[main].image is a:2, applied was a:1, by kubectl-set at 2026-11-21T10:00:00Z"
    )
