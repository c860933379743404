"""What is deleted of what is no longer wanted: only what is ours, unchanged and unused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.addons.own import marked
from autarky.control.drift.decide import applied
from autarky.control.inventory.decide import references
from autarky.control.inventory.decide.entries import Entry, entry_of, merged, read, written
from autarky.control.inventory.decide.pruning import (
    ADD_ONS,
    CONTROL_PLANE_PARTS,
    NEVER,
    Fate,
    Seen,
    decide,
    obsolete,
)
from autarky.model.components import MOVED
from autarky.render.objects import agent_parts, parts
from autarky.render.values import MANAGED_BY, Object
from unit.render.rendered import EVERY_LEVEL

OURS = Entry("coredns", "v1", "ConfigMap", "kube-system", "coredns-0123456789")
OWN = Entry(ADD_ONS, "apps/v1", "Deployment", "demo", "web")


def live(entry: Entry, **more: object) -> Object:
    meta: Object = {"name": entry.name, "labels": dict(MANAGED_BY), "uid": "u", "resourceVersion": "1", **more}
    found = {"apiVersion": entry.api_version, "kind": entry.kind, "metadata": meta}
    if entry.part != ADD_ONS:
        return found
    obj = marked({**found, "spec": {"replicas": 1}}, "a.yaml")
    return applied.with_record(obj, obj)


names = st.sampled_from(["a", "b", "kube-apiserver", "autarky-x", "coredns"])
entries = st.builds(
    Entry,
    st.sampled_from(["coredns", "flannel", "kube-apiserver", "operator", "definitions", ADD_ONS]),
    st.sampled_from(["v1", "apps/v1", "apps/v1beta1", "autarky.dev/v1alpha1"]),
    st.sampled_from(["ConfigMap", "Deployment", *NEVER]),
    st.sampled_from(["", "kube-system", "demo"]),
    names,
)
lists = st.lists(entries, max_size=6)


@given(lists, lists)
def test_what_is_wanted_is_never_deleted_and_nothing_that_was_not_noted(
    noted: list[Entry], wanted: list[Entry]
) -> None:
    found = obsolete(noted, wanted)
    assert {one.identity for one in found} == {one.identity for one in noted} - {one.identity for one in wanted}
    assert len({one.identity for one in found}) == len(found)


@given(entries, st.booleans(), st.booleans(), st.booleans())
def test_only_what_is_ours_unchanged_and_unused_is_deleted(entry: Entry, mine: bool, edited: bool, used: bool) -> None:
    obj = live(entry)
    if not mine:
        obj["metadata"] |= {"labels": {}, "annotations": {}}
    if edited:
        obj["metadata"]["managedFields"] = [{"manager": "autarky-add-ons"}, {"manager": "kubectl-edit"}]
        obj |= {"spec": {"replicas": 2}} if entry.part == ADD_ONS else {}
    verdict = decide(entry, Seen(obj, ["Deployment demo/x"] if used else ()))
    if verdict.fate is Fate.DELETE:
        assert mine
        assert not edited
        assert not used
        assert entry.kind not in NEVER
        assert entry.part not in CONTROL_PLANE_PARTS
        assert "kube-apiserver" not in entry.name or entry.part == ADD_ONS
    assert verdict.fate is not Fate.STAYS or verdict.why


@given(lists)
def test_what_is_written_is_read_again(noted: list[Entry]) -> None:
    assert read(written(merged(noted))) == merged(noted)


@pytest.mark.parametrize("text", ["", "{", "{}", "null", "1"])
def test_what_is_no_inventory_is_none(text: str) -> None:
    assert read(text) is None


def test_a_line_that_is_no_entry_is_left_out() -> None:
    good = written([OURS]).strip()[1:-1]
    assert read(f'[null, {{}}, {{"part": 1}}, "x", {good}]') == [OURS]


@pytest.mark.parametrize("inputs", EVERY_LEVEL, ids=lambda inputs: inputs.cluster.self_hosted.name)
def test_nothing_of_the_control_plane_is_ever_deleted(inputs) -> None:
    """Whatever the part is called in which a release renders it."""
    rendered = [(part, obj) for part in [*parts(inputs), *agent_parts(inputs)] for obj in part.objects]
    for part, obj in rendered:
        for name in (part.name, "another"):
            fate = decide(entry_of(name, obj), Seen(obj)).fate
            if part.name in CONTROL_PLANE_PARTS or obj["metadata"]["name"] in MOVED:
                assert fate is not Fate.DELETE, obj
            elif part.name in ("coredns", "flannel") and name == part.name:
                assert fate is Fate.DELETE, obj


def test_a_namespace_stays_and_the_command_to_delete_it_is_said() -> None:
    entry = Entry(ADD_ONS, "v1", "Namespace", "", "demo")
    verdict = decide(entry, Seen(live(entry)))
    assert verdict.fate is Fate.STAYS
    assert verdict.why.endswith("kubectl delete namespace demo")


def test_what_somebody_has_taken_over_is_forgotten_and_said() -> None:
    obj = live(OWN)
    obj["metadata"]["annotations"] = {}
    assert decide(OWN, Seen(obj)).fate is Fate.FORGET
    assert "taken it over" in decide(OWN, Seen(obj)).why
    obj = live(OWN, managedFields=[{"manager": "helm"}])
    assert decide(OWN, Seen(obj)).fate is Fate.FORGET


def test_what_somebody_has_edited_stays_and_what_others_have_added_is_no_edit() -> None:
    obj = live(OWN)
    obj["spec"]["replicas"] = 3
    assert decide(OWN, Seen(obj)).fate is Fate.STAYS
    assert "spec.replicas was edited" in decide(OWN, Seen(obj)).why
    obj = live(OWN)
    obj["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "1"
    assert decide(OWN, Seen(obj)).fate is Fate.DELETE


def test_of_what_has_no_record_the_field_managers_say_who_has_edited_it() -> None:
    obj = live(OURS, managedFields=[{"manager": "autarky-coredns"}, {"manager": "kubectl-edit"}])
    assert "kubectl-edit has written to it" in decide(OURS, Seen(obj)).why
    statuses = [{"manager": "autarky-coredns"}, {"manager": "x", "subresource": "status"}, {"manager": "kubelet"}]
    assert decide(OURS, Seen(live(OURS, managedFields=statuses))).fate is Fate.DELETE


def test_what_is_used_waits_for_pods_and_stays_for_workloads() -> None:
    obj = live(OURS)
    assert decide(OURS, Seen(obj, pods=["Pod kube-system/a"])).fate is Fate.WAIT
    assert decide(OURS, Seen(obj, ["Deployment kube-system/coredns"], ["Pod kube-system/a"])).fate is Fate.STAYS


def test_what_is_absent_is_forgotten_and_what_cannot_be_seen_or_is_going_is_not() -> None:
    assert decide(OURS, Seen(None)).fate is Fate.FORGET
    assert decide(OURS, None).fate is Fate.WAIT
    assert decide(OURS, Seen(live(OURS, deletionTimestamp="2026-01-01T00:00:00Z"))).fate is Fate.WAIT


def test_another_version_of_the_api_or_another_part_is_the_same_object() -> None:
    assert obsolete([replace(OWN, api_version="apps/v1beta1", part="x")], [OWN]) == []


def test_what_pods_refer_to_goes_after_the_workloads() -> None:
    config = Entry(ADD_ONS, "v1", "ConfigMap", "demo", "config")
    assert obsolete([OWN, config], []) == [OWN, config]
    assert obsolete([config, OWN], []) == [OWN, config]


def test_all_that_pods_refer_to_is_found() -> None:
    spec = {
        "serviceAccountName": "account",
        "imagePullSecrets": [{"name": "pull"}],
        "volumes": [
            {"name": "a", "configMap": {"name": "map"}},
            {"name": "b", "secret": {"secretName": "secret"}},
            {
                "name": "c",
                "projected": {"sources": [{"configMap": {"name": "map-2"}}, {"secret": {"name": "secret-2"}}]},
            },
            {"name": "d", "emptyDir": {}},
        ],
        "initContainers": [{"envFrom": [{"configMapRef": {"name": "map-3"}}]}],
        "containers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "secret-3"}}}, {"name": "x", "value": "y"}]}],
    }
    wanted = {
        *(("ServiceAccount", "account"), ("Secret", "pull"), ("ConfigMap", "map"), ("Secret", "secret")),
        *(("ConfigMap", "map-2"), ("Secret", "secret-2"), ("ConfigMap", "map-3"), ("Secret", "secret-3")),
    }
    assert references.of({"kind": "Pod", "spec": spec}) == wanted
    template = {"template": {"spec": spec}}
    assert references.of({"kind": "Deployment", "spec": template}) == wanted
    assert references.of({"kind": "CronJob", "spec": {"jobTemplate": {"spec": template}}}) == wanted
    assert references.of({"kind": "CronJob"}) == references.of({"kind": "Pod"}) == frozenset()
