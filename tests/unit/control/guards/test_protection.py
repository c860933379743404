"""The policy's form. What it lets through and what not is asked of a real API server in the e2e suite."""

from __future__ import annotations

from autarky.control.etcd.manifests import members as etcd_members
from autarky.control.guards.manifests import protection
from autarky.model.components import COREDNS
from fakes.clusters import a_cluster, inputs_of
from unit.render.rendered import objects

POLICY, BINDING = protection.objects()


def test_it_denies_and_never_by_a_mistake_of_its_own():
    assert POLICY["spec"]["failurePolicy"] == "Ignore"
    assert BINDING["spec"] == {"policyName": protection.NAME, "validationActions": ["Deny"]}


def test_it_is_about_kube_system_only():
    constraints = POLICY["spec"]["matchConstraints"]
    assert constraints["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}


def test_what_the_cluster_heals_itself_with_is_not_matched():
    """Bindings and evictions of pods, their status, leases, nodes: not a question is asked."""
    named = {resource for rule in POLICY["spec"]["matchConstraints"]["resourceRules"] for resource in rule["resources"]}
    assert not named & {"*", "pods/*", "pods/binding", "pods/eviction", "pods/status", "leases", "nodes"}
    [_, somebody_else] = POLICY["spec"]["matchConditions"]
    for name in ("system:nodes", "system:serviceaccounts:kube-system", "system:kube-scheduler"):
        assert f"'{name}'" in somebody_else["expression"]


def test_every_deployment_of_ours_is_known_by_name():
    """What is written to scale one has no labels."""
    rendered = objects(inputs_of(a_cluster()))
    of_up = {o["metadata"]["name"] for o in rendered if o["kind"] == "Deployment"}
    assert set(protection.SCALED) == {*of_up, etcd_members.guard("pause", ["n1"], [])["metadata"]["name"]}
    assert COREDNS in protection.SCALED


def test_every_pod_of_ours_bears_a_label_that_is_guarded():
    rendered = [*objects(inputs_of(a_cluster())), etcd_members.guard("pause", ["n1"], [])]
    for template in (obj["spec"]["template"] for obj in rendered if obj["kind"] in ("DaemonSet", "Deployment")):
        labels = template["metadata"]["labels"]
        assert labels.get("app.kubernetes.io/managed-by") == "autarky" or "autarky.dev/slot" in labels, labels


def test_every_object_of_ours_there_bears_the_label_and_is_of_a_kind_that_is_guarded():
    plural = {
        resource.rstrip("s")
        for rule in POLICY["spec"]["matchConstraints"]["resourceRules"]
        for resource in rule["resources"]
    }
    for obj in objects(inputs_of(a_cluster())):
        if obj["metadata"].get("namespace") == "kube-system":
            assert obj["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "autarky", obj["metadata"]["name"]
            assert obj["kind"].lower() in plural, obj["kind"]
