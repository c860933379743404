"""Configuration files that command lines name: where they come from is found by the mounts, and what they say is judged
with what is not known of them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given

from autarky.control.upgrade.decide import commands
from autarky.control.upgrade.decide.checks import Finding, findings, on_the_way_back
from autarky.control.upgrade.decide.configuration_files import FLAGS, Named, Origin, named, read, references
from autarky.control.upgrade.decide.observed import PASSES, File
from autarky.control.upgrade.decide.removed import files_not_understood
from autarky.control.upgrade.decide.surface import known_surfaces, surface_of
from autarky.model.components import API_SERVER, KUBE_PROXY, SCHEDULER
from autarky.model.versions import Version
from autarky.render.objects import parts
from fakes.clusters import a_cluster, inputs_of
from unit.control.upgrade.healthy import RUNS, WANTED, Object, a_workload, seen
from unit.control.upgrade.test_checks_of_malformed_objects import broken

PROXY = "kubeproxy.config.k8s.io/v1alpha1 KubeProxyConfiguration"
CONFIG_MAP: Object = {"name": "v", "configMap": {"name": "conf"}}
MOUNT: Object = {"name": "v", "mountPath": "/etc/x"}
UNKNOWN = Version(1, 99, 0)


def a_component(
    *words: str, volumes: list[Object] | None = None, mounts: list[Object] | None = None, name: str = KUBE_PROXY
) -> Object:
    live = a_workload(name)
    pod = live["spec"]["template"]["spec"]
    pod["containers"][0] |= {"command": [name, *words], "volumeMounts": [MOUNT] if mounts is None else mounts}
    pod["volumes"] = [CONFIG_MAP] if volumes is None else volumes
    return live


def the_one(live: Object) -> Named:
    [one] = named({live["metadata"]["name"]: live}, RUNS)
    return one


def places(live: Object) -> list[str]:
    return [origin.place for origin in the_one(live).origins]


def a_config_map(content: str | bytes, **further: Any) -> Object:
    binary = isinstance(content, bytes)
    data = {"binaryData" if binary else "data": {"c": base64.b64encode(content).decode() if binary else content}}  # type: ignore[arg-type]
    return {"kind": "ConfigMap", "metadata": {"name": "conf"}, **data, **further}


def file_of(content: str | bytes, **further: Any) -> File:
    live = a_component("--config=/etc/x/c")
    return read(the_one(live), {("ConfigMap", "conf"): a_config_map(content, **further)})


def text_of(what: str, gates: Mapping[str, bool] | None = None) -> str:
    version, kind = what.split(" ")
    return json.dumps({"apiVersion": version, "kind": kind, **({} if gates is None else {"featureGates": gates})})


# --- where they come from ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mount", "volume", "expected"),
    [
        ({}, {"configMap": {"name": "conf"}}, ["c of the ConfigMap conf"]),
        ({}, {"secret": {"secretName": "keys"}}, ["c of the Secret keys"]),
        ({}, {"configMap": {"name": "conf", "items": [{"key": "k", "path": "c"}]}}, ["k of the ConfigMap conf"]),
        ({}, {"configMap": {"name": "conf", "items": [{"key": "c", "path": "other"}]}}, []),
        ({"mountPath": "/etc/x/c", "subPath": "k"}, {"configMap": {"name": "conf"}}, ["k of the ConfigMap conf"]),
        ({"mountPath": "/etc/x/"}, {"configMap": {"name": "conf"}}, ["c of the ConfigMap conf"]),
        ({"mountPath": "/etc/x", "subPathExpr": "$(NODE)"}, {"configMap": {"name": "conf"}}, []),
        ({"mountPath": "/etc/xyz"}, {"configMap": {"name": "conf"}}, []),
        ({}, {"hostPath": {"path": "/etc/kubernetes"}}, []),
        (
            {"mountPath": "/etc", "subPath": "."},
            {"configMap": {"name": "conf", "items": [{"key": "k", "path": "x/c"}]}},
            ["k of the ConfigMap conf"],
        ),
        (
            {},
            {"projected": {"sources": [{"configMap": {"name": "a"}}, {"secret": {"name": "b"}}, {"downwardAPI": {}}]}},
            ["c of the ConfigMap a", "c of the Secret b"],
        ),
    ],
)
def test_a_file_is_found_by_its_mount(mount: Object, volume: Object, expected: list[str]) -> None:
    live = a_component("--config=/etc/x/c", mounts=[{**MOUNT, **mount}], volumes=[{"name": "v", **volume}])
    assert places(live) == expected


def test_the_nearest_mount_counts() -> None:
    mounts = [{"name": "w", "mountPath": "/etc"}, {"name": "v", "mountPath": "/etc/x"}]
    volumes = [{"name": "w", "hostPath": {"path": "/etc"}}, CONFIG_MAP]
    for order in (1, -1):
        assert places(a_component("--config=/etc/x/c", mounts=mounts[::order], volumes=volumes)) == [
            "c of the ConfigMap conf"
        ]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--config=/etc/x/a"], "/etc/x/a"),
        (["--config", "/etc/x/a"], "/etc/x/a"),
        (["--config=/etc/x/a", "--config=/etc/x/b"], "/etc/x/b"),
        (["--config="], None),
        (["--v=2", "--write-config-to=/etc/x/a"], None),
        (["--hostname-override", "--config=/etc/x/a"], None),
    ],
)
def test_the_last_path_of_a_flag_counts(words: list[str], expected: str | None) -> None:
    found = named({KUBE_PROXY: a_component(*words)}, RUNS)
    assert [one.path for one in found] == ([] if expected is None else [expected])


def test_files_are_named_by_arguments_as_well_and_by_components_of_an_unknown_version() -> None:
    live = a_component()
    live["spec"]["template"]["spec"]["containers"][0]["args"] = ["--config=/etc/x/c"]
    assert [one.path for one in named({KUBE_PROXY: live}, UNKNOWN)] == ["/etc/x/c"]
    assert named({"etcd": a_component("--config=/etc/x/c", name="etcd")}, RUNS) == []


def test_each_object_is_read_once_and_none_by_what_is_no_name() -> None:
    files = [
        Named(KUBE_PROXY, "config", "/a", (Origin("ConfigMap", "conf", "a"), Origin("Secret", "../x", "a"))),
        Named(SCHEDULER, "config", "/b", (Origin("ConfigMap", "conf", "b"),)),
    ]
    assert references(files) == [("ConfigMap", "conf")]


def test_what_autarky_starts_components_with_is_read_and_understood_by_every_release() -> None:
    objects = [obj for part in parts(inputs_of(a_cluster())) for obj in part.objects]
    live = {obj["metadata"]["name"]: obj for obj in objects if obj["metadata"]["name"] in FLAGS and "spec" in obj}
    stored = {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects}
    files = [read(one, stored) for one in named(live, RUNS)]
    assert {(one.component, one.flag, one.what, one.fixed, one.trouble) for one in files} == {
        (KUBE_PROXY, "config", PROXY, True, ""),
        (API_SERVER, "authentication-config", "apiserver.config.k8s.io/v1 AuthenticationConfiguration", True, ""),
    }
    for version in known_surfaces():
        surface = surface_of(version)
        assert surface is not None
        assert files_not_understood(files, surface) == []


# --- what they say -------------------------------------------------------------------------------------------


def test_what_a_file_is_and_its_gates_are_read_and_nothing_else() -> None:
    file = file_of(text_of(PROXY, {"A": True, "B": False}), immutable=True)
    place = "c of the ConfigMap conf"
    assert file == File(KUBE_PROXY, "config", place, PROXY, {"A": "true", "B": "false"}, fixed=True)
    assert file_of(text_of(PROXY).encode()).what == PROXY
    assert not file_of(text_of(PROXY)).fixed


def test_a_secret_is_read_and_its_keys_are_kept_nowhere() -> None:
    what = "apiserver.config.k8s.io/v1 EncryptionConfiguration"
    text = text_of(what)[:-1] + ', "resources": [{"providers": [{"secretbox": {"keys": ["c2VjcmV0"]}}]}]}'
    live = a_component(
        "--encryption-provider-config=/etc/x/c",
        volumes=[{"name": "v", "secret": {"secretName": "keys"}}],
        name=API_SERVER,
    )
    file = read(the_one(live), {("Secret", "keys"): {"data": {"c": base64.b64encode(text.encode()).decode()}}})
    assert file.what == what
    assert "c2VjcmV0" not in repr(file)


def test_of_a_projected_volume_the_object_counts_that_has_the_key() -> None:
    sources = [{"configMap": {"name": "a"}}, {"configMap": {"name": "conf"}}]
    live = a_component("--config=/etc/x/c", volumes=[{"name": "v", "projected": {"sources": sources}}])
    objects = {("ConfigMap", "a"): {"data": {"other": "x"}}, ("ConfigMap", "conf"): a_config_map(text_of(PROXY))}
    assert read(the_one(live), objects).place == "c of the ConfigMap conf"


# --- what is found -------------------------------------------------------------------------------------------


def found(*files: File, wanted: Version = WANTED, runs: Version = RUNS) -> list[Finding]:
    return [
        one
        for one in findings(seen(files=files, wanted=wanted, runs=runs))
        if one.name in ("configurations", "commands")
    ]


def test_a_file_that_the_new_version_understands_is_no_finding() -> None:
    assert found(file_of(text_of(PROXY, {"AllAlpha": False}))) == []


def test_a_kind_and_a_gate_that_are_gone_are_errors_also_on_the_way_back() -> None:
    file = file_of(text_of("kubeproxy.config.k8s.io/v1beta9 KubeProxyConfiguration", {"SidecarContainers": True}))
    errors = found(file)
    assert [(one.name, one.warning, one.patience) for one in errors] == [("configurations", False, 0.0)] * 2
    assert "does not understand kubeproxy.config.k8s.io/v1beta9" in errors[0].sentence
    assert errors[0].fix == f"write it as {PROXY} first"
    assert errors[1].fix == "remove SidecarContainers from featureGates in c of the ConfigMap conf first"
    assert on_the_way_back(errors) == errors


def test_a_file_that_is_not_there_is_an_error_that_may_pass() -> None:
    live = a_component("--config=/etc/x/c")
    for objects in ({}, {("ConfigMap", "conf"): None}, {("ConfigMap", "conf"): {"data": {"other": "x"}}}):
        [finding] = found(read(the_one(live), objects))
        assert finding.sentence == (
            "c of the ConfigMap conf, the file that --config of kube-proxy names, is not there: no new pod would start"
        )
        assert (finding.warning, finding.patience) == (False, PASSES)


@pytest.mark.parametrize(
    ("file", "trouble"),
    [
        (file_of("mode: nftables"), "is neither JSON nor YAML in block style with an apiVersion and a kind"),
        (file_of(b"\xff"), "is neither JSON nor YAML in block style with an apiVersion and a kind"),
        (
            read(the_one(a_component("--config=/etc/x/c", volumes=[])), {}),
            "is not mounted from a ConfigMap or a Secret",
        ),
    ],
)
def test_a_file_of_which_nothing_is_known_is_a_warning(file: File, trouble: str) -> None:
    [finding] = found(file)
    assert finding.sentence.endswith(f"the file that --config of kube-proxy names, {trouble}, and was not compared")
    assert finding.warning
    assert "release notes" in finding.fix


def test_of_single_admission_plugins_it_is_said_that_their_configurations_were_not_compared() -> None:
    what = "apiserver.config.k8s.io/v1 AdmissionConfiguration"
    [finding] = found(File(API_SERVER, "admission-control-config-file", "a of the ConfigMap b", what))
    assert finding.sentence.endswith("was compared without the configurations of single plugins in it")
    assert finding.warning


# --- versions of which nothing is known ----------------------------------------------------------------------


def test_a_new_version_of_which_nothing_is_known_is_a_warning_and_not_as_one_that_lacks_nothing() -> None:
    [finding] = found(file_of(text_of("a/v9 Odd")), wanted=UNKNOWN)
    assert finding == Finding(
        "commands",
        "this autarky does not know what v1.99.0 understands: flags, feature gates, admission plugins, configuration"
        " files and APIs were not compared with it",
        "read in the release notes of Kubernetes what was removed",
        warning=True,
    )
    assert commands.resources_lost(RUNS, UNKNOWN) == {}


def test_from_a_version_of_which_nothing_is_known_the_new_one_judges_what_it_can() -> None:
    file = file_of(text_of(PROXY, {"SidecarContainers": True}))
    workloads = {SCHEDULER: a_component("--feature-gates=SidecarContainers=true", "--odd", name=SCHEDULER)}
    seen_then = seen(files=[file], workloads=workloads, runs=Version(1, 35, 4), wanted=WANTED)
    [warning, gate, of_file] = commands.findings(seen_then)
    assert warning.sentence == (
        "this autarky does not know what v1.35.4 understands: flags, and APIs, that v1.37.1 lacks would not be found"
    )
    assert warning.warning
    assert "kube-scheduler v1.37.1 does not know the feature gate SidecarContainers" in gate.sentence
    assert "kube-proxy v1.37.1 does not know the feature gate SidecarContainers" in of_file.sentence
    assert not gate.warning


# --- whatever is in the objects ------------------------------------------------------------------------------

ANY = a_component("--config=/etc/x/c", "--v=2")


@given(broken(ANY), broken(a_config_map("kind: K")))
def test_whatever_is_in_the_objects_it_raises_for_nothing(live: Any, obj: Any) -> None:
    files = named({KUBE_PROXY: live}, RUNS)
    objects = dict.fromkeys(references(files), obj)
    for one in commands.findings(seen(files=[read(file, objects) for file in files])):
        assert one.sentence.isprintable()
        assert len(one.sentence) < 2000
