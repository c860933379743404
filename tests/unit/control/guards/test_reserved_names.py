"""The names that are reserved are those of what autarky believes. What follows is asked of a real API server."""

from __future__ import annotations

import pytest

from autarky.control.agents.manifests.operator import retired_name
from autarky.control.control_nodes.manifests import AUTHORITIES, RECORD
from autarky.control.guards.manifests import all as admission
from autarky.control.guards.manifests import reserved
from autarky.control.guards.manifests.policies import BINDING, POLICY
from autarky.control.rollout.manifests import secret_name
from autarky.model.components import WITH_STANDBY
from autarky.render.values import SYSTEM, Inputs
from unit.render.rendered import EVERY_LEVEL, objects


@pytest.mark.parametrize("inputs", EVERY_LEVEL, ids=lambda inputs: inputs.cluster.self_hosted.name)
def test_every_secret_and_config_map_of_ours_has_a_reserved_name(inputs: Inputs) -> None:
    rendered = [obj for obj in objects(inputs) if obj["kind"] in ("Secret", "ConfigMap")]
    names = {obj["metadata"]["name"] for obj in rendered if obj["metadata"]["namespace"] == SYSTEM}
    assert len(names) == len(rendered) > 5
    kept = {name(component) for name in (retired_name, secret_name) for component in WITH_STANDBY}
    believed = {RECORD, AUTHORITIES, "kube-root-ca.crt"}
    assert {name for name in names | kept | believed if not reserved.is_reserved(name)} == set()


@pytest.mark.parametrize(
    "name", ["kube-root-ca-crt", "coredns-custom", "kube-proxy", "my-autarky-x", "kube-proxy-0123456789a"]
)
def test_others_have_names_of_their_own(name: str) -> None:
    assert not reserved.is_reserved(name)


def test_no_policy_is_without_its_binding_and_none_is_there_twice() -> None:
    names = {
        kind: [obj["metadata"]["name"] for obj in admission.objects() if obj["kind"] == kind]
        for kind in (POLICY, BINDING)
    }
    assert names[POLICY] == names[BINDING]
    assert len(set(names[POLICY])) == len(names[POLICY])
    assert reserved.NAME in names[POLICY]
