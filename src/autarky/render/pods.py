"""The pieces that pod specs share: probes, security, static pods and their generations.

Danger: the two slots of a component must stay one description (the same command with other ports and
other places for the same files); the functions here take what differs as parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID, uuid5

from autarky.model.cluster import Node
from autarky.model.components import API_SERVER, HOSTED, NAME_LABEL, SLOT_LABEL, STANDBY
from autarky.model.patience import PROBE
from autarky.render.values import MANAGED_BY, SYSTEM, Object, content_hash

ACTIVATION = "@ACTIVATION@"
ACTIVATION_UID = "@UID@"
"""Placeholders in a standby's pod: each activation gets its own name and uid, never reused, because a kubelet that
restarts without an API cannot replace a static pod with one of the same name (kubernetes/kubernetes#105543)."""

REVISION = "autarky.dev/revision"
"""Annotation of a standby's pod: which revision it is."""
_GENERATIONS = UUID("6f8a2d52-2a0b-5d53-9d5e-3b0c6a9f1e77")
"""Any fixed uuid will do: the namespace that generation uids are derived in."""

NODE_CRITICAL = "system-node-critical"
CLUSTER_CRITICAL = "system-cluster-critical"
TOLERATE_ALL: list[Object] = [{"operator": "Exists"}]
LEAVE_AFTER_A_MINUTE: list[Object] = [
    {"key": f"node.kubernetes.io/{why}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
    for why in ("not-ready", "unreachable")
]
"""Leave a node that is gone. Kubernetes' own default is five minutes."""
LEAVE_DEAD_NODES: list[Object] = [*LEAVE_AFTER_A_MINUTE, *TOLERATE_ALL]
"""For Deployments of the control plane, which may run on any of its nodes, whatever their taints: one whose node is
gone is replaced on another one. (The first matching toleration counts. While no node is Ready, as after a power cut of
all of them, Kubernetes evicts nothing.)"""
NONROOT = 65532


def restricted_container(*, user: int | None = None) -> Object:
    """No privileges, read-only root file system; `user` None leaves the user to the pod."""
    context: Object = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    return context if user is None else {**context, "runAsUser": user}


def nonroot_pod() -> Object:
    """fsGroup lets the user read Secret volumes of mode 0440 and nobody else."""
    return {
        "runAsNonRoot": True,
        "runAsUser": NONROOT,
        "runAsGroup": NONROOT,
        "fsGroup": NONROOT,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def https_probe(path: str, port: int, *, period: int, failures: int, timeout: int = PROBE, delay: int = 0) -> Object:
    """A probe of the process's own port on loopback; seconds. Numeric, since no port is declared."""
    return _http_probe("HTTPS", path, port, period=period, failures=failures, timeout=timeout, delay=delay)


LOCAL = "127.0.0.1"


def http_probe(
    path: str, port: int, *, period: int, failures: int, timeout: int = PROBE, delay: int = 0, host: str = LOCAL
) -> Object:
    probe = _http_probe("HTTP", path, port, period=period, failures=failures, timeout=timeout, delay=delay)
    return {**probe, "httpGet": {**probe["httpGet"], "host": host}}


def _http_probe(scheme: str, path: str, port: int, *, period: int, failures: int, timeout: int, delay: int) -> Object:
    return {
        "httpGet": {"host": LOCAL, "scheme": scheme, "path": path, "port": port},
        "periodSeconds": period,
        "failureThreshold": failures,
        "timeoutSeconds": timeout,
        "initialDelaySeconds": delay,
    }


def requests(cpu: str, memory: str) -> Object:
    """Requests without limits: a limit could kill or throttle what keeps the cluster alive."""
    return {"requests": {"cpu": cpu, "memory": memory}}


STANDBY_CPU = {API_SERVER: "250m"}
"""What kubeadm requests for its only API server. After a power cut the standby is the only one, too, while everything
else on the node starts: with as little as the others have it would be slowest."""


def standby_share(component: str) -> Object:
    """The requests of a standby: a share of the CPU and nothing else.

    With no request the pod would be BestEffort. That class has 2 CPU shares in total and others have hundreds: on a
    starved machine the standby, which everybody needs just then, would get no CPU time. The request is small, so that
    it hardly ever preempts other pods on a full node.
    """
    return {"requests": {"cpu": STANDBY_CPU.get(component, "100m")}}


def secret_volume(name: str, secret: str) -> Object:
    return {"name": name, "secret": {"secretName": secret, "defaultMode": 0o440}}


def config_volume(name: str, config_map: str) -> Object:
    return {"name": name, "configMap": {"name": config_map, "defaultMode": 0o444}}


def host_volume(name: str, path: str, kind: str) -> Object:
    return {"name": name, "hostPath": {"path": path, "type": kind}}


def mount(name: str, path: str, *, read_only: bool = True, follows_host: bool = False) -> Object:
    """follows_host: mounts that the host makes there later appear in the container as well."""
    found: Object = {"name": name, "mountPath": path, "readOnly": read_only}
    return {**found, "mountPropagation": "HostToContainer"} if follows_host else found


def static_pod(name: str, uid: str, labels: Mapping[str, str], spec: Object) -> Object:
    """A static pod on the host network, with the priority of node-critical pods."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": SYSTEM, "uid": uid, "labels": {**MANAGED_BY, **labels}},
        "spec": {
            "hostNetwork": True,
            "priorityClassName": NODE_CRITICAL,
            "priority": 2000001000,
            "tolerations": TOLERATE_ALL,
            "enableServiceLinks": False,
            "automountServiceAccountToken": False,
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            **spec,
        },
    }


def generation(component: str, node: Node, spec: Object) -> Object:
    """A permanent static pod (etcd, the load balancer). Its name and uid are derived from its content and its node, so
    that each generation has its own and a kubelet of another minor version sees no change."""
    return generation_on(node.name, component, spec)


def generation_on(node: str, component: str, spec: Object) -> Object:
    """The same for a node of which only the name is known."""
    name = f"{component}-{content_hash(spec, 8)}"
    uid = str(uuid5(_GENERATIONS, f"{node}/{name}"))
    return static_pod(name, uid, {NAME_LABEL: component, "tier": "control-plane"}, spec)


def standby_pod(component: str, revision: str, spec: Object) -> Object:
    """The standby's pod with placeholders for what each activation sets."""
    labels = {NAME_LABEL: component, "tier": "control-plane", SLOT_LABEL: STANDBY}
    pod = static_pod(f"{component}-standby-{ACTIVATION}", ACTIVATION_UID, labels, spec)
    pod["metadata"]["annotations"] = {REVISION: revision}
    return pod


def daemon_set(name: str, pod: Object, *, strategy: Object) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": SYSTEM, "labels": {**MANAGED_BY, NAME_LABEL: name}},
        "spec": {
            "selector": {"matchLabels": {NAME_LABEL: name, SLOT_LABEL: HOSTED}},
            "updateStrategy": strategy,
            "template": _template(name, pod),
        },
    }


def deployment(
    name: str, pod: Object, *, replicas: int, strategy: Object, labels: Mapping[str, str], settles: int = 0
) -> Object:
    """settles: seconds for which a new pod has to be Ready before a former one is ended."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": SYSTEM, "labels": {**MANAGED_BY, **labels}},
        "spec": {
            "replicas": replicas,
            **({"minReadySeconds": settles} if settles else {}),
            "selector": {"matchLabels": dict(labels)},
            "strategy": strategy,
            "template": {"metadata": {"labels": {**MANAGED_BY, **labels}}, "spec": pod},
        },
    }


def _template(name: str, pod: Object) -> Object:
    return {
        "metadata": {"labels": {NAME_LABEL: name, "tier": "control-plane", SLOT_LABEL: HOSTED}},
        "spec": pod,
    }


def disruption_budget(name: str, labels: Mapping[str, str], *, unavailable: int = 1) -> Object:
    """So many at a time: `minAvailable: 1` would forbid every drain while there is one replica. A pod that is not
    healthy serves nobody, and blocks no drain."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": SYSTEM, "labels": dict(MANAGED_BY)},
        "spec": {
            "maxUnavailable": unavailable,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": dict(labels)},
        },
    }


def rolling(*, surge: int | str, unavailable: int | str) -> Object:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


def command_container(name: str, image: str, command: Sequence[str], **fields: object) -> Object:
    return {"name": name, "image": image, "imagePullPolicy": "IfNotPresent", "command": list(command), **fields}
