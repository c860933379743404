"""Level 3, kube-controller-manager and kube-scheduler, in both slots: Deployments and standby static pods.

A rollout must never need what it replaces. On one node the new pod therefore starts beside
the old one: both share the port (--permit-port-sharing), and pods of *different* templates may share the
node while two of the same template may not (`matchLabelKeys`). The lease decides which of them acts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autarky.control.certificates.manifests import leaves
from autarky.control.common.skew import minor_of
from autarky.model import patience
from autarky.model.components import COMPONENTS, CONTROLLER_MANAGER, HOSTED, NAME_LABEL, SCHEDULER, SLOT_LABEL
from autarky.model.versions import Version
from autarky.render import pods
from autarky.render.kubeconfig import file_kubeconfig
from autarky.render.values import CONTROL_PLANE_ACTIVE, Inputs, Object, flags, immutable_secret, with_given

MOST_REPLICAS = 3
"""One on each control node, so that none depends on its standby; more than three add nothing."""
MAY_BE_AWAY = "50%"
"""Of the pods during a rollout, rounded down: none where there is one. One of three: else a node that is off would hold
up every rollout, as its new pod waits for it, and the last old one for that. Who leads is enough."""
FILES = "/etc/kubernetes/secrets"
LEASE = {
    "leader-elect": "true",
    "leader-elect-lease-duration": f"{patience.LEASE}s",
    "leader-elect-renew-deadline": f"{patience.RENEW_DEADLINE:.0f}s",
    "leader-elect-retry-period": f"{patience.LEVEL_3_RETRY * 1000:.0f}ms",
}


@dataclass(frozen=True)
class Controller:
    """What differs between the two components."""

    name: str
    cpu: str
    memory: str
    live_path: str
    ready_path: str
    secret_files: Callable[[Inputs], dict[str, str]]
    arguments: Callable[[Inputs], dict[str, str]]


def _controller_manager_files(inputs: Inputs) -> dict[str, str]:
    files = inputs.credentials.pick(
        ca_crt="ca.crt", ca_key="ca.key", sa_key="sa.key", **{"front-proxy-ca_crt": "front-proxy-ca.crt"}
    )
    return {**files, "kubeconfig": _kubeconfig(inputs, CONTROLLER_MANAGER)}


def _kubeconfig(inputs: Inputs, component: str) -> str:
    """Its certificate differs by node, in files that the node's agent renews."""
    certificate = f"{leaves.directory_of(component)}/client"
    return file_kubeconfig(inputs, f"system:{component}", f"{certificate}.crt", f"{certificate}.key").decode()


def _controller_manager_arguments(inputs: Inputs) -> dict[str, str]:
    network, kubelets = inputs.cluster.network, inputs.cluster.certificates.kubelet_seconds
    signing = {} if kubelets is None else {"cluster-signing-duration": f"{kubelets}s"}
    return {
        "kubeconfig": f"{FILES}/kubeconfig",
        "authentication-kubeconfig": f"{FILES}/kubeconfig",
        "authorization-kubeconfig": f"{FILES}/kubeconfig",
        "client-ca-file": f"{FILES}/ca.crt",
        "requestheader-client-ca-file": f"{FILES}/front-proxy-ca.crt",
        "root-ca-file": f"{FILES}/ca.crt",
        "cluster-signing-cert-file": f"{FILES}/ca.crt",
        "cluster-signing-key-file": f"{FILES}/ca.key",
        **signing,
        "service-account-private-key-file": f"{FILES}/sa.key",
        "use-service-account-credentials": "true",
        "allocate-node-cidrs": "true",
        "cluster-cidr": str(network.pod_cidr),
        "service-cluster-ip-range": str(network.service_cidr),
        "cluster-name": inputs.cluster.name,
        "controllers": "*,bootstrap-signer-controller,token-cleaner-controller",
        **inputs.cluster.default_arguments(CONTROLLER_MANAGER),
        **_given_back(inputs.cluster.kubernetes_version),
        **LEASE,
    }


def _given_back(version: Version) -> dict[str, str]:
    """A gate that 1.35 does not know, alpha in 1.36 and 1.37: without it a controller-manager that is stopped keeps its
    lease for 15 s."""
    known = minor_of(version) >= (1, 36)
    return {"feature-gates": "ControllerManagerReleaseLeaderElectionLockOnExit=true"} if known else {}


def _scheduler_files(inputs: Inputs) -> dict[str, str]:
    files = inputs.credentials.pick(ca_crt="ca.crt", **{"front-proxy-ca_crt": "front-proxy-ca.crt"})
    return {**files, "kubeconfig": _kubeconfig(inputs, SCHEDULER)}


def _scheduler_arguments(inputs: Inputs) -> dict[str, str]:
    return {
        "kubeconfig": f"{FILES}/kubeconfig",
        "authentication-kubeconfig": f"{FILES}/kubeconfig",
        "authorization-kubeconfig": f"{FILES}/kubeconfig",
        "client-ca-file": f"{FILES}/ca.crt",
        "requestheader-client-ca-file": f"{FILES}/front-proxy-ca.crt",
        **inputs.cluster.default_arguments(SCHEDULER),
        **LEASE,
    }


CONTROLLERS = {
    CONTROLLER_MANAGER: Controller(
        CONTROLLER_MANAGER,
        "200m",  # as with kubeadm: most of what starts after a power cut waits for it
        "128Mi",
        "/healthz",  # it serves no other
        "/healthz",
        _controller_manager_files,
        _controller_manager_arguments,
    ),
    SCHEDULER: Controller(
        SCHEDULER,
        "100m",
        "64Mi",
        "/livez",
        "/readyz",
        _scheduler_files,
        _scheduler_arguments,
    ),
}


def _own_arguments(inputs: Inputs, controller: Controller, *, port: int, hosted: bool) -> dict[str, str]:
    own = {**controller.arguments(inputs), "secure-port": str(port)}
    return {**own, "permit-port-sharing": "true"} if hosted else own


def _container(inputs: Inputs, controller: Controller, *, port: int, hosted: bool) -> Object:
    own = _own_arguments(inputs, controller, port=port, hosted=hosted)
    command = [controller.name, *flags(own, inputs.cluster.extra_args.get(controller.name, {}))]
    container = pods.command_container(
        controller.name,
        inputs.image(controller.name),
        command,
        startupProbe=pods.https_probe(controller.live_path, port, period=1, failures=patience.STARTS),
        livenessProbe=pods.https_probe(controller.live_path, port, period=10, failures=8),
        readinessProbe=pods.https_probe(controller.ready_path, port, period=1, failures=5),
        volumeMounts=[pods.mount("files", FILES), pods.mount(leaves.VOLUME, leaves.directory_of(controller.name))],
        securityContext=pods.restricted_container(),
    )
    asked = pods.requests(controller.cpu, controller.memory)
    container["resources"] = asked if hosted else pods.standby_share(controller.name)
    return container


def hosted(inputs: Inputs, name: str) -> list[Object]:
    """Secret, Deployment and PodDisruptionBudget."""
    controller = CONTROLLERS[name]
    secret = immutable_secret(name, controller.secret_files(inputs))
    labels = {NAME_LABEL: name, "tier": "control-plane", SLOT_LABEL: HOSTED}
    pod: Object = {
        "hostNetwork": True,
        "priorityClassName": pods.CLUSTER_CRITICAL,
        "nodeSelector": {CONTROL_PLANE_ACTIVE: ""},
        "tolerations": pods.LEAVE_DEAD_NODES,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pods.nonroot_pod(),
        "affinity": {"podAntiAffinity": one_per_node(labels)},
        "containers": [_container(inputs, controller, port=COMPONENTS[controller.name].port, hosted=True)],
        "volumes": [pods.secret_volume("files", secret["metadata"]["name"]), _leaves_volume(name)],
    }
    deployment = pods.deployment(
        name,
        pod,
        replicas=min(MOST_REPLICAS, len(inputs.cluster.control_nodes)),
        strategy=pods.rolling(surge=1, unavailable=MAY_BE_AWAY),
        labels=labels,
    )
    own = _own_arguments(inputs, controller, port=COMPONENTS[controller.name].port, hosted=True)
    deployment = with_given(deployment, own, inputs.cluster.extra_args.get(name, {}))
    return [secret, deployment, pods.disruption_budget(name, labels)]


def one_per_node(labels: dict[str, str]) -> Object:
    """Two pods of one template never share a node; a pod of the next template may run beside the old one."""
    return {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": labels},
                "matchLabelKeys": ["pod-template-hash"],
            }
        ]
    }


def standby_spec(inputs: Inputs, name: str, directory: str) -> Object:
    """The pod spec of the standby whose files lie in `directory` on the host (root only)."""
    controller = CONTROLLERS[name]
    return {
        "containers": [_container(inputs, controller, port=COMPONENTS[controller.name].standby_port, hosted=False)],
        "volumes": [pods.host_volume("files", directory, "Directory"), _leaves_volume(name)],
    }


def _leaves_volume(name: str) -> Object:
    return pods.host_volume(leaves.VOLUME, leaves.directory_of(name), "Directory")


def standby_files(inputs: Inputs, name: str) -> dict[str, str]:
    return CONTROLLERS[name].secret_files(inputs)
