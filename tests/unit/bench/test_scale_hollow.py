"""Hollow Nodes: what they take from a real one, and what kwok is to make of them."""

from __future__ import annotations

import json
from typing import Any

from _scale_hollow import LABEL, MANAGED, arguments, configuration, hollow_node, node_name, spread

REAL: dict[str, Any] = {
    "metadata": {
        "name": "n1",
        "uid": "u1",
        "resourceVersion": "7",
        "labels": {
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": "n1",
            "node-role.kubernetes.io/control-plane": "",
            "node-restriction.kubernetes.io/autarky-control-plane": "",
        },
        "annotations": {"autarky.dev/slots": "{}"},
    },
    "spec": {"podCIDR": "10.244.0.0/24"},
    "status": {
        "addresses": [{"type": "InternalIP", "address": "10.201.0.2"}],
        "capacity": {"cpu": "2"},
        "conditions": [{"type": "Ready", "status": "True"}],
        "images": [{"names": ["a"], "sizeBytes": 1}],
        "nodeInfo": {"kubeletVersion": "v1.36.4"},
        "volumesInUse": ["x"],
    },
}
KUBELETS_LEASE_SECONDS = 40


def documents() -> list[dict]:
    return [json.loads(one) for one in configuration(300).split("\n---\n")]


def stages(kind: str) -> list[dict]:
    specs = [one["spec"] for one in documents() if one["kind"] == "Stage"]
    return [spec for spec in specs if spec["resourceRef"]["kind"] == kind]


def test_it_looks_like_a_worker_on_a_machine_like_the_real_one():
    made = hollow_node(REAL, 12)
    assert made["metadata"] == {
        "name": "hollow-0012",
        "labels": {"kubernetes.io/arch": "amd64", "kubernetes.io/hostname": "hollow-0012", LABEL: ""},
        "annotations": {MANAGED: "fake"},
    }
    assert made["status"]["nodeInfo"] == {"kubeletVersion": "v1.36.4"}
    assert made["status"]["images"] == REAL["status"]["images"]
    assert {"capacity", "conditions"} < made["status"].keys()
    assert "volumesInUse" not in made["status"]


def test_it_asks_for_no_addresses_of_pods_and_keeps_other_pods_away():
    assert hollow_node(REAL, 1)["spec"] == {"taints": [{"key": MANAGED, "value": "fake", "effect": "NoSchedule"}]}


def test_every_one_has_its_own_name_and_address():
    made = [hollow_node(REAL, number) for number in range(1, 1001)]
    addresses = {one["status"]["addresses"][0]["address"] for one in made}
    assert len(addresses) == len({one["metadata"]["name"] for one in made}) == len(made)
    assert addresses.isdisjoint({"198.18.0.0", "10.201.0.2"})


def test_names_sort_as_numbers_do():
    names = [node_name(number) for number in range(1, 1001)]
    assert names == sorted(names)


def test_kwok_keeps_them_with_heartbeats_as_rare_as_kubelets_have_them():
    [heartbeat] = stages("Node")
    assert heartbeat["delay"] == {"durationMilliseconds": 300_000}
    assert heartbeat["selector"] == {"matchAnnotations": {MANAGED: "fake"}}
    assert "lastHeartbeatTime" in heartbeat["next"]["statusTemplate"]


def test_pods_on_them_run_at_once_and_go_when_they_are_deleted():
    runs, goes = stages("Pod")
    assert runs["next"]["statusTemplate"].count("{{ end }}") == runs["next"]["statusTemplate"].count("{{ range ")
    assert "phase: Running" in runs["next"]["statusTemplate"]
    assert [one["key"] for one in runs["selector"]["matchExpressions"]] == [
        ".metadata.deletionTimestamp",
        ".status.phase",
    ]
    assert goes["next"] == {"delete": True}
    assert all("delay" not in stage for stage in (runs, goes))


def test_kwok_keeps_no_real_node():
    given = arguments("/d/kwok.yaml", "/d/kubeconfig")
    assert f"--manage-nodes-with-annotation-selector={MANAGED}=fake" in given
    assert not any("manage-all-nodes" in one for one in given)
    assert f"--node-lease-duration-seconds={KUBELETS_LEASE_SECONDS}" in given


def test_they_are_created_evenly_and_the_last_one_before_the_end():
    assert list(spread(4, 300)) == [0, 75, 150, 225]
    assert list(spread(3, 0)) == [0, 0, 0]
