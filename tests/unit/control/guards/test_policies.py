"""What the policies are asked about, and that nothing of ours is refused. What they let through is asked of a real API
server."""

from __future__ import annotations

import pytest

from autarky.control.addons.flannel import policies
from autarky.control.etcd.manifests import members as etcd_members
from autarky.control.guards.manifests import all as admission
from autarky.control.guards.manifests import nodes as guards
from autarky.control.guards.manifests.policies import POLICY
from autarky.control.kubelet.decide import hosted_report
from autarky.render.values import SYSTEM, Inputs, Object
from unit.render.rendered import EVERY_LEVEL, objects, static_pods


def _rules(policy: Object) -> list[Object]:
    return list(policy["spec"]["matchConstraints"]["resourceRules"])


def test_heartbeats_meet_only_the_policies_about_nodes() -> None:
    """Each costs every kubelet's heartbeat something, by many kubelets at once."""
    rules = [
        (policy["metadata"]["name"], rule)
        for policy in admission.objects()
        if policy["kind"] == POLICY
        for rule in _rules(policy)
    ]
    met = {
        name
        for name, rule in rules
        if {"nodes", "nodes/status", "leases"} & set(rule["resources"]) and "UPDATE" in rule["operations"]
    }
    assert met == {guards.ORDERS, policies.REPORT, policies.ADDRESSES, policies.TUNNELS}
    by_pattern = [name for name, rule in rules for one in (*rule["resources"], *rule["operations"]) if "*" in one]
    assert by_pattern == [], "what they meet is not known by their words"


@pytest.mark.parametrize("inputs", EVERY_LEVEL, ids=lambda inputs: inputs.cluster.self_hosted.name)
def test_our_pods_are_where_their_priority_is_let_through(inputs: Inputs) -> None:
    workloads = [obj for obj in objects(inputs) if "template" in obj.get("spec", {})]
    workloads.append(etcd_members.guard("pause", ["n1"], []))
    found = [*static_pods(inputs), *workloads]
    assert len(found) > 5
    assert {obj["metadata"]["namespace"] for obj in found} == {SYSTEM}


@pytest.mark.parametrize("inputs", EVERY_LEVEL, ids=lambda inputs: inputs.cluster.self_hosted.name)
def test_no_static_pod_of_ours_has_anti_affinity(inputs: Inputs) -> None:
    assert [pod["metadata"]["name"] for pod in static_pods(inputs) if "affinity" in pod["spec"]] == []


def test_what_a_node_reports_of_its_hosted_kubelet_is_its_own_and_the_turn_is_not() -> None:
    """All others of ours are orders: the policy names those that are none."""
    assert hosted_report.ANNOTATION in guards.REPORTS
    assert hosted_report.TURN.startswith("autarky.dev/")
    assert hosted_report.TURN not in guards.REPORTS
    (orders,) = [
        one for one in admission.objects() if one["kind"] == POLICY and one["metadata"]["name"] == guards.ORDERS
    ]
    conditions = " ".join(one["expression"] for one in orders["spec"]["matchConditions"])
    assert f"'{hosted_report.ANNOTATION}'" in conditions
    assert hosted_report.TURN not in conditions
