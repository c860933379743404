"""Containers of a hosted pod as a checkpoint has them: command line, probes, environment, user."""

from __future__ import annotations

import pytest

from autarky.control.checkpoint.manifests import references, revision_from_pod
from autarky.errors import Refused
from autarky.model import ports
from autarky.render.values import Object
from unit.render.checkpoints import SCHEDULER, a_pod, checkpoint, config_map, container_in, secret, spec_in

# --- command line ----------------------------------------------------------------------------------


def words(**container: object) -> list[str]:
    found = container_in(checkpoint(a_pod(container=container)))
    return [*found.get("command", []), *found.get("args", [])]


@pytest.mark.parametrize(
    "flags",
    [
        ["--secure-port=10259"],
        ["--secure-port", "10259"],
        ["--secure_port=10259"],
        ["--secure-port=$(PORT)"],
        ["--secure-port=10259", "--permit-port-sharing=true"],
        ["--permit-port-sharing", "--secure-port", "10259"],
        [],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("place", ["command", "args"])
def test_the_port_is_the_standbys_however_it_was_written(flags, place):
    container = {"command": [SCHEDULER, *flags]} if place == "command" else {"command": [SCHEDULER], "args": flags}
    assert words(**container) == [SCHEDULER, "--secure-port=20259"]


def test_flags_without_a_command_stay_arguments():
    container = container_in(checkpoint(a_pod(container={"command": [], "args": ["--v=2"]})))
    assert "command" not in container
    assert container["args"] == ["--v=2", "--secure-port=20259"]


def test_all_other_flags_stay_as_the_user_wrote_them_and_where():
    flags = ["--v", "4", "--secure-port", "10259", "--config=/x", "--leader-elect"]
    assert words(command=["/usr/local/bin/kube-scheduler", *flags]) == [
        *("/usr/local/bin/kube-scheduler", "--v", "4", "--secure-port=20259", "--config=/x", "--leader-elect")
    ]


def test_another_flag_for_the_same_port_follows_it():
    pod = a_pod(
        container={
            "name": "kube-apiserver",
            "command": ["kube-apiserver", "--secure-port=7443", "--peer-advertise-port=7443", "--x-port=9"],
        }
    )
    [container] = [container_in(revision_from_pod("kube-apiserver", pod, {}, {}), "kube-apiserver")]
    assert container["command"][1:4] == ["--secure-port=7444", "--peer-advertise-port=7444", "--x-port=9"]


@pytest.mark.parametrize("command", [["sh", "-c", "exec kube-scheduler --secure-port=10259"], ["/wrapper"]])
def test_flags_that_cannot_be_told_apart_are_refused(command):
    with pytest.raises(Refused, match=r"spec\.containers\[kube-scheduler\]\.command"):
        words(command=command)


def test_the_command_of_a_sidecar_is_its_own():
    sidecar = {"name": "log", "image": "x", "command": ["log", "--secure-port=10259"]}
    revision = checkpoint(a_pod(containers=[*a_pod()["spec"]["containers"], sidecar]))
    assert container_in(revision, "log")["command"] == sidecar["command"]


# --- probes ----------------------------------------------------------------------------------------


def probe_after(probe: Object, **container: object) -> Object:
    found: Object = container_in(checkpoint(a_pod(container={"livenessProbe": probe, **container})))["livenessProbe"]
    return found


@pytest.mark.parametrize("port", [10259, "10259", "https"])
@pytest.mark.parametrize("kind", ["httpGet", "tcpSocket", "grpc"])
def test_probes_ask_the_standbys_port(kind, port):
    ports = [{"name": "https", "containerPort": 10259}]
    assert probe_after({kind: {"port": port}}, ports=ports)[kind]["port"] == 20259


def test_a_named_port_that_is_another_becomes_its_number():
    assert probe_after({"tcpSocket": {"port": "m"}}, ports=[{"name": "m", "containerPort": 99}])["tcpSocket"] == {
        "port": 99
    }


def test_a_probe_that_runs_a_command_asks_the_standbys_port_too():
    probe = {"exec": {"command": ["curl", "https://127.0.0.1:10259/livez", "1102590"]}}
    assert probe_after(probe)["exec"]["command"][1:] == ["https://127.0.0.1:20259/livez", "1102590"]


def test_a_sidecars_probe_and_hook_of_the_components_port_move_along():
    get = {"httpGet": {"port": 10259, "path": "/livez"}}
    sidecar = {"name": "log", "image": "x", "readinessProbe": get, "lifecycle": {"preStop": get}}
    found = container_in(checkpoint(a_pod(initContainers=[sidecar])), "log")
    assert found["readinessProbe"]["httpGet"]["port"] == 20259
    assert found["lifecycle"]["preStop"]["httpGet"]["port"] == 20259


# --- environment -----------------------------------------------------------------------------------


def environment(*, config: Object | None = None, secrets: dict[str, Object | None] | None = None, **container: object):
    pod = a_pod(container=container)
    config_maps = {r.name: config for r in references(pod) if r.kind == "ConfigMap"}
    return container_in(checkpoint(pod, config_maps=config_maps, secrets=secrets)).get("env", [])


def of_config(key: str, **reference: object) -> Object:
    return {"name": "X", "valueFrom": {"configMapKeyRef": {"name": "c", "key": key, **reference}}}


def of_secret(**reference: object) -> Object:
    return {"name": "X", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", **reference}}}


def test_values_of_config_maps_become_literal_and_are_not_expanded():
    assert environment(env=[of_config("k")], config=config_map(k="$(HOME) $$")) == [
        {"name": "X", "value": "$$(HOME) $$$$"}
    ]


def test_complete_config_maps_come_first_with_their_prefix_and_without_binaries():
    found = environment(
        envFrom=[{"prefix": "P_", "configMapRef": {"name": "c"}}, {"configMapRef": {"name": "c"}}],
        env=[{"name": "Y", "value": "$(P_a)"}],
        config=config_map(b="2", a="1", binary={"z": b"\xff"}),
    )
    assert [(variable["name"], variable["value"]) for variable in found] == [
        *(("P_a", "1"), ("P_b", "2"), ("a", "1"), ("b", "2"), ("Y", "$(P_a)"))
    ]


def test_an_optional_reference_to_nothing_is_left_out():
    assert environment(env=[of_config("k", optional=True)], config=None) == []
    assert environment(env=[of_config("other", optional=True)], config=config_map(k="x")) == []
    assert environment(envFrom=[{"configMapRef": {"name": "c", "optional": True}}], config=None) == []
    assert environment(env=[of_secret(optional=True)], secrets={"s": None}) == []
    assert environment(env=[of_secret(optional=True)], secrets={"s": secret(other="x")}) == []
    assert environment(envFrom=[{"secretRef": {"name": "s", "optional": True}}], secrets={"s": None}) == []


def test_a_missing_key_or_object_is_refused():
    with pytest.raises(Refused, match="has no key other"):
        environment(env=[of_config("other")], config=config_map(k="x"))
    with pytest.raises(Refused, match="does not exist"):
        environment(env=[of_config("k")], config=None)


@pytest.mark.parametrize("container", [{"env": [of_secret()]}, {"envFrom": [{"secretRef": {"name": "s"}}]}])
def test_rule_7_a_secret_in_the_environment_would_show_in_the_mirror_pod_and_is_refused(container):
    with pytest.raises(Refused, match="mount the Secret s as a volume") as refusal:
        environment(**container, secrets={"s": secret(k="hidden")})
    assert "hidden" not in str(refusal.value)
    assert refusal.value.rule == "only root can read secrets"


@pytest.mark.parametrize("path", ["status.hostIP", "spec.nodeName", "metadata.name", "metadata.uid"])
def test_fields_that_the_kubelet_fills_in_are_left_to_it(path):
    variable = {"name": "X", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
    assert environment(env=[variable]) == [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}]


@pytest.mark.parametrize(("path", "value"), [("metadata.labels['zone']", "a"), ("metadata.namespace", "kube-system")])
def test_fields_that_a_standby_has_not_become_literal(path, value):
    assert environment(env=[{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}]) == [
        {"name": "X", "value": value}
    ]


def test_a_source_that_nobody_knows_is_refused():
    with pytest.raises(Refused, match="unknown source vaultRef"):
        environment(env=[{"name": "X", "valueFrom": {"vaultRef": {"a": 1}}}])


# --- user ------------------------------------------------------------------------------------------

CONFINED = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
NONROOT = {"runAsUser": 65532, "runAsGroup": 65532, "runAsNonRoot": True, "fsGroup": 65532}


def secured(*, pod: Object, container: Object, read_only: bool = True) -> Object:
    mount = {"name": "log", "mountPath": "/log", **({"readOnly": True} if read_only else {})}
    revision = checkpoint(
        a_pod(
            container={"securityContext": container, "volumeMounts": [mount]},
            securityContext=pod,
            volumes=[{"name": "log", "hostPath": {"path": "/var/log"}}],
        )
    )
    found: Object = container_in(revision)["securityContext"]
    return found


def test_it_runs_as_root_and_keeps_all_else_that_confines_it():
    confined = {"seccompProfile": {"type": "RuntimeDefault"}, "supplementalGroups": [7]}
    pod = {**NONROOT, **confined, "fsGroupChangePolicy": "Always"}
    revision = checkpoint(a_pod(container={"securityContext": {**CONFINED, "runAsUser": 9}}, securityContext=pod))
    assert container_in(revision)["securityContext"] == CONFINED
    assert spec_in(revision)["securityContext"] == {**confined, "runAsUser": 0, "runAsGroup": 0}


def test_a_user_who_reads_storage_of_the_host_becomes_a_root_who_can_read_it():
    found = secured(pod=NONROOT, container=CONFINED)
    assert found == {**CONFINED, "capabilities": {"drop": ["ALL"], "add": ["DAC_OVERRIDE"]}}


@pytest.mark.parametrize("who", [{"runAsUser": 1000}, {"runAsNonRoot": True}])
def test_what_root_would_leave_on_the_host_for_another_user_is_refused(who):
    with pytest.raises(Refused, match=r"(?s)volumeMounts\[log\].*readOnly"):
        secured(pod=who, container={}, read_only=False)
    with pytest.raises(Refused, match="runAsUser"):
        secured(pod={}, container=who, read_only=False)


@pytest.mark.parametrize(("pod", "container"), [({}, {}), (NONROOT, {"runAsUser": 0}), ({"runAsUser": 0}, {})])
def test_a_pod_that_runs_as_root_may_write_where_it_likes(pod, container):
    assert secured(pod=pod, container={**CONFINED, **container}, read_only=False) == CONFINED


def test_the_question_to_the_agent_before_the_hosted_server_ends_is_none_of_the_standbys():
    ask = {"httpGet": {"host": "127.0.0.1", "port": ports.NODE_AGENT, "path": "/before-stop/x"}}
    own = {"exec": {"command": ["/bin/true"]}}
    found = container_in(checkpoint(a_pod(container={"lifecycle": {"preStop": ask, "postStart": own}})))
    assert found["lifecycle"] == {"postStart": own}
    assert "lifecycle" not in container_in(checkpoint(a_pod(container={"lifecycle": {"preStop": ask}})))
