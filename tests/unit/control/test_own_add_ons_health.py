"""Objects of add-ons: which are autarky's own, and when they are healthy."""

from __future__ import annotations

import pytest

from autarky.control.addons import health, on_workers
from autarky.control.addons.own import as_stored, is_one_of_ours, marked
from unit.render.rendered import EVERY_LEVEL, objects


@pytest.mark.parametrize("inputs", EVERY_LEVEL, ids=lambda inputs: inputs.cluster.self_hosted.name)
def test_whatever_we_render_is_refused_also_without_our_label(inputs) -> None:
    for obj in objects(inputs):
        assert is_one_of_ours(obj), obj
        bare = {**obj, "metadata": {**obj["metadata"], "labels": {}}}
        assert is_one_of_ours(bare), obj


@pytest.mark.parametrize(
    ("kind", "namespace", "name"),
    [
        ("ConfigMap", "demo", "coredns"),
        ("ConfigMap", "kube-system", "coredns-custom"),
        ("Deployment", "kube-system", "metrics-server"),
        ("ClusterRole", None, "system:metrics-server"),
        ("Namespace", None, "demo"),
        ("Service", "demo", "kubernetes"),
    ],
)
def test_what_others_have_is_theirs(kind, namespace, name) -> None:
    meta = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
    assert not is_one_of_ours({"apiVersion": "v1", "kind": kind, "metadata": meta})


def conditions(kind: str, *found: tuple[str, str]) -> dict:
    listed = [{"type": name, "status": status, "message": f"{name} said"} for name, status in found]
    return {"kind": kind, "metadata": {"name": "a"}, "status": {"conditions": listed}}


def workload(kind: str, spec=None, **status) -> dict:
    return {"kind": kind, "metadata": {"generation": 2}, "spec": spec or {}, "status": status}


@pytest.mark.parametrize(
    ("live", "lacks"),
    [
        (None, "does not exist"),
        ({"kind": "ConfigMap", "metadata": {}}, None),
        ({"kind": "ConfigMap", "metadata": {"deletionTimestamp": "x"}}, "is being deleted"),
        (conditions("Job"), "is not complete"),
        (conditions("Job", ("Complete", "True")), None),
        (conditions("CustomResourceDefinition", ("NamesAccepted", "False")), "NamesAccepted said"),
        (conditions("CustomResourceDefinition", ("Established", "True")), None),
        (conditions("APIService", ("Available", "False")), "Available said"),
        (conditions("APIService", ("Available", "True")), None),
        (conditions("Pod", ("Ready", "True")), None),
        ({"kind": "Pod", "metadata": {}, "status": {"phase": "Succeeded"}}, None),
        (workload("Deployment", observedGeneration=1), "its last change was not observed by its controller yet"),
        (workload("Deployment", observedGeneration=2), "has 0 of 1 pods available, 0 updated"),
        (workload("Deployment", observedGeneration=2, replicas=1, updatedReplicas=1, availableReplicas=1), None),
        (
            workload("Deployment", observedGeneration=2, replicas=2, updatedReplicas=1, availableReplicas=2),
            "has pods of its former template",
        ),
        (workload("Deployment", {"replicas": 0}, observedGeneration=2), None),
        (
            workload("DaemonSet", observedGeneration=2, desiredNumberScheduled=2, updatedNumberScheduled=2),
            "has 0 of 2 pods available, 2 updated",
        ),
        (
            workload(
                "StatefulSet", {"updateStrategy": {"type": "OnDelete"}}, observedGeneration=2, availableReplicas=1
            ),
            None,
        ),
    ],
)
def test_what_is_lacking_is_said(live, lacks) -> None:
    assert health.lacking(live) == lacks


def test_a_node_that_is_off_is_not_waited_for() -> None:
    live = workload(
        "DaemonSet", observedGeneration=2, desiredNumberScheduled=2, updatedNumberScheduled=1, numberAvailable=1
    )
    assert health.lacking(live, absent=1) is None


def test_what_has_failed_is_not_waited_for() -> None:
    assert health.failed(conditions("Job", ("Failed", "True"))) == "has failed: Failed said"
    assert health.failed(conditions("Job", ("Complete", "True"))) is None


def test_a_secret_is_marked_as_the_api_keeps_it() -> None:
    obj = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"b": "c"}}
    found = marked(obj, "a.yaml")
    assert found["data"] == {"b": "Yw=="}
    assert "stringData" not in found
    assert found["metadata"]["annotations"]["autarky.dev/add-on"] == "a.yaml"


def test_the_apis_spelling_of_what_was_asked_for() -> None:
    wanted = {"cpu": 0.5, "list": [{"a": 1}], "gone": None, "items": [1, 2]}
    stored = {"cpu": "500m", "list": [{"a": "1", "b": 2}], "other": 1, "items": [1]}
    assert as_stored(stored, wanted) == {"cpu": "500m", "list": [{"a": "1"}], "items": [1, 2]}


# --- workers that hold up a DaemonSet ----------------------------------------------------------------------

OWNER = {"ownerReferences": [{"uid": "u"}]}
DAEMON_SET = {
    "kind": "DaemonSet",
    "metadata": {"uid": "u", "generation": 2},
    "status": {"observedGeneration": 2, "desiredNumberScheduled": 3},
}
REVISIONS = [
    {"metadata": {**OWNER, "labels": {on_workers.HASH: "new"}}, "revision": 3},
    {"metadata": {**OWNER, "labels": {on_workers.HASH: "old"}}, "revision": 2},
    {"metadata": {"labels": {on_workers.HASH: "another's"}}, "revision": 9},
]


def a_pod(node: str, *, ready: bool = True, of: str = "new", **meta) -> dict:
    status = {"conditions": [{"type": "Ready", "status": str(ready)}]}
    return {
        "metadata": {**OWNER, "labels": {on_workers.HASH: of}, **meta},
        "spec": {"nodeName": node} if node else {},
        "status": status,
    }


GOOD = [a_pod("n1"), a_pod("w2")]


@pytest.mark.parametrize(
    ("pods", "lacks"),
    [
        ([*GOOD, a_pod("w1", ready=False)], ["w1"]),
        ([*GOOD, a_pod("w1", of="old")], ["w1"]),
        ([*GOOD, a_pod("w1", deletionTimestamp="x")], ["w1"]),
        ([*GOOD, a_pod("w1", ready=False), a_pod("w1")], []),
        ([*GOOD, a_pod("off", ready=False)], []),
        ([*GOOD, a_pod("off", ready=False), a_pod("w1", ready=False)], ["w1"]),
        ([a_pod("n1", ready=False), a_pod("w1", ready=False), a_pod("w2")], []),
        ([a_pod("n1", of="old"), a_pod("w1", ready=False), a_pod("w2")], []),
        ([*GOOD, a_pod("", ready=False), a_pod("w1", ready=False)], []),
        ([a_pod("w2"), a_pod("w1", ready=False)], []),
        ([*GOOD, a_pod("w1", ready=False, ownerReferences=[{"uid": "x"}])], []),
    ],
    ids=[
        *("not ready", "former template", "ends", "its successor is ready", "off", "off and not ready"),
        *("control node", "control node with former template", "nobody knows where", "one is not there", "another's"),
    ],
)
def test_the_workers_that_hold_up_a_daemon_set(pods, lacks) -> None:
    assert on_workers.lacking(DAEMON_SET, pods, REVISIONS, {"w1", "w2"}, {"off"}) == lacks


@pytest.mark.parametrize(
    ("pods", "lacks"),
    [
        (GOOD, ["w1"]),
        ([a_pod("n1"), a_pod("w2", ready=False)], ["w1", "w2"]),
        ([a_pod("w1"), a_pod("w2")], []),
        ([a_pod("n1")], ["w1", "w2"]),
        ([a_pod("w2")], []),
    ],
    ids=["a worker", "another is not ready", "a control node", "two workers", "one of two"],
)
def test_a_worker_that_ends_each_pod_as_soon_as_it_is_made_holds_it_up_as_well(pods, lacks) -> None:
    nodes = {"n1", "w1", "w2"}
    assert on_workers.lacking(DAEMON_SET, pods, REVISIONS, {"w1", "w2"}, set(), nodes=nodes) == lacks
    more = {*nodes, "a node that it does not select"}
    assert on_workers.lacking(DAEMON_SET, pods, REVISIONS, {"w1", "w2"}, set(), nodes=more) == [], "where, is not known"


DEPLOYMENT = {
    "kind": "Deployment",
    "metadata": {"uid": "u", "generation": 2},
    "spec": {"replicas": 2},
    "status": {"observedGeneration": 2},
}


def a_set(uid: str, revision: str, **meta) -> dict:
    return {"metadata": {**OWNER, "uid": uid, "annotations": {on_workers.REVISION: revision}, **meta}}


SETS = [a_set("former", "9"), a_set("present", "10"), a_set("another's", "11", ownerReferences=[{"uid": "x"}])]


def one_of(node: str, *, ready: bool = True, of: str = "present", phase: str = "Running", **meta) -> dict:
    pod = a_pod(node, ready=ready, ownerReferences=[{"uid": of}], **meta)
    return {**pod, "status": {**pod["status"], "phase": phase}}


@pytest.mark.parametrize(
    ("pods", "lacks"),
    [
        ([one_of("n1"), one_of("w1", ready=False)], ["w1"]),
        ([one_of("w2"), one_of("w1", ready=False)], ["w1"]),
        ([one_of("w2"), one_of("w1", ready=False), one_of("w1", ready=False, phase="Failed")], ["w1"]),
        ([one_of("w2"), one_of("w1", ready=False), one_of("n1", ready=False, of="former")], ["w1"]),
        ([one_of("w1", ready=False), one_of("w2", ready=False)], []),
        ([one_of("w1"), one_of("w1", ready=False)], []),
        ([one_of("w2"), one_of("n1", ready=False)], []),
        ([one_of("w2"), one_of("", ready=False)], []),
        ([one_of("w2"), one_of("w1", ready=False, phase="Failed")], []),
        ([one_of("w2"), one_of("w1", ready=False, deletionTimestamp="x")], []),
        ([one_of("w2", of="former"), one_of("w1", ready=False), one_of("w1", ready=False)], []),
    ],
    ids=[
        *("not ready", "ready on a worker", "others have ended", "a former one", "two workers", "nowhere else"),
        *("control node", "nobody knows where", "one is not there", "one ends", "elsewhere only a former one"),
    ],
)
def test_the_one_worker_that_holds_up_a_deployment(pods, lacks) -> None:
    assert on_workers.lacking_on_one(DEPLOYMENT, pods, SETS, {"w1", "w2"}) == lacks
    assert on_workers.lacking_on_one(DEPLOYMENT, pods, [], {"w1", "w2"}) == []
    changed = {**DEPLOYMENT, "metadata": {"uid": "u", "generation": 3}}
    assert on_workers.lacking_on_one(changed, pods, SETS, {"w1", "w2"}) == []


def test_where_it_is_not_known_what_is_wanted_no_worker_is_to_blame() -> None:
    pods = [*GOOD, a_pod("w1", ready=False)]
    assert on_workers.lacking(DAEMON_SET, pods, [], {"w1", "w2"}, set()) == []
    changed = {**DAEMON_SET, "metadata": {"uid": "u", "generation": 3}}
    assert on_workers.lacking(changed, pods, REVISIONS, {"w1", "w2"}, set()) == []


def test_a_number_that_nobody_counts_to_is_none():
    """Python reads none of more than 4300 digits, and whoever may write a ReplicaSet may write them."""
    odd = {**SETS[0], "metadata": {**SETS[0]["metadata"], "annotations": {on_workers.REVISION: "9" * 5000}}}
    assert on_workers.current_set(DEPLOYMENT, [odd, *SETS]) in SETS
