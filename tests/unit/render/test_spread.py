"""Where the control plane and cluster DNS may run, and what a drain meets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from autarky.model.cluster import Taint
from autarky.render.values import CONTROL_PLANE_REQUESTED
from fakes.clusters import a_cluster, inputs_of
from unit.render.rendered import all_pods, objects, some_inputs

OWN = {"kube-controller-manager", "kube-scheduler", "autarky-operator"}
UNREACHABLE = "node.kubernetes.io/unreachable"


def found(inputs: Any, kind: str) -> dict[str, Any]:
    return {obj["metadata"]["name"]: obj for obj in objects(inputs) if obj["kind"] == kind}


def spread(inputs: Any) -> dict[str, Any]:
    [constraint] = found(inputs, "Deployment")["coredns"]["spec"]["template"]["spec"]["topologySpreadConstraints"]
    return dict(constraint)


def tainted(*taints: Taint, controls: int = 1, workers: int = 1) -> Any:
    cluster = a_cluster(controls=controls, workers=workers)
    nodes = tuple(replace(node, taints=taints) if node.control_plane else node for node in cluster.nodes)
    return inputs_of(replace(cluster, nodes=nodes))


@settings(max_examples=30, deadline=None)
@given(some_inputs())
def test_no_budget_lets_a_drain_wait_for_a_pod_that_can_go_nowhere(inputs) -> None:
    """Each allows at least one disruption at a time; where there is one node, all of them."""
    deployments = found(inputs, "Deployment")
    for name, budget in found(inputs, "PodDisruptionBudget").items():
        spec = budget["spec"]
        assert "minAvailable" not in spec
        assert spec["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        alone = len(inputs.cluster.nodes) == 1
        assert spec["maxUnavailable"] >= (deployments[name]["spec"]["replicas"] if alone else 1)
        assert spec["selector"]["matchLabels"] == deployments[name]["spec"]["selector"]["matchLabels"]


@settings(max_examples=30, deadline=None)
@given(some_inputs())
def test_with_several_control_nodes_no_deployment_lives_on_one_of_them_only(inputs) -> None:
    controls = len(inputs.cluster.control_nodes)
    for name, obj in found(inputs, "Deployment").items():
        if name in OWN:
            assert obj["spec"]["replicas"] == min(controls, 2 if name == "autarky-operator" else 3)
            [term] = obj["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"].values()
            assert term[0]["topologyKey"] == "kubernetes.io/hostname"


def test_every_deployment_leaves_a_node_that_is_gone_after_a_minute() -> None:
    for obj in found(inputs_of(a_cluster(controls=3)), "Deployment").values():
        tolerations = obj["spec"]["template"]["spec"]["tolerations"]
        fitting = next(t for t in tolerations if t.get("key", UNREACHABLE) == UNREACHABLE)
        assert fitting["tolerationSeconds"] == 60


@pytest.mark.parametrize(("controls", "workers", "domains"), [(1, 0, 1), (1, 1, 2), (3, 1, 2)])
def test_cluster_dns_waits_for_a_second_node_where_there_will_be_one(controls: int, workers: int, domains: int) -> None:
    """At the bootstrap the first node is there alone for a while, and no pod ever moves by itself."""
    assert spread(inputs_of(a_cluster(controls=controls, workers=workers)))["minDomains"] == domains


def test_cluster_dns_does_not_wait_for_a_node_that_it_may_not_run_on() -> None:
    assert spread(tainted(Taint("dedicated", "gpu", "NoSchedule")))["minDomains"] == 1
    assert spread(tainted(Taint("dedicated", "gpu", "PreferNoSchedule")))["minDomains"] == 2
    assert spread(tainted(Taint(CONTROL_PLANE_REQUESTED, "", "NoSchedule")))["minDomains"] == 2


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_taint_of_control_nodes_keeps_nothing_of_ours_off_them(effect: Any) -> None:
    for pod in all_pods(tainted(Taint(CONTROL_PLANE_REQUESTED, "", effect), controls=3)):
        tolerated = [
            t for t in pod.spec["tolerations"] if t.get("key", CONTROL_PLANE_REQUESTED) == CONTROL_PLANE_REQUESTED
        ]
        assert [t for t in tolerated if t.get("effect", effect) == effect], str(pod)
