"""A complete hosted pod as a checkpoint: the same effect as the rendered standby, and a name from content alone."""

from __future__ import annotations

import copy
import json
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autarky.control.agents.manifests import node_agent as agent
from autarky.control.checkpoint.manifests import images, is_checkpoint, references, revision_from_pod
from autarky.control.checkpoint.manifests.defaults import (
    PROBES,
    pruned,
    without_container_defaults,
    without_volume_defaults,
)
from autarky.control.slots import manifests as standby
from autarky.control.slots.manifests import Revision
from autarky.errors import Refused
from autarky.model import patience
from autarky.model.components import API_SERVER, NODE_AGENT, WITH_STANDBY
from autarky.render import pods
from autarky.render.values import Inputs, Object
from fakes.clusters import IMAGES, a_cluster, inputs_of
from fakes.hosted_pods import completed, contents_of, hosted_objects, pod_of_template
from unit.render.checkpoints import SCHEDULER, a_pod, checkpoint, container_in, pod_in, spec_in
from unit.render.rendered import EXTERNAL, arguments, some_inputs, strings

every_component = pytest.mark.parametrize("component", WITH_STANDBY)
LEAVES = "/var/lib/autarky/leaves/"
quickly = settings(max_examples=15, deadline=None)


def of_hosted(inputs: Inputs, component: str) -> Revision:
    """The checkpoint of the live pod that the rendered hosted slot becomes."""
    objects = hosted_objects(inputs, component)
    return revision_from_pod(component, completed(pod_of_template(objects)), *contents_of(objects))


def effect(revision: Revision) -> Object:
    """What a revision runs, with the content of a file in place of where it lies."""
    pod = pod_in(revision)
    [container] = pod["spec"]["containers"]
    files = {file.path: file.content.decode() for file in revision.files}
    places = {volume["name"]: volume["hostPath"]["path"] for volume in pod["spec"]["volumes"]}
    mounts = {mount["mountPath"]: places[mount["name"]] for mount in container["volumeMounts"]}

    def content(value: str) -> str:
        path = PurePosixPath(value)
        if value.startswith(LEAVES):  # the same files in both slots, which the node's agent keeps
            return value
        return files[f"{mounts[str(path.parent)]}/{path.name}"] if str(path.parent) in mounts else value

    flags = {name: content(value) for name, value in arguments(container).items()}
    rest = {key: container[key] for key in container.keys() - {"command", "volumeMounts"}}
    spec = {key: value for key, value in pod["spec"].items() if key not in ("containers", "volumes")}
    return {
        "metadata": {key: value for key, value in pod["metadata"].items() if key != "annotations"},
        "spec": spec,
        "program": container["command"][0],
        "flags": flags,
        "container": without_container_defaults(pruned(rest)),
        "read-only": all(mount["readOnly"] for mount in container["volumeMounts"]),
    }


@every_component
@pytest.mark.parametrize("external", [None, EXTERNAL], ids=["own etcd", "external etcd"])
def test_the_checkpoint_of_a_rendered_pod_has_the_effect_of_the_rendered_standby(component, external):
    extra = {name: {"v": "4"} for name in WITH_STANDBY}
    inputs = inputs_of(a_cluster(controls=3, extra_args=extra, external_etcd=external))
    ours, rendered = effect(of_hosted(inputs, component)), effect(standby.revision(inputs, component))
    user = {name: ours["spec"]["securityContext"].pop(name) for name in ("runAsUser", "runAsGroup")}
    assert ours == rendered
    assert user == {"runAsUser": 0, "runAsGroup": 0}, "said openly, because a user's image may say otherwise"


@quickly
@given(some_inputs(), st.sampled_from(WITH_STANDBY))
def test_it_holds_for_every_cluster(inputs, component):
    ours, rendered = effect(of_hosted(inputs, component)), effect(standby.revision(inputs, component))
    assert (ours["flags"], ours["container"]) == (rendered["flags"], rendered["container"])


@every_component
def test_its_files_are_laid_out_as_those_of_every_revision(component):
    revision = of_hosted(inputs_of(a_cluster()), component)
    assert revision.component == component
    assert revision.files[-1].path == f"{revision.directory}/pod.json", "it says that all the rest is there"
    assert all(file.path.startswith(f"{revision.directory}/files/") for file in revision.files[:-1])
    assert {file.mode for file in revision.files} == {0o600}
    assert pod_in(revision)["metadata"]["annotations"] == {"autarky.dev/revision": revision.name}
    assert is_checkpoint(revision.name)
    assert not is_checkpoint(standby.revision(inputs_of(a_cluster()), component).name)


@every_component
def test_it_refers_to_nothing_in_the_api_and_matches_no_selector(component):
    inputs = inputs_of(a_cluster(controls=3))
    objects = hosted_objects(inputs, component)
    pod = pod_in(of_hosted(inputs, component))
    assert {kind for volume in pod["spec"]["volumes"] for kind in volume} == {"name", "hostPath"}
    for forbidden in (
        "serviceAccountName",
        "serviceAccount",
        "imagePullSecrets",
        "nodeName",
        "nodeSelector",
        "affinity",
    ):
        assert forbidden not in pod["spec"]
    assert pod["metadata"].keys() == {"name", "namespace", "uid", "labels", "annotations"}
    for obj in objects:
        selector = obj.get("spec", {}).get("selector", {}).get("matchLabels")
        assert selector is None or not selector.items() <= pod["metadata"]["labels"].items()


def test_no_label_of_the_hosted_pod_is_left():
    pod = pod_in(checkpoint(a_pod()))
    assert "zone" not in pod["metadata"]["labels"]
    assert pod["metadata"]["labels"]["autarky.dev/slot"] == "standby"


# --- the name --------------------------------------------------------------------------------------


@every_component
def test_the_name_is_the_same_for_the_template_and_for_every_pod_made_of_it(component):
    inputs = inputs_of(a_cluster())
    objects = hosted_objects(inputs, component)
    names = {
        revision_from_pod(component, pod, *contents_of(objects)).name
        for pod in (
            pod_of_template(objects),
            completed(pod_of_template(objects)),
            completed(pod_of_template(objects, suffix="9zzzz")),
            completed(pod_of_template(objects, node="n2")),
        )
    }
    assert len(names) == 1


def shuffled(value, draw):
    """The same JSON with the keys of every object in another order."""
    if isinstance(value, dict):
        keys = draw(st.permutations(sorted(value)))
        return {key: shuffled(value[key], draw) for key in keys}
    return [shuffled(item, draw) for item in value] if isinstance(value, list) else value


@quickly
@given(st.data(), st.sampled_from(WITH_STANDBY))
def test_the_order_of_keys_changes_neither_name_nor_bytes(data, component):
    objects = hosted_objects(inputs_of(a_cluster()), component)
    pod = completed(pod_of_template(objects))
    first = revision_from_pod(component, pod, *contents_of(objects))
    other = revision_from_pod(component, shuffled(pod, data.draw), *contents_of(shuffled(objects, data.draw)))
    assert [(f.path, f.content, f.mode) for f in other.files] == [(f.path, f.content, f.mode) for f in first.files]


@every_component
def test_the_input_is_left_as_it_was(component):
    objects = hosted_objects(inputs_of(a_cluster()), component)
    pod = completed(pod_of_template(objects))
    before = copy.deepcopy((pod, objects))
    revision_from_pod(component, pod, *contents_of(objects))
    assert (pod, objects) == before


EDITS = {
    "another image": lambda pod: pod["spec"]["containers"][0].update(image="registry.example/kube-scheduler:v2"),
    "another flag": lambda pod: pod["spec"]["containers"][0]["command"].append("--v=6"),
    "a variable": lambda pod: pod["spec"]["containers"][0].update(env=[{"name": "GOGC", "value": "50"}]),
    "a volume": lambda pod: pod["spec"]["volumes"].append({"name": "tmp", "emptyDir": {}}),
    "a sidecar": lambda pod: pod["spec"]["containers"].append({"name": "log", "image": "registry.example/log:1"}),
    "an init container": lambda pod: pod["spec"].update(
        initContainers=[{"name": "i", "image": "registry.example/i:1"}]
    ),
    "a host alias": lambda pod: pod["spec"].update(hostAliases=[{"ip": "192.0.2.9", "hostnames": ["kms"]}]),
    "a DNS policy": lambda pod: pod["spec"].update(dnsPolicy="ClusterFirstWithHostNet"),
    "a field of a later Kubernetes": lambda pod: pod["spec"].update(somethingNew={"a": 1}),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_what_a_user_edits_is_followed_and_gives_another_name(edit):
    edited = a_pod()
    edit(edited)
    revision = checkpoint(edited)
    assert revision.name != checkpoint(a_pod()).name
    missing = set(strings(difference(edited["spec"], a_pod()["spec"]))) - set(strings(spec_in(revision)))
    assert not missing


def difference(edited: Object, before: Object) -> Object:
    return {key: value for key, value in edited.items() if value != before.get(key)}


def test_a_change_of_content_gives_another_name():
    pod = a_pod(volumes=[{"name": "v", "configMap": {"name": "c"}}])
    first, second = (
        checkpoint(pod, config_maps={"c": {"metadata": {"name": "c"}, "data": {"k": text}}}).name for text in ("1", "2")
    )
    assert first != second


HOSTED_ONLY = {
    "nodeSelector": {"a": "b"},
    "affinity": {"nodeAffinity": {}},
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "topologySpreadConstraints": [{"maxSkew": 1}],
    "schedulerName": "other",
    "schedulingGates": [{"name": "g"}],
    "priorityClassName": "x",
    "priority": 5,
    "preemptionPolicy": "Never",
    "resources": {"requests": {"cpu": "1"}},
    "serviceAccountName": "x",
    "serviceAccount": "x",
    "automountServiceAccountToken": True,
    "imagePullSecrets": [{"name": "pull"}],
    "enableServiceLinks": True,
    "readinessGates": [{"conditionType": "example.org/x"}],
    "ephemeralContainers": [{"name": "debug"}],
}


@pytest.mark.parametrize("field", HOSTED_ONLY)
def test_what_only_the_hosted_slot_needs_changes_nothing(field):
    given: Any = {field: HOSTED_ONLY[field]}
    assert checkpoint(a_pod(**given)).name == checkpoint(a_pod()).name


def test_ports_and_resources_are_left_out_of_every_container_but_for_a_small_share():
    extra = {
        "ports": [{"name": "https", "containerPort": 10259, "hostPort": 10259}],
        "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
        "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
    }
    sidecar = {"name": "log", "image": "registry.example/log:1"}
    plain = checkpoint(a_pod(initContainers=[sidecar]))
    full = checkpoint(a_pod(container=extra, initContainers=[{**sidecar, **extra, "restartPolicy": "Always"}]))
    assert container_in(full) == container_in(plain)
    assert container_in(full)["resources"] == {"requests": {"cpu": "100m"}}
    assert "resources" not in container_in(full, "log")
    assert container_in(full, "log") == {**container_in(plain, "log"), "restartPolicy": "Always"}


def test_an_image_that_is_there_is_never_pulled():
    pod = a_pod(
        container={"imagePullPolicy": "Always"}, volumes=[{"name": "o", "image": {"reference": "registry.example/o:1"}}]
    )
    revision = checkpoint(pod)
    assert container_in(revision)["imagePullPolicy"] == "IfNotPresent"
    assert spec_in(revision)["volumes"][0]["image"]["pullPolicy"] == "IfNotPresent"
    assert images(revision) == ("registry.example/kube-scheduler:v1", "registry.example/o:1")


def test_the_drain_of_the_api_servers_standby_is_its_own():
    objects = hosted_objects(inputs_of(a_cluster()), API_SERVER)
    pod = pod_of_template(objects)
    pod["spec"]["terminationGracePeriodSeconds"] = 400
    [container] = pod["spec"]["containers"]
    assert container["livenessProbe"]["terminationGracePeriodSeconds"] == patience.PROBED_GRACE
    container["command"] = [word for word in container["command"] if "shutdown-delay" not in word]
    spec = spec_in(revision_from_pod(API_SERVER, pod, *contents_of(objects)))
    assert spec["terminationGracePeriodSeconds"] == patience.STANDBY_DRAIN + patience.REQUESTS_END
    assert arguments(spec["containers"][0])["shutdown-delay-duration"] == f"{patience.STANDBY_DRAIN}s"
    assert not [name for name in PROBES if "terminationGracePeriodSeconds" in spec["containers"][0][name]]


def test_another_components_grace_period_is_the_hosted_ones():
    assert spec_in(checkpoint(a_pod(terminationGracePeriodSeconds=90)))["terminationGracePeriodSeconds"] == 90
    assert "terminationGracePeriodSeconds" not in spec_in(checkpoint(a_pod(terminationGracePeriodSeconds=30)))


def test_the_pod_of_the_node_agent_has_no_port_to_swap():
    [daemon_set] = [o for o in agent.objects(inputs_of(a_cluster())) if o["kind"] == "DaemonSet"]
    template = pod_of_template([daemon_set])
    revision = revision_from_pod(NODE_AGENT, completed(template), {}, {})
    [ours], [hosted] = spec_in(revision)["containers"], template["spec"]["containers"]
    assert ours["command"] == hosted["command"]
    assert {mount["name"] for mount in ours["volumeMounts"]} == {mount["name"] for mount in hosted["volumeMounts"]}
    assert images(revision) == (IMAGES["agent"],)


def test_it_says_what_has_to_be_read_first():
    objects = hosted_objects(inputs_of(a_cluster()), API_SERVER)
    secrets, config_maps = contents_of(objects)
    found = references(pod_of_template(objects))
    assert {(r.kind, r.name, r.optional) for r in found} == {
        *(("Secret", name, False) for name in secrets),
        *(("ConfigMap", name, False) for name in config_maps),
    }


# --- what is refused -------------------------------------------------------------------------------

NOT_STATIC: dict[str, Any] = {
    "spec.runtimeClassName": {"runtimeClassName": "gvisor"},
    "spec.resourceClaims": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "g"}]},
    "spec.hostNetwork": {"hostNetwork": False},
    "spec.containers": {"containers": [{"name": "other", "image": "x", "command": [SCHEDULER]}]},
    "spec": {"hostAliases": [{"ip": "192.0.2.9", "hostnames": [pods.ACTIVATION]}]},
}


@pytest.mark.parametrize("field", NOT_STATIC)
def test_what_a_static_pod_cannot_be_is_refused_by_field_rule_and_remedy(field):
    with pytest.raises(Refused) as refusal:
        checkpoint(a_pod(**NOT_STATIC[field]))
    text = str(refusal.value)
    assert f": {field}: " in text
    assert refusal.value.rule in text
    assert "the existing checkpoint stays" in text
    assert text.partition("to go on: ")[2]


def test_no_secret_is_in_the_pod_nor_in_what_is_shown_of_a_revision():
    for component in WITH_STANDBY:
        inputs = inputs_of(a_cluster())
        revision = of_hosted(inputs, component)
        texts = [*strings(pod_in(revision)), repr(revision), json.dumps([file.path for file in revision.files])]
        for content in inputs.credentials.files.values():
            assert not any(content.decode().strip() in text for text in texts)


def test_defaults_that_the_api_fills_in_mean_the_same_as_none():
    volume = {
        "name": "d",
        "downwardAPI": {
            "defaultMode": 0o644,
            "items": [{"path": "p", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}],
        },
    }
    bare = {"name": "d", "downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.name"}}]}}
    assert without_volume_defaults(volume) == without_volume_defaults(bare) == bare
