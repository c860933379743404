"""What is kept of what kubelets make: all that anybody reads of it, and nothing that grows as they like."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.admission.act import asked, is_unjudged, requester
from autarky.control.admission.decide.approval import CLIENT_SIGNER
from autarky.control.common.pods import MIRROR, is_mirror, is_ready, is_what_it_says
from autarky.control.common.slim import MOST_LETTERS, MOST_OF_A_REQUEST, bare, slim_pod, slim_request
from autarky.errors import UserError
from fakes.changed import changed

Object = dict[str, Any]
MANY = 20_000
ENOUGH = 12_000
"""Letters of JSON in which all of a slim pod has room."""
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "w1", "uid": "u1", "controller": True}


def a_pod(*, mirror: bool = True, ready: str = "True", labels: Mapping[str, str] | None = None) -> Object:
    marked = {"annotations": {MIRROR: "x"}, "ownerReferences": [OWNER]} if mirror else {}
    meta = {
        "name": "etcd-w1",
        "namespace": "kube-system",
        "uid": "u2",
        "resourceVersion": "9",
        "labels": dict(labels or {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**meta, **marked},
        "spec": {"nodeName": "w1", "containers": [{"name": "etcd", "image": "example.org/etcd:1"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
    }


GROWN = {
    "tolerations": changed(a_pod(), "spec", "tolerations", to=[{"key": "a"}] * MANY),
    "containers": changed(a_pod(), "spec", "containers", to=[{"name": f"c{n}", "image": "x"} for n in range(MANY)]),
    "an image": changed(a_pod(), "spec", "containers", to=[{"name": "etcd", "image": "x" * MANY}] * 30),
    "labels": changed(a_pod(), "metadata", "labels", to={f"l{n}": "x" for n in range(MANY)}),
    "annotations": changed(a_pod(), "metadata", "annotations", to={MIRROR: "x" * MANY}),
    "managed fields": changed(a_pod(), "metadata", "managedFields", to=[{"manager": "x"}] * MANY),
    "finalizers": changed(a_pod(), "metadata", "finalizers", to=["example.org/x"] * MANY),
    "owners": changed(a_pod(), "metadata", "ownerReferences", to=[OWNER] * MANY),
    "conditions": changed(a_pod(), "status", "conditions", to=[{"type": "Ready", "status": "True"}] * MANY),
    "statuses": changed(a_pod(), "status", "containerStatuses", to=[{"name": "x"}] * MANY),
}


@pytest.mark.parametrize("grown", GROWN)
def test_whatever_of_a_static_pod_its_kubelet_lets_grow_what_is_kept_is_short(grown: str) -> None:
    before = deepcopy(GROWN[grown])
    kept = slim_pod(GROWN[grown])
    assert len(json.dumps(kept)) < ENOUGH
    assert GROWN[grown] == before, "it may be somebody else's as well"


@given(
    ready=st.sampled_from(["True", "False", "Unknown"]),
    labels=st.fixed_dictionaries(
        {},
        optional={
            "k8s-app": st.sampled_from(["etcd", "kube-apiserver", "kube-dns", "x"]),
            "autarky.dev/slot": st.sampled_from(["hosted", "standby", "spare", "x"]),
            "other": st.just("x"),
        },
    ),
    ends=st.booleans(),
    phase=st.sampled_from(["Pending", "Running", "Failed"]),
    annotated=st.booleans(),
    control_nodes=st.sampled_from([frozenset[str](), frozenset({"w1"})]),
)
def test_all_that_is_read_of_a_static_pod_is_as_it_was(
    ready: str, labels: dict[str, str], ends: bool, phase: str, annotated: bool, control_nodes: frozenset[str]
) -> None:
    pod = a_pod(ready=ready, labels=labels)
    pod["status"]["phase"] = phase
    if ends:
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if not annotated:
        del pod["metadata"]["annotations"]
    kept = slim_pod(pod)
    assert is_mirror(kept)
    assert is_what_it_says(kept, control_nodes) == is_what_it_says(pod, control_nodes)
    assert is_ready(kept) == is_ready(pod)
    for key in ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp"):
        assert kept["metadata"].get(key) == pod["metadata"].get(key)
    for key in ("k8s-app", "autarky.dev/slot"):
        assert kept["metadata"]["labels"].get(key) == labels.get(key)
    assert kept["spec"] == pod["spec"]
    assert kept["status"]["phase"] == phase
    assert {owner["kind"] for owner in kept["metadata"]["ownerReferences"]} == {"Node"}


def test_a_pod_that_a_controller_made_is_kept_as_its_template_has_it_while_it_may_run() -> None:
    pod = changed(a_pod(mirror=False, labels={"a": "b"}), "spec", "tolerations", to=[{"key": "a"}])
    assert slim_pod(pod) == pod


WRITTEN = {
    "conditions": ("status", "conditions", [{"type": f"c{n}", "status": "False"} for n in range(MANY)]),
    "a reason": ("status", "message", "x" * MANY),
    "containers": ("status", "containerStatuses", [{"name": f"c{n}", "ready": False} for n in range(MANY)]),
    "resources": ("status", "containerStatuses", [{"allocatedResources": {f"r{n}": "1" for n in range(MANY)}}]),
    "labels": ("metadata", "labels", {f"l{n}": "x" for n in range(MANY)}),
    "annotations": ("metadata", "annotations", {"a": "x" * MANY}),
}
"""What a kubelet may write of any pod that is bound to it."""


@pytest.mark.parametrize("written", WRITTEN)
def test_what_a_kubelet_writes_of_a_pod_of_a_controller_is_kept_within_bounds(written: str) -> None:
    where, name, value = WRITTEN[written]
    pod = changed(a_pod(mirror=False), where, name, to=value)
    kept = slim_pod(pod)
    assert len(json.dumps(kept)) < ENOUGH < len(json.dumps(pod))
    assert kept["spec"] == pod["spec"]


def test_of_a_pod_that_has_ended_little_is_kept_and_why_it_did() -> None:
    """A ReplicaSet makes another one at once, for each that a worker says has failed."""
    pod = changed(a_pod(mirror=False), "status", to={"phase": "Failed", "reason": "Evicted", "message": "no room"})
    pod["spec"]["volumes"] = [{"name": f"v{n}", "emptyDir": {}} for n in range(MANY)]
    kept = slim_pod(pod)
    assert len(json.dumps(kept)) < ENOUGH
    assert kept["spec"] == {"nodeName": "w1", "containers": pod["spec"]["containers"]}
    assert (kept["status"], kept["metadata"]) == (pod["status"], pod["metadata"])


def test_of_an_object_that_is_only_named_nothing_else_is_kept() -> None:
    assert bare(GROWN["tolerations"]) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "etcd-w1", "namespace": "kube-system", "uid": "u2", "resourceVersion": "9"},
    }


# --- certificate requests --------------------------------------------------------------------------------


def a_request(request: bytes = b"x", **more: Any) -> Object:
    spec = {
        "signerName": CLIENT_SIGNER,
        "username": "system:node:w1",
        "groups": ["system:nodes"],
        "extra": {"authentication.kubernetes.io/credential-id": ["X509SHA256=aa"]},
        "usages": ["client auth"],
        "request": base64.b64encode(request).decode(),
        "uid": "x",
    }
    metadata = {"name": "csr-1", "uid": "u", "resourceVersion": "3", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"} | {
        "metadata": metadata,
        "spec": spec,
        **more,
    }


def test_all_by_which_a_request_is_judged_is_kept_and_that_it_has_been() -> None:
    kept = slim_request(a_request())
    expected = a_request(status={"conditions": []})
    del expected["spec"]["uid"]
    assert kept == expected
    assert is_unjudged(kept)
    assert requester(kept) == "system:node:w1"
    denied = {"conditions": [{"type": "Denied", "status": "True", "message": "x" * MANY}], "certificate": "x" * MANY}
    judged = slim_request(a_request(status=denied))
    assert not is_unjudged(judged)
    assert len(json.dumps(judged)) < ENOUGH


def test_labels_of_a_request_are_not_kept() -> None:
    request = a_request()
    request["metadata"]["labels"] = {f"l{n}": "x" for n in range(MANY)}
    request["metadata"]["managedFields"] = [{"manager": "x"}] * MANY
    assert len(json.dumps(slim_request(request))) < ENOUGH


def test_a_request_that_is_too_long_cannot_be_read_whatever_a_part_of_it_says() -> None:
    complete = a_request(b"x" * (MOST_OF_A_REQUEST * 3 // 4))
    assert slim_request(complete)["spec"]["request"] == complete["spec"]["request"]
    longer = slim_request(a_request(b"x" * (MOST_OF_A_REQUEST * 3 // 4 + 1)))
    assert longer["spec"]["request"] == ""
    with pytest.raises(UserError):
        asked(longer)


def test_an_images_name_is_kept_as_far_as_a_registry_would_take_it() -> None:
    [container] = slim_pod(changed(a_pod(), "spec", "containers", to=[{"name": "etcd", "image": "y" * 9000}]))["spec"][
        "containers"
    ]
    assert container == {"name": "etcd", "image": "y" * MOST_LETTERS}
