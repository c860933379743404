"""What node agents hear of scheduler and controller-manager: whose pods count, and what cannot be understood."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.leadership.decide.reported import FIELD, Candidate, Reported, candidates, read, text

NAME = "kube-scheduler"


def pod(node: str, *, ready: bool = True, slot: str = "hosted", owner: str = "ReplicaSet", **meta: Any):
    labels = {"k8s-app": NAME, "autarky.dev/slot": slot}
    owners = [{"kind": owner, "uid": "u"}]
    return {
        "metadata": {"name": f"p-{node}", "uid": f"uid-{node}", "labels": labels, "ownerReferences": owners, **meta},
        "spec": {"nodeName": node},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


def test_a_ready_hosted_pod_on_a_ready_control_node_is_a_candidate():
    assert candidates([pod("n2"), pod("n1")], {"n1", "n2"}, NAME) == (
        Candidate("n1", "p-n1", "uid-n1"),
        Candidate("n2", "p-n2", "uid-n2"),
    )


@pytest.mark.parametrize(
    "other",
    [
        pod("n1", ready=False),
        pod("n1", slot="standby"),
        pod("n1", deletionTimestamp="2026-11-23T00:00:00Z"),
        pod("w1"),
        pod("n1", owner="Node"),
    ],
    ids=["not ready", "a standby", "it ends", "not on a Ready control node", "a mirror pod, which a kubelet made"],
)
def test_nothing_else_is(other):
    assert candidates([other], {"n1"}, NAME) == ()


def test_what_is_told_is_read_again():
    reported = Reported((Candidate("n2", "p", "u"), Candidate("n3", "q", "v")), "good", "content")
    plane = {"status": {FIELD: text({NAME: reported})}}
    assert read(plane, NAME) == reported
    assert read(plane, NAME).elsewhere("n2") == {"v"}


@given(
    st.recursive(
        st.none() | st.booleans() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from([NAME, "candidates", "lastGood", "node", "pod", "uid"]), inner, max_size=3
            )
        ),
        max_leaves=12,
    )
)
def test_a_foreign_value_ends_nobody(value):
    assert isinstance(read({"status": {FIELD: value}}, NAME), Reported)
    assert isinstance(read({"status": {FIELD: {NAME: value}}}, NAME), Reported)
    assert isinstance(read({"status": value}, NAME), Reported)
    assert read(None, NAME) == Reported()
