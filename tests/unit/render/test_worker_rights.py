"""What lies on a worker may write no Node, pod, Secret or right: a rule over everything that is rendered."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from autarky.control.addons.flannel import policies
from autarky.control.certificates import decide as certificates
from autarky.control.control_nodes.decide import observed as control_nodes
from autarky.control.etcd.manifests import members as etcd_members
from autarky.control.guards.manifests import nodes as guards
from autarky.control.kubelet.decide import hosted_report
from autarky.control.kubelet.decide import report as kubelet_report
from autarky.control.slots.decide import report as node_slots
from autarky.model.components import FLANNEL
from autarky.ports import Object
from autarky.render.values import CONTROL_PLANE_ACTIVE, SYSTEM, WITHDRAWN, Inputs
from unit.render.rendered import EVERY_LEVEL, objects, static_pods

READING = {"get", "list", "watch"}
GUARDED = {
    "nodes",
    "pods",
    "secrets",
    "roles",
    "clusterroles",
    "rolebindings",
    "clusterrolebindings",
    "serviceaccounts",
    "*",
}
AS_GOOD_AS_WRITING = {
    *("secrets", "*", "nodes/proxy", "*/proxy", "serviceaccounts/token", "*/token"),
    *("pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "*/*"),
}
"""Whatever the verb."""
BUILT_IN = {
    "system:node-proxier": [
        {"resources": ["services", "nodes", "endpointslices", "servicecidrs"], "verbs": sorted(READING)},
        {"resources": ["events"], "verbs": ["create", "patch", "update"]},
    ],
}
"""Roles of Kubernetes' own, as its API server makes them."""
POLICED = {(FLANNEL, "nodes/status", "patch")}
"""Allowed by RBAC and held by a policy to flannel's own report (`guards`)."""


def accounts_on_workers(inputs: Inputs) -> set[str]:
    """The ServiceAccounts whose tokens are mounted on nodes that are no control nodes, or may be."""
    found = set()
    for obj in objects(inputs):
        if obj["kind"] in ("DaemonSet", "Deployment"):
            pod = obj["spec"]["template"]["spec"]
            mounted = pod.get("automountServiceAccountToken", True)
            if mounted and CONTROL_PLANE_ACTIVE not in (pod.get("nodeSelector") or {}):
                found.add(pod.get("serviceAccountName", "default"))
    return found


def rules_of(inputs: Inputs, is_subject: object) -> Iterator[Object]:
    rendered = objects(inputs)
    roles = {(o["kind"], o["metadata"]["name"]): o["rules"] for o in rendered if o["kind"] in ("Role", "ClusterRole")}
    for binding in rendered:
        if binding["kind"] in ("RoleBinding", "ClusterRoleBinding") and is_subject in _names(binding):
            role = binding["roleRef"]
            yield from roles.get((role["kind"], role["name"])) or BUILT_IN[role["name"]]


def _names(binding: Object) -> set[tuple[str, str]]:
    return {(subject["kind"], subject["name"]) for subject in binding["subjects"]}


def writes(rules: Iterator[Object]) -> set[tuple[str, str]]:
    """(resource, verb) of what changes something that is guarded, or is as good as that."""
    granted = {(resource, verb) for rule in rules for resource in rule.get("resources", ()) for verb in rule["verbs"]}
    return {(resource, verb) for resource, verb in granted if _is_a_write(resource, verb)}


def _is_a_write(resource: str, verb: str) -> bool:
    """Secrets are others' credentials, and so are tokens that are asked for; who may `get` nodes/proxy runs commands in
    the pods of any node: a kubelet takes a WebSocket's GET for that."""
    if resource in AS_GOOD_AS_WRITING:
        return True
    return resource.partition("/")[0] in GUARDED and verb not in READING


@pytest.mark.parametrize(
    ("resource", "verb"),
    [
        *(("nodes/proxy", "get"), ("nodes/proxy", "create"), ("*/proxy", "get"), ("serviceaccounts/token", "create")),
        *(("serviceaccounts", "impersonate"), ("secrets", "watch"), ("*", "list"), ("pods/exec", "create")),
        *(("pods/exec", "get"), ("pods/attach", "get"), ("pods/portforward", "get"), ("nodes", "*")),
        *(("pods/ephemeralcontainers", "patch"), ("nodes/status", "update")),
    ],
)
def test_what_is_as_good_as_a_write_counts_as_one(resource, verb):
    rule = {"resources": ["configmaps", resource], "verbs": ["get", verb]}
    assert (resource, verb) in writes(iter([rule]))


@pytest.mark.parametrize(("resource", "verb"), [("nodes", "watch"), ("configmaps", "update"), ("pods/log", "get")])
def test_what_changes_nothing_that_is_guarded_is_no_write(resource, verb):
    assert writes(iter([{"resources": [resource], "verbs": [verb]}])) == set()


@pytest.mark.parametrize("inputs", EVERY_LEVEL, ids=lambda inputs: inputs.cluster.self_hosted.name)
def test_no_account_that_is_mounted_on_workers_writes_nodes_pods_secrets_or_rights(inputs):
    accounts = accounts_on_workers(inputs)
    assert accounts >= {"kube-proxy", "kube-flannel", "coredns"}
    found = {
        (account, *granted) for account in accounts for granted in writes(rules_of(inputs, ("ServiceAccount", account)))
    }
    assert found == POLICED


@pytest.mark.parametrize("inputs", EVERY_LEVEL, ids=lambda inputs: inputs.cluster.self_hosted.name)
def test_nothing_that_all_kubelets_are_bound_to_writes_those_either(inputs):
    assert writes(rules_of(inputs, ("Group", "system:nodes"))) == set()
    for binding in objects(inputs):
        if binding["kind"].endswith("Binding") and "subjects" in binding:
            assert not {name for kind, name in _names(binding) if name.startswith("system:serviceaccounts")}


def test_what_rbac_lets_flannel_write_is_held_by_a_policy_that_fails_closed():
    [policy] = [
        obj
        for obj in policies.objects()
        if obj["kind"] == "ValidatingAdmissionPolicy" and obj["metadata"]["name"] == policies.REPORT
    ]
    assert f"{SYSTEM}:{FLANNEL}" in policy["spec"]["matchConditions"][0]["expression"]
    assert policy["spec"]["failurePolicy"] == "Fail"
    [rule] = policy["spec"]["matchConstraints"]["resourceRules"]
    assert rule["resources"] == ["nodes", "nodes/status"]


def test_what_heartbeats_meet_has_no_parameter_or_lets_them_through_where_it_cannot_be_judged():
    """A parameter that cannot be read refuses the write before any condition is looked at."""
    for policy in (
        obj for obj in [*guards.objects(), *policies.objects()] if obj["kind"] == "ValidatingAdmissionPolicy"
    ):
        spec = policy["spec"]
        updates = any("UPDATE" in rule["operations"] for rule in spec["matchConstraints"]["resourceRules"])
        assert spec["matchConditions"], "it would be asked of everything"
        assert "paramKind" not in spec or spec["failurePolicy"] == "Ignore" or not updates, policy["metadata"]["name"]
    for binding in (
        obj for obj in [*guards.objects(), *policies.objects()] if obj["kind"] == "ValidatingAdmissionPolicyBinding"
    ):
        if "paramRef" in binding["spec"]:
            assert binding["spec"]["paramRef"]["parameterNotFoundAction"] == "Allow"


def test_what_agents_tell_on_their_nodes_is_a_report_that_the_guards_let_through():
    reported = {certificates.ANNOTATION, node_slots.ANNOTATION, control_nodes.ANNOTATION, WITHDRAWN}
    reported |= {kubelet_report.ANNOTATION, hosted_report.ANNOTATION}
    assert reported == set(guards.REPORTS)


def passes_for_a_hosted_pod(labels: dict[str, str]) -> bool:
    """What the policy asks of a mirror pod."""
    return labels.get("autarky.dev/slot") == "hosted" or labels.get("k8s-app") in guards.HOSTED_ONLY


@pytest.mark.parametrize("inputs", EVERY_LEVEL, ids=lambda inputs: inputs.cluster.self_hosted.name)
def test_nothing_of_ours_selects_a_pod_that_a_worker_may_show(inputs):
    """Disruption budgets above all: one that selects a static pod lets no pod go."""
    rendered = [*objects(inputs), etcd_members.guard("pause", ["n1"], []), etcd_members.guard_budget(1)]
    selectors = {
        (obj["kind"], obj["metadata"]["name"]): selector.get("matchLabels", selector)
        for obj in rendered
        if obj["metadata"].get("namespace") == SYSTEM and (selector := obj.get("spec", {}).get("selector"))
    }
    assert {kind for kind, _ in selectors} == {"DaemonSet", "Deployment", "PodDisruptionBudget", "Service"}
    assert {name: labels for name, labels in selectors.items() if not passes_for_a_hosted_pod(labels)} == {}


@pytest.mark.parametrize("inputs", EVERY_LEVEL, ids=lambda inputs: inputs.cluster.self_hosted.name)
def test_no_static_pod_of_ours_passes_for_a_hosted_one(inputs):
    labels = [pod["metadata"]["labels"] for pod in static_pods(inputs)]
    assert {one["k8s-app"] for one in labels} >= {"kube-scheduler", "etcd", "node-agent"}
    assert [one for one in labels if passes_for_a_hosted_pod(one)] == []
