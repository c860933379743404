"""What a ControlPlane asks of kubelets: what is let through, and what is wrong concerns nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from autarky.control.common import understood
from autarky.control.kubelet.decide import pools
from autarky.control.kubelet.decide.telling import Hosted, Pool, Reported
from autarky.control.status.decide import KUBELETS_CURRENT
from autarky.control.status.decide import status as plane_status
from autarky.render.crds import control_plane_crd
from unit.control.kubelet.decide.test_kubelet_order import any_json

SPEC = {"version": "v1.37.1", "selfHosted": "2-4"}
POOL = {
    "name": "edge",
    "nodes": {"matchLabels": {"site": "edge"}},
    "order": 1,
    "atOnce": 2,
    "drain": "Minor",
    "drainSeconds": 300,
    "version": "v1.36.4",
    "runtime": "autarky.dev/container-runtime:v2.3.7-runc-v1.5.2",
    "kubelet": {"configuration": {"maxPods": 50}},
}


@pytest.mark.parametrize(
    ("said", "clause"),
    [
        ({}, None),
        ({"kubelets": None, "pools": None}, None),
        ({"kubelets": {"follow": True, "asked": "7"}, "pools": [POOL]}, None),
        ({"kubelets": 7}, "spec.kubelets is 7"),
        ({"kubelets": {"follow": "yes"}}, "spec.kubelets.follow is 'yes'"),
        ({"kubelets": {"asked": "a b"}}, "spec.kubelets.asked is 'a b'"),
        ({"kubelets": {"asked": "x" * 65}}, "spec.kubelets.asked is 'xxx"),
        ({"kubelets": {"asked": 7}}, "spec.kubelets.asked is 7"),
        ({"pools": [POOL, POOL]}, "spec.pools is not valid: two pools have the name edge"),
    ],
)
def test_what_is_wrong_is_named_and_blinds_nobody(said: dict[str, Any], clause: str | None) -> None:
    found = understood.kubelets({**SPEC, **said})
    assert found is None if clause is None else (found or "").startswith(clause)
    assert understood.control_plane({"spec": {**SPEC, **said}}) is None


@given(any_json)
def test_it_never_raises(said: Any) -> None:
    for key in ("kubelets", "pools"):
        understood.kubelets({**SPEC, key: said})
        understood.kubelets({**SPEC, "kubelets": {"follow": said, "asked": said}})


def test_the_definition_has_every_field_of_a_pool_and_no_other() -> None:
    (version,) = control_plane_crd()["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert pools.trouble([POOL]) is None
    assert set(spec["pools"]["items"]["properties"]) == set(POOL)
    assert set(spec["pools"]["items"]["properties"]["nodes"]["properties"]) == {"matchLabels", "controlPlane"}
    assert spec["pools"]["items"]["properties"]["drain"]["enum"] == list(pools.Drain)
    free = spec["pools"]["items"]["properties"]["kubelet"]["properties"]["configuration"]
    assert free["x-kubernetes-preserve-unknown-fields"] is True
    assert set(spec["kubelets"]["properties"]) == {"follow", "runtime", "asked"}


def condition(reported: Reported | None) -> tuple[str, str, str] | None:
    found = plane_status([], [], [], [], [], [], kubelets=reported, generation=1, before={}, now="2026-11-01T00:00:00Z")
    assert ("kubelets" in found) is (reported is not None)
    (one,) = [one for one in found["conditions"] if one["type"] == KUBELETS_CURRENT] or [None]
    return None if one is None else (one["status"], one["reason"], one["message"])


def test_the_condition_says_whether_all_have_what_is_wanted() -> None:
    done, half = Pool("workers", ("v1.37.1",), 3, 3), Pool("workers", ("v1.37.1",), 1, 3)
    stopped = Pool("workers", ("v1.37.1",), 1, 3, "w1: no pods")
    assert condition(None) is None
    assert condition(Reported((done,))) == ("True", "Current", "every kubelet has what is wanted of it")
    changing = condition(Reported((half,), ("w2",)))
    assert changing == ("False", "Changing", "workers: 1 of 3 have v1.37.1; w2 changes")
    assert (condition(Reported((stopped,))) or ())[1] == "Failed"
    assert (condition(Reported((half,), failed={"w1": "no space"})) or ())[1] == "Failed"
    assert (condition(Reported((done,), said={"w1": "no base"})) or ())[1] == "Held"
    back = "the hosted kubelets do not get v1.37.1: it was rolled back"
    assert condition(Reported((done,), hosted=Hosted(back))) == ("False", "Failed", back)
    assert (condition(Reported((done,), hosted=Hosted(failed={"w1": "it exits"}))) or ())[0] == "True"
    assert condition(Reported(trouble="spec.pools is odd")) == (
        "False",
        "NotUnderstood",
        "no kubelet is changed: spec.pools is odd",
    )
