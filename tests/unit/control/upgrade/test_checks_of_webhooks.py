"""The check before an upgrade: which webhooks that answer nobody could refuse what an upgrade writes."""

from __future__ import annotations

from typing import Any

import pytest

from autarky.control.upgrade.decide.checks_of_webhooks import has_ready_endpoint, selects, services_of
from autarky.model.components import API_SERVER, NAME_LABEL
from unit.control.upgrade.healthy import Object, a_node, found, only, short

SERVICE = ("policy", "gate")
NO_ENDPOINT = {SERVICE: "has no ready endpoint"}
ALL = ["*"]


def rule(
    resources: list[str], groups: list[str] = ALL, operations: list[str] = ALL, versions: list[str] = ALL, **more: Any
) -> Object:
    return {"apiGroups": groups, "apiVersions": versions, "operations": operations, "resources": resources, **more}


def configuration(*rules: Object, name: str = "gate", **webhook: Any) -> Object:
    service = {"namespace": SERVICE[0], "name": SERVICE[1]}
    return {
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [{"name": "a.gate", "clientConfig": {"service": service}, "rules": list(rules), **webhook}],
    }


def refuses(*rules: Object, **webhook: Any) -> bool:
    """Whether it is an error; else it is a warning."""
    return not only(webhooks=[configuration(*rules, **webhook)], services=NO_ENDPOINT).warning


def test_what_would_be_refused_is_named() -> None:
    one = only(webhooks=[configuration(rule(["pods", "leases"]))], services=NO_ENDPOINT)
    expected = (
        "ValidatingWebhookConfiguration gate refuses requests of an upgrade (leases, pods):"
        " its Service policy/gate has no ready endpoint"
    )
    assert short(one) == ("webhooks", expected, False)
    assert one.fix == (
        "repair policy/gate, or `kubectl delete validatingwebhookconfiguration gate` if nothing needs it any more"
    )


def test_one_that_is_for_something_else_only_warns() -> None:
    one = only(webhooks=[configuration(rule(["carts"], ["shop.example"]))], services=NO_ENDPOINT)
    expected = (
        "ValidatingWebhookConfiguration gate refuses requests of nothing of an upgrade, but of others:"
        " its Service policy/gate has no ready endpoint"
    )
    assert short(one) == ("webhooks", expected, True)


def test_two_webhooks_of_one_configuration_are_one_finding() -> None:
    both = configuration(rule(["pods"]))
    both["webhooks"] += configuration(rule(["nodes"]))["webhooks"]
    assert "(nodes, pods)" in only(webhooks=[both], services=NO_ENDPOINT).sentence


def test_one_that_answers_or_may_fail_or_cannot_be_known_is_no_finding() -> None:
    everything = rule(["*/*"])
    assert found(webhooks=[configuration(everything)], services={SERVICE: None}) == []
    assert found(webhooks=[configuration(everything, failurePolicy="Ignore")], services=NO_ENDPOINT) == []
    by_url = configuration(everything, clientConfig={"url": "https://gate.example"})
    assert found(webhooks=[by_url], services=NO_ENDPOINT) == []


def test_only_the_services_of_those_that_refuse_are_looked_up() -> None:
    kinds = [
        configuration(),
        configuration(failurePolicy="Ignore", clientConfig={"service": {"namespace": "x", "name": "y"}}),
    ]
    assert services_of(kinds) == {SERVICE}
    assert services_of([configuration(clientConfig={"url": "https://gate.example"}), {}, {"webhooks": 3}]) == set()
    assert services_of([configuration(failurePolicy=None)]) == {SERVICE}


@pytest.mark.parametrize(
    ("matching", "expected"),
    [
        (rule(["*"]), True),
        (rule(["*/*"]), True),
        (rule(["pods/*"], [""]), True),
        (rule(["*/status"], ["apps"]), True),
        (rule(["pods"], [""], ["CREATE"]), True),
        (rule(["controllerrevisions"], ["apps"]), True),
        (rule(["daemonsets"], ["apps"], ["UPDATE"]), True),
        (rule(["secrets"], [""]), True),
        (rule(["events"], ["events.k8s.io"]), True),
        (rule(["nodes/status"], [""]), True),
        (rule(["clusterroles"], ["rbac.authorization.k8s.io"]), True),
        (rule(["apiservices"], ["apiregistration.k8s.io"]), True),
        (rule(["controlplanes/status"], ["autarky.dev"]), True),
        (rule(["*"], scope="Cluster"), True),
        (rule(["pods"], scope="Namespaced"), True),
        (rule(["pods"], ["apps"]), False),
        (rule(["pods/exec"], [""], ["CONNECT"]), False),
        (rule(["*/scale"]), False),
        (rule(["pods"], [""], ["CONNECT"]), False),
        (rule(["pods/status"], [""], ["CREATE"]), False),
        (rule(["nodes"], [""], ["CREATE", "DELETE"]), False),
        (rule(["pods"], [""], scope="Cluster"), False),
        (rule(["nodes"], [""], scope="Namespaced"), False),
        (rule([]), False),
    ],
)
def test_its_rules_say_what_it_is_asked_about(matching: Object, expected: bool) -> None:
    assert refuses(matching) is expected


def test_versions_count_only_where_nothing_equivalent_is_sent() -> None:
    old = rule(["deployments"], ["apps"], versions=["v1beta1"])
    assert refuses(old)
    assert refuses(old, matchPolicy="Equivalent")
    assert not refuses(old, matchPolicy="Exact")
    assert refuses(rule(["deployments"], ["apps"], versions=["v1"]), matchPolicy="Exact")


def expression(operator: str, *values: str, key: str = "kubernetes.io/metadata.name") -> Object:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({}, True),
        (None, True),
        (expression("NotIn", "kube-system", "kube-public"), False),
        (expression("NotIn", "kube-public"), True),
        (expression("In", "kube-system"), True),
        (expression("In", "shop"), False),
        (expression("DoesNotExist"), False),
        (expression("Exists"), True),
        (expression("Exists", key="gate"), False),
        (expression("DoesNotExist", key="gate"), True),
        (expression("Like", "kube-*"), True),
        ({"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}, True),
        ({"matchLabels": {"kubernetes.io/metadata.name": "shop"}}, False),
        ({"matchLabels": {"gate": "on"}}, False),
    ],
)
def test_a_namespace_selector_may_leave_kube_system_out(selector: Any, expected: bool) -> None:
    assert refuses(rule(["pods"]), namespaceSelector=selector) is expected


def test_other_labels_of_kube_system_count_as_well() -> None:
    ours = configuration(rule(["pods"]), namespaceSelector=expression("NotIn", "off", key="gate"))
    assert only(webhooks=[ours], services=NO_ENDPOINT, system_labels={"gate": "off"}).warning
    assert not only(webhooks=[ours], services=NO_ENDPOINT, system_labels={}).warning
    named = configuration(rule(["pods"]), namespaceSelector=expression("NotIn", "kube-system"))
    assert only(webhooks=[named], services=NO_ENDPOINT, system_labels={}).warning


def test_what_is_in_no_namespace_is_not_left_out_by_a_namespace() -> None:
    assert refuses(rule(["nodes"]), namespaceSelector=expression("NotIn", "kube-system"))


def test_an_object_selector_is_compared_with_what_an_upgrade_writes() -> None:
    assert refuses(rule(["pods"]), objectSelector={"matchLabels": {NAME_LABEL: API_SERVER}})
    assert refuses(rule(["daemonsets"]), objectSelector={"matchLabels": {"app.kubernetes.io/managed-by": "autarky"}})
    assert refuses(rule(["replicasets"]), objectSelector=expression("Exists", key="pod-template-hash"))
    assert refuses(rule(["leases"]), objectSelector=expression("DoesNotExist", key="gate"))
    assert not refuses(rule(["*"]), objectSelector={"matchLabels": {"gate": "on"}})
    assert not refuses(rule(["clusterroles"]), objectSelector={"matchLabels": {NAME_LABEL: API_SERVER}})


def test_an_object_selector_is_compared_with_the_labels_of_nodes() -> None:
    labelled = a_node("n1")
    labelled["metadata"]["labels"]["zone"] = "a"
    by_zone = configuration(rule(["nodes"]), objectSelector={"matchLabels": {"zone": "a"}})
    assert not only(webhooks=[by_zone], services=NO_ENDPOINT, nodes=[labelled]).warning
    assert only(webhooks=[by_zone], services=NO_ENDPOINT).warning


def test_match_conditions_are_not_evaluated() -> None:
    never = [{"name": "never", "expression": "false"}]
    assert refuses(rule(["pods"]), matchConditions=never)


def test_an_endpoint_that_says_nothing_of_itself_is_ready() -> None:
    assert has_ready_endpoint({"endpoints": [{"conditions": {"ready": False}}, {"conditions": {"ready": True}}]})
    assert has_ready_endpoint({"endpoints": [{"addresses": ["10.0.0.1"]}]})
    assert not has_ready_endpoint({"endpoints": [{"conditions": {"ready": False}}]})
    assert not has_ready_endpoint({"endpoints": None})


def test_a_selector_that_cannot_be_understood_excludes_nothing() -> None:
    assert selects({"matchLabels": 3, "matchExpressions": [7, {"operator": []}]}, {})
