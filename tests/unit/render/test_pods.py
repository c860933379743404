"""Properties that hold of every pod: hosted, standby, and the static ones that stay."""

from __future__ import annotations

import ipaddress
import json
from pathlib import PurePosixPath

import pytest
from hypothesis import given, settings

from autarky import places
from autarky.control.agents.manifests.operator import own_address
from autarky.control.api_server import manifests as api_server
from autarky.control.leadership import manifests as controllers
from autarky.control.slots import manifests as standby
from autarky.model import patience
from autarky.model.cluster import Level
from autarky.model.components import API_SERVER, COMPONENTS, OPERATOR, WITH_STANDBY
from autarky.render import node, pods
from autarky.render.values import Inputs, Object
from fakes.clusters import a_cluster, inputs_of
from fakes.hosted_pods import pod_of_revision
from unit.render.rendered import EVERY_LEVEL, EXTERNAL, Pod, all_pods, arguments, host_files, some_inputs, strings

quickly = settings(max_examples=25, deadline=None)
PODS = {str(pod): pod for inputs in EVERY_LEVEL for pod in all_pods(inputs)}
MAY_BE_PRIVILEGED = {
    "kube-proxy": "it writes kernel settings under /proc/sys",
    "kubelet": "it enters its host, and is the host's kubelet there",
}
DIFFERS = {
    "kube-apiserver": {"secure-port", "shutdown-delay-duration"},
    "kube-controller-manager": {"secure-port", "permit-port-sharing"},
    "kube-scheduler": {"secure-port", "permit-port-sharing"},
}
"""What may differ between the two slots of a component."""

every_pod = pytest.mark.parametrize("pod", PODS.values(), ids=list(PODS))


def hosted_pod(inputs: Inputs, component: str) -> Object:
    [pod] = [pod for pod in all_pods(inputs) if (pod.name, pod.slot) == (component, "hosted")]
    return pod.spec


def standby_pod(inputs: Inputs, component: str) -> Object:
    return pod_of_revision(standby.revision(inputs, component))["spec"]


@every_pod
def test_pods_have_a_priority_class(pod: Pod):
    assert pod.spec["priorityClassName"] in (pods.NODE_CRITICAL, pods.CLUSTER_CRITICAL)


@every_pod
def test_pods_are_confined_or_privileged_for_a_reason(pod: Pod):
    for container in pod.containers:
        if container["securityContext"].get("privileged"):
            assert pod.name in MAY_BE_PRIVILEGED
        else:
            assert pod.spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]


def test_the_api_servers_standby_gets_more_of_a_busy_processor_than_what_starts_beside_it():
    shares = {name: pods.standby_share(name)["requests"]["cpu"] for name in WITH_STANDBY}
    assert shares == {"kube-apiserver": "250m", "kube-controller-manager": "100m", "kube-scheduler": "100m"}


@every_pod
def test_pods_ask_for_what_they_need_but_a_standby_for_no_more_than_a_share_of_the_processor(pod: Pod):
    for container in pod.containers:
        if pod.slot == "standby":
            assert container["resources"] == pods.standby_share(container["name"])
            assert container["resources"]["requests"].keys() == {"cpu"}
        else:
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}


@every_pod
def test_pods_on_the_host_network_declare_no_ports(pod: Pod):
    """The scheduler and the kubelet would refuse the other slot."""
    for container in pod.containers:
        if pod.spec.get("hostNetwork"):
            assert "ports" not in container
        else:
            assert all("hostPort" not in port for port in container["ports"])


@every_pod
def test_images_are_never_pulled_when_they_are_there(pod: Pod):
    assert all(container["imagePullPolicy"] == "IfNotPresent" for container in pod.containers)


@every_pod
def test_every_mount_has_its_volume(pod: Pod):
    volumes = {volume["name"] for volume in pod.spec.get("volumes", ())}
    assert {mount["name"] for container in pod.containers for mount in container.get("volumeMounts", ())} == volumes


@every_pod
def test_probes_ask_the_process_itself_and_leave_etcd_out(pod: Pod):
    """Rule 9: a lost quorum must not get API servers killed or replaced."""
    for container in pod.containers:
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            probe = container.get(kind, {}).get("httpGet", {})
            if pod.name == "kube-apiserver":
                assert {"exclude=etcd", "exclude=etcd-readiness"} <= set(probe["path"].partition("?")[2].split("&"))
                assert str(probe["port"]) == arguments(container)["secure-port"]
            if probe and pod.spec.get("hostNetwork"):
                assert probe["host"] == ("127.0.0.1" if pod.name != OPERATOR else own_address(container["image"]))


def test_an_operator_answers_the_probes_of_no_other_revision():
    """One that hangs would be Ready, and the former one, which judges it, would end."""
    one, other = (own_address(image) for image in ("agent:1", "agent:2"))
    assert one != other
    assert all(ipaddress.ip_address(address) in ipaddress.ip_network("127.64.0.0/10") for address in (one, other))


@quickly
@given(some_inputs())
def test_static_pods_refer_to_nothing_in_the_api(inputs):
    for pod in all_pods(inputs):
        if pod.slot != "hosted":
            assert {kind for volume in pod.spec["volumes"] for kind in volume} == {"name", "hostPath"}
            assert "serviceAccountName" not in pod.spec
            assert pod.spec["automountServiceAccountToken"] is False
            sources = [env.get("valueFrom", {}) for container in pod.containers for env in container.get("env", [])]
            assert all(source.keys() <= {"fieldRef"} for source in sources)


@quickly
@given(some_inputs())
def test_no_secret_is_in_a_command_line_or_an_environment(inputs):
    contents = {content.decode().strip() for content in inputs.credentials.files.values()}
    for pod in all_pods(inputs):
        for container in pod.containers:
            for text in [*container["command"], *strings(container.get("env", []))]:
                assert not any(content in text for content in contents)


@pytest.mark.parametrize("component", WITH_STANDBY)
@pytest.mark.parametrize("external", [None, EXTERNAL], ids=["own etcd", "external etcd"])
def test_both_slots_run_the_same_command_but_for_ports_places_and_drain(component, external):
    extra = {name: {"v": "4"} for name in WITH_STANDBY}
    inputs = inputs_of(a_cluster(controls=3, extra_args=extra, external_etcd=external))
    [hosted], [dormant] = hosted_pod(inputs, component)["containers"], standby_pod(inputs, component)["containers"]
    first, second = arguments(hosted), arguments(dormant)
    differs = {flag for flag in first.keys() | second.keys() if first.get(flag) != second.get(flag)}
    moved = {flag for flag in differs if "/" in first.get(flag, "")}
    assert differs - moved == DIFFERS[component]
    assert all(PurePosixPath(first[flag]).name == PurePosixPath(second[flag]).name for flag in moved)
    assert (hosted["image"], hosted["command"][0]) == (dormant["image"], dormant["command"][0])


@pytest.mark.parametrize("component", WITH_STANDBY)
def test_both_slots_find_every_file_that_their_command_names(component):
    inputs = inputs_of(a_cluster())
    contents = {
        obj["metadata"]["name"]: set(obj["data"])
        for obj in (api_server.hosted(inputs) if component == API_SERVER else controllers.hosted(inputs, component))
        if obj["kind"] in ("Secret", "ConfigMap")
    }
    revision = standby.revision(inputs, component)
    contents["files"] = {PurePosixPath(file.path).name for file in revision.files if "/files/" in file.path}
    for spec in (hosted_pod(inputs, component), standby_pod(inputs, component)):
        sources = {
            volume["name"]: volume.get("secret", {}).get("secretName") or volume.get("configMap", {}).get("name")
            for volume in spec["volumes"]
        }
        [container] = spec["containers"]
        there = {
            f"{mount['mountPath']}/{file}"
            for mount in container["volumeMounts"]
            for file in contents[sources[mount["name"]] or "files"]
            if mount["name"] != "leaves"
        } | {file.path for file in node.leaf_files(inputs, inputs.cluster.nodes[0])}
        named = {value for value in arguments(container).values() if value.startswith("/")}
        assert named <= there


@pytest.mark.parametrize("component", WITH_STANDBY)
def test_the_slots_ports_are_the_documented_ones(component):
    inputs = inputs_of(a_cluster())
    for spec, expected in (
        (hosted_pod(inputs, component), COMPONENTS[component].port),
        (standby_pod(inputs, component), COMPONENTS[component].standby_port),
    ):
        assert arguments(spec["containers"][0])["secure-port"] == str(expected)


def test_the_users_arguments_win_over_ours_in_both_slots():
    inputs = inputs_of(a_cluster(extra_args={"kube-apiserver": {"profiling": "true", "v": "3"}}))
    for spec in (hosted_pod(inputs, "kube-apiserver"), standby_pod(inputs, "kube-apiserver")):
        given_ = arguments(spec["containers"][0])
        assert (given_["profiling"], given_["v"]) == ("true", "3")
        command = spec["containers"][0]["command"]
        assert len(command) == len({argument.partition("=")[0] for argument in command})


def test_the_api_server_talks_to_etcd_through_the_local_balancer_and_to_an_external_one_directly():
    own = hosted_pod(inputs_of(a_cluster(controls=3)), "kube-apiserver")
    assert arguments(own["containers"][0])["etcd-servers"] == "https://127.0.0.1:2378"
    foreign = hosted_pod(inputs_of(a_cluster(external_etcd=EXTERNAL)), "kube-apiserver")
    assert arguments(foreign["containers"][0])["etcd-servers"] == "https://198.51.100.1:2379"


def test_the_api_server_has_time_to_hand_over_to_drain_and_to_answer_what_it_has():
    hosted, standby = hosted_pod(EVERY_LEVEL[0], "kube-apiserver"), standby_pod(EVERY_LEVEL[0], "kube-apiserver")
    for spec, hook in ((hosted, patience.HAND_OVER), (standby, 0)):
        drain = int(arguments(spec["containers"][0])["shutdown-delay-duration"].removesuffix("s"))
        assert spec["terminationGracePeriodSeconds"] >= hook + drain + patience.REQUESTS_END
    assert "preStop" not in str(standby)


def test_a_hosted_api_server_has_time_to_wait_for_its_standby_but_not_when_its_probes_end_it():
    """Who fails its probes may hang, and heed no SIGTERM: for as long nothing else may take its port."""
    spec = hosted_pod(EVERY_LEVEL[0], "kube-apiserver")
    [container] = spec["containers"]
    assert spec["terminationGracePeriodSeconds"] >= patience.STARTS + patience.HOSTED_DRAIN
    for probe in ("startupProbe", "livenessProbe"):
        assert container[probe]["terminationGracePeriodSeconds"] == patience.HOSTED_DRAIN + patience.REQUESTS_END
    assert "terminationGracePeriodSeconds" not in container["readinessProbe"], "it ends nothing"


def test_anonymous_requests_reach_the_health_paths_and_nothing_else():
    anonymous = json.loads(api_server.config_files()["authentication.json"])["anonymous"]
    assert [condition["path"] for condition in anonymous["conditions"]] == ["/livez", "/readyz", "/healthz"]


def test_controllers_that_stop_leave_no_long_gap():
    """client-go waits up to 2.2 retry periods for a lease."""
    for component in controllers.CONTROLLERS:
        assert arguments(hosted_pod(EVERY_LEVEL[0], component)["containers"][0])["leader-elect-retry-period"] == "800ms"


# --- generations of static pods ---------------------------------------------------------------------


def static_manifests(inputs: Inputs) -> dict[tuple[str, str], Object]:
    return {
        (member.name, component): json.loads(file.content)
        for member in inputs.cluster.nodes
        for component, file in node.static_pods(inputs, member).items()
    }


def test_every_static_pod_in_a_cluster_has_its_own_uid():
    uids = [pod["metadata"]["uid"] for pod in static_manifests(EVERY_LEVEL[0]).values()]
    assert len(uids) == len(set(uids)) == 7


def test_a_new_generation_has_a_new_name_and_uid_and_the_same_content_keeps_them():
    inputs = inputs_of(a_cluster())
    again = static_manifests(inputs_of(a_cluster()))
    other = static_manifests(inputs_of(a_cluster(extra_args={"etcd": {"heartbeat-interval": "200"}})))
    first = static_manifests(inputs)
    assert first == again
    for field in ("name", "uid"):
        assert first["n1", "etcd"]["metadata"][field] != other["n1", "etcd"]["metadata"][field]
        balancer = ("n1", "node-load-balancer")
        assert first[balancer]["metadata"][field] == other[balancer]["metadata"][field]


def test_etcd_runs_on_control_nodes_only_and_nowhere_when_it_is_external():
    assert [key for key in static_manifests(EVERY_LEVEL[0]) if key[1] == "etcd"] == [
        ("n1", "etcd"),
        ("n2", "etcd"),
        ("n3", "etcd"),
    ]
    external = static_manifests(inputs_of(a_cluster(Level.API_SERVER, controls=3, external_etcd=EXTERNAL)))
    assert {component for _, component in external} == {"node-load-balancer"}


ETCDS_OWN = {places.ETCD_DATA}
"""Made when a member may begin, and never again."""


def test_every_directory_a_static_pod_needs_is_written_before_it():
    for inputs in (EVERY_LEVEL[0], inputs_of(a_cluster(external_etcd=EXTERNAL))):
        written = {(host, str(PurePosixPath(file.path).parent)) for host, file in host_files(inputs)}
        for (host, _), pod in static_manifests(inputs).items():
            for volume in pod["spec"]["volumes"]:
                if volume["hostPath"]["type"] == "Directory" and volume["hostPath"]["path"] not in ETCDS_OWN:
                    assert (host, volume["hostPath"]["path"]) in written
