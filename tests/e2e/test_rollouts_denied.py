"""A rollout whose pods are never made, on one node: a policy of the cluster's refuses them. It goes back, nothing has
stopped serving meanwhile, and it may be applied again when the policy is gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from harness import TestCluster
from rollouts import SCHEDULER, adding_flag, edit, explanations, last_good, quiet, template, undisturbed

pytestmark = [pytest.mark.e2e, pytest.mark.shares("one_node"), pytest.mark.rotation, pytest.mark.timeout(600)]

FLAG = "--v=3"


@pytest.fixture(scope="module")
def cluster(one_node: TestCluster) -> TestCluster:
    quiet(one_node)
    return one_node


@contextmanager
def pods_are_refused_that_have(cluster: TestCluster, flag: str) -> Iterator[None]:
    group, name = "admissionregistration.k8s.io/v1", {"name": "no-such-flag"}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    has = f"object.spec.containers.exists(one, has(one.command) && one.command.exists(word, word == '{flag}'))"
    policy = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": f"!{has}", "message": f"nobody may say {flag}"}],
    }
    binding = {"policyName": "no-such-flag", "validationActions": ["Deny"]}
    objects = [
        {"apiVersion": group, "kind": kind, "metadata": name, "spec": spec}
        for kind, spec in (("ValidatingAdmissionPolicy", policy), ("ValidatingAdmissionPolicyBinding", binding))
    ]
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    refused = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "refused", "namespace": "default"}}
    refused["spec"] = {"containers": [{"name": "one", "image": "none", "command": ["one", flag]}]}

    def is_enforced() -> bool:
        said = cluster.kubectl(
            "create", "--dry-run=server", "-o", "name", "-f", "-", stdin=json.dumps(refused), check=False
        )
        return not said

    try:
        cluster.wait("the policy is enforced", is_enforced, seconds=60)
        yield
    finally:
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            cluster.kubectl("delete", kind, "no-such-flag")


def test_a_rollout_whose_pods_are_refused_goes_back_and_may_be_applied_again(cluster: TestCluster) -> None:
    before, good = template(cluster, SCHEDULER), last_good(cluster, SCHEDULER)
    told = len(explanations(cluster, SCHEDULER))
    with undisturbed(cluster):
        with pods_are_refused_that_have(cluster, FLAG):
            edit(cluster, SCHEDULER, adding_flag(SCHEDULER, FLAG))
            assert template(cluster, SCHEDULER) != before
            cluster.wait("it goes back", lambda: template(cluster, SCHEDULER) == before, seconds=240, pause=1)
            assert len(explanations(cluster, SCHEDULER)) == told + 1
            assert "no pod of it was made" in explanations(cluster, SCHEDULER)[-1]
        edit(cluster, SCHEDULER, adding_flag(SCHEDULER, FLAG))
        cluster.wait("it is good", lambda: last_good(cluster, SCHEDULER) != good, seconds=120)
        assert FLAG in template(cluster, SCHEDULER)["spec"]["containers"][0]["command"]
        cluster.kubectl("-n", "kube-system", "rollout", "undo", SCHEDULER)
        quiet(cluster)
