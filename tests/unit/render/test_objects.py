"""Properties that hold of all rendered objects, whatever the cluster."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autarky.control.certificates.manifests import leaves
from autarky.control.control_nodes.manifests import AUTHORITIES
from autarky.control.drift.decide.applied import EDITABLE
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.leadership import manifests as controllers
from autarky.model.cluster import Level
from autarky.model.versions import Version
from autarky.render import access, crds, pods
from autarky.render.objects import parts
from autarky.render.values import RENDERED_HASH, Credentials, Object
from fakes.clusters import a_cluster, inputs_of
from unit.render.rendered import EVERY_LEVEL, all_pods, arguments, objects, some_inputs, strings

quickly = settings(max_examples=25, deadline=None)


def named_by_content(rendered: list[Object]) -> dict[tuple[str, str], Object]:
    """(kind, component) → the immutable object of that component."""
    immutable = [obj for obj in rendered if obj["kind"] in ("Secret", "ConfigMap") and "immutable" in obj]
    return {(obj["kind"], obj["metadata"]["labels"]["k8s-app"]): obj for obj in immutable}


def kinds_and_names(rendered: list[Object]) -> list[tuple[str, str]]:
    return [(obj["kind"], obj["metadata"]["name"]) for obj in rendered]


def key_of(obj):
    meta = obj["metadata"]
    return obj["kind"], meta.get("namespace"), meta["name"]


@quickly
@given(some_inputs())
def test_the_same_values_render_to_the_same_objects(inputs):
    assert objects(inputs) == objects(inputs)


@quickly
@given(some_inputs())
def test_every_secret_and_config_map_of_a_component_is_immutable(inputs):
    for obj in objects(inputs):
        shared = obj["metadata"]["name"] in (access.INVENTORY, etcd.TEMPLATE, leaves.CONFIG_MAP, AUTHORITIES, *EDITABLE)
        if obj["kind"] in ("Secret", "ConfigMap") and not shared:
            assert obj["immutable"] is True


@quickly
@given(some_inputs(), st.data())
def test_a_secret_has_a_new_name_if_and_only_if_its_content_is_new(inputs, data):
    files = dict(inputs.credentials.files)
    changed = data.draw(st.sampled_from(sorted(files)))
    after = replace(inputs, credentials=Credentials({**files, changed: b"something else\n"}))
    old, new = named_by_content(objects(inputs)), named_by_content(objects(after))
    assert old.keys() == new.keys()
    for key, obj in old.items():
        same_content = obj["data"] == new[key]["data"]
        assert same_content == (obj["metadata"]["name"] == new[key]["metadata"]["name"])


@quickly
@given(some_inputs())
def test_pods_refer_to_secrets_config_maps_and_accounts_that_are_rendered_too(inputs):
    there = {(obj["kind"], obj["metadata"]["name"]) for obj in objects(inputs)}
    for pod in all_pods(inputs):
        if "serviceAccountName" in pod.spec:
            assert ("ServiceAccount", pod.spec["serviceAccountName"]) in there
        for volume in pod.spec.get("volumes", ()):
            if "secret" in volume:
                assert ("Secret", volume["secret"]["secretName"]) in there
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in there


@quickly
@given(some_inputs())
def test_an_object_says_which_rendering_it_is_and_a_new_one_says_otherwise(inputs):
    first = {key_of(obj): obj for obj in objects(inputs)}
    changed = replace(inputs, images={name: f"{image}-new" for name, image in inputs.images.items()})
    for obj in objects(changed):
        before = first[key_of(obj)]
        same = before["metadata"]["annotations"][RENDERED_HASH] == obj["metadata"]["annotations"][RENDERED_HASH]
        assert same == (before == obj)
        names_images = obj["kind"] in ("DaemonSet", "Deployment") or obj["metadata"]["name"] == etcd.TEMPLATE
        assert same == (not names_images)


@quickly
@given(some_inputs())
def test_no_object_is_rendered_twice_and_each_part_has_its_own_manager(inputs):
    rendered = parts(inputs)
    names = [key_of(obj) for obj in objects(inputs)]
    assert len(names) == len(set(names))
    assert len({part.manager for part in rendered}) == len(rendered)


@quickly
@given(some_inputs())
def test_definitions_come_before_what_they_define_and_the_control_plane_before_the_workloads_it_is_about(inputs):
    kinds = [obj["kind"] for obj in objects(inputs)]
    assert kinds.index("Namespace") == 0
    assert kinds.index("CustomResourceDefinition") < kinds.index("ControlPlane")
    names = [
        obj["metadata"]["name"] for obj in objects(inputs) if obj["kind"] in ("ControlPlane", "DaemonSet", "Deployment")
    ]
    about = [name for name in names if name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")]
    assert all(names.index("cluster") < names.index(name) for name in about)


@quickly
@given(some_inputs())
def test_selectors_select_the_pods_of_their_own_template(inputs):
    for obj in objects(inputs):
        if obj["kind"] in ("DaemonSet", "Deployment"):
            labels = obj["spec"]["template"]["metadata"]["labels"]
            assert obj["spec"]["selector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize(
    ("level", "workloads"),
    [
        (Level.ETCD, {"kube-apiserver", "kube-controller-manager", "kube-scheduler"}),
        (Level.API_SERVER, {"kube-apiserver", "kube-controller-manager", "kube-scheduler"}),
        (Level.CONTROLLERS, {"kube-controller-manager", "kube-scheduler"}),
        (Level.ADD_ONS, set()),
    ],
)
def test_levels_that_are_not_hosted_have_no_workloads(level, workloads):
    rendered = objects(inputs_of(a_cluster(level)))
    found = {obj["metadata"]["name"] for obj in rendered if obj["kind"] in ("DaemonSet", "Deployment")}
    assert found == workloads | {"kube-proxy", "kube-flannel", "coredns", "node-agent", "autarky-operator"}


def test_the_endpoints_of_the_api_are_the_load_balancers_of_all_control_nodes():
    [slice_] = [obj for obj in objects(EVERY_LEVEL[0]) if obj["kind"] == "EndpointSlice"]
    assert [endpoint["addresses"] for endpoint in slice_["endpoints"]] == [
        ["192.0.2.11"],
        ["192.0.2.12"],
        ["192.0.2.13"],
    ]
    assert [port["port"] for port in slice_["ports"]] == [6443]


@pytest.mark.parametrize(("controls", "replicas"), [(1, 1), (2, 2), (3, 3), (5, 3)])
def test_controllers_have_as_many_replicas_as_there_are_nodes_for_them(controls, replicas):
    _, deployment, _ = controllers.hosted(inputs_of(a_cluster(controls=controls)), "kube-scheduler")
    assert deployment["spec"]["replicas"] == replicas


@pytest.mark.parametrize(("version", "known"), [("1.35.4", False), ("1.36.3", True), ("1.37.1", True)])
def test_a_gate_is_set_only_for_versions_that_know_it(version: str, known: bool):
    inputs = inputs_of(replace(a_cluster(), kubernetes_version=Version.parse(version)))
    _, deployment, _ = controllers.hosted(inputs, "kube-controller-manager")
    command = deployment["spec"]["template"]["spec"]["containers"][0]["command"]
    assert any("LeaderElectionLockOnExit" in word for word in command) is known


def test_a_rollout_of_the_controllers_starts_the_new_one_beside_the_old_and_never_two_of_one_template():
    _, deployment, budget = controllers.hosted(inputs_of(a_cluster()), "kube-scheduler")
    assert deployment["spec"]["strategy"] == pods.rolling(surge=1, unavailable="50%"), "rounded down: of one none"
    template = deployment["spec"]["template"]["spec"]
    [term] = template["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["matchLabelKeys"] == ["pod-template-hash"]
    assert arguments(template["containers"][0])["permit-port-sharing"] == "true"
    assert budget["spec"]["maxUnavailable"] == 1


def test_nobody_but_the_users_group_is_bound_to_cluster_admin():
    for obj in objects(EVERY_LEVEL[0]):
        if obj["kind"] == "ClusterRoleBinding" and obj["roleRef"]["name"] == "cluster-admin":
            assert [subject["name"] for subject in obj["subjects"]] == ["autarky:cluster-admins"]
        assert "system:masters" not in set(strings(obj))


def test_no_role_of_ours_has_wildcards():
    """Among names "*" is none: it is a name, which no object can have (the operator's `configmaps`)."""
    for obj in objects(EVERY_LEVEL[0]):
        if obj["kind"] == "ClusterRole":
            for rule in obj["rules"]:
                named = rule.get("resourceNames", [])
                assert all("*" not in values for key, values in rule.items() if key != "resourceNames")
                # RBAC takes this for a name, which nothing has (tests/contract/kube/test_policies_come_back.py).
                assert "*" not in named or rule == {**NO_CONFIG_MAP, "resourceNames": ["*"]}


NO_CONFIG_MAP = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}


def test_the_ca_key_is_in_no_secret_but_those_of_the_controller_manager_and_the_operator():
    private = base64.b64encode(b"PRIVATE key of ca\n").decode()
    holders = [obj["metadata"]["labels"]["k8s-app"] for obj in objects(EVERY_LEVEL[0]) if private in strings(obj)]
    assert holders == ["kube-controller-manager", "autarky-operator"]


def test_the_control_plane_object_is_what_its_own_definition_allows():
    arguments_ = {"kube-apiserver": {"v": "2"}, "kube-scheduler": {}}
    obj = crds.control_plane(a_cluster(Level.ADD_ONS, extra_args=arguments_))
    [version] = crds.control_plane_crd()["spec"]["versions"]
    allowed = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert set(allowed["required"]) <= set(obj["spec"]) <= set(allowed["properties"])
    assert obj["spec"]["selfHosted"] in allowed["properties"]["selfHosted"]["enum"]
    assert obj["spec"]["componentArguments"] == {"kube-apiserver": {"v": "2"}}
    assert obj["apiVersion"] == f"{crds.GROUP}/{version['name']}"
    assert obj["metadata"]["name"] == "cluster"


def test_a_join_token_names_the_one_node_it_is_for_and_may_only_authenticate():
    node = a_cluster().nodes[0]
    token = access.join_token(node, "abcdef", "0123456789abcdef", "2026-11-21T13:00:00Z")
    assert token["metadata"]["annotations"] == {access.TOKEN_NODE: "n1"}
    assert token["metadata"]["name"] == "bootstrap-token-abcdef"
    assert token["stringData"]["auth-extra-groups"] == access.BOOTSTRAPPERS
    assert "usage-bootstrap-signing" not in token["stringData"]
