"""The node agent: DaemonSet on every node, static pod on control nodes, and what its identity may do.

It acts as its node's kubelet: a shared ServiceAccount would give every worker the rights that control nodes
need, and a static pod cannot have one. What it needs beyond a kubelet's rights is bound by name: to all
nodes to read the ControlPlane and where default/kubernetes leads to, to control nodes to read the two leases of
level 3; the operator does the same for control nodes that a label makes (`control_nodes`). (To free the lease of a
holder that died with the power it acts as that component: NodeRestriction lets no kubelet change them.)
"""

from __future__ import annotations

from autarky import places
from autarky.control.certificates.manifests.leaves import CONFIG_MAP
from autarky.control.load_balancer.manifests.endpoints import KIND, NAME, NAMESPACE
from autarky.model import ports
from autarky.model.cluster import Cluster, Node
from autarky.model.components import CONTROLLER_MANAGER, NAME_LABEL, NODE_AGENT, SCHEDULER, SLOT_LABEL, STANDBY
from autarky.render import pods
from autarky.render.crds import GROUP
from autarky.render.values import SYSTEM, Inputs, Object, metadata

STANDBY_POD = f"{NODE_AGENT}-standby"
"""The static pod's name begins with it, and so does its manifest's."""
IMAGE = "agent"
SLOT = "AUTARKY_SLOT"
"""The variable that tells an agent which slot it runs in: "hosted" or "standby"."""
POD_UID = "POD_UID"
"""The variable that tells an agent the uid of its pod, by which whoever waits for the lock has a hung holder ended."""
KUBELET_PKI = "/var/lib/kubelet/pki"
CONTAINERD_RUN = "/run/containerd"
LEASES = "autarky:node-agent-leases"
"""The role that lets the agent of a control node read the two leases of level 3, and the plan of its certificates."""
_RBAC = "rbac.authorization.k8s.io"


def objects(inputs: Inputs) -> list[Object]:
    """Rights and DaemonSet."""
    pod = {
        **_spec(inputs, "hosted"),
        "hostNetwork": True,
        "priorityClassName": pods.NODE_CRITICAL,
        "tolerations": pods.TOLERATE_ALL,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
    }
    daemon_set = pods.daemon_set(NODE_AGENT, pod, strategy=pods.rolling(surge=0, unavailable=1))
    return [*_rights(inputs.cluster), daemon_set]


def static_pod(inputs: Inputs, node: Node) -> Object:
    """The agent that needs no API: parked until nobody else acts."""
    spec = standby_agent({"spec": _spec(inputs, "standby")})["spec"]
    pod = pods.generation(STANDBY_POD, node, spec)
    pod["metadata"]["labels"] |= {NAME_LABEL: NODE_AGENT, SLOT_LABEL: STANDBY}
    return pod


def standby_agent(pod: Object) -> Object:
    """A hosted agent's pod as it would be parked. It has no readiness: a parked agent is as it should be."""
    spec = pod["spec"]
    containers = [_parked(c) if c["name"] == NODE_AGENT else c for c in spec["containers"]]
    return {**pod, "spec": {**spec, "terminationGracePeriodSeconds": 5, "containers": containers}}


def _parked(container: Object) -> Object:
    bare = {key: value for key, value in container.items() if key != "readinessProbe"}
    slot = {"name": SLOT, "value": "standby"}
    return {**bare, "env": [slot if v["name"] == SLOT else v for v in container.get("env") or ()]}


def _spec(inputs: Inputs, slot: str) -> Object:
    container = pods.command_container(
        NODE_AGENT,
        inputs.image(IMAGE),
        ["/usr/bin/python3", "-m", "autarky.agents.node"],
        env=[
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": POD_UID, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
            {"name": SLOT, "value": slot},
            {"name": "PYTHONUNBUFFERED", "value": "1"},
        ],
        resources=pods.requests("20m", "64Mi"),
        # Answered by whichever agent of the node acts, so that these tell of the node and not of the container. Whoever
        # waits for the lock has a holder that hangs ended much sooner; this is for where nobody waits. Then the kubelet
        # ends all agents of the node: the one that hangs is among them.
        livenessProbe=pods.http_probe("/healthz", ports.NODE_AGENT, period=10, failures=9),
        # Until it listens a slow machine may need minutes.
        startupProbe=pods.http_probe("/healthz", ports.NODE_AGENT, period=2, failures=150),
        readinessProbe=pods.http_probe("/healthz", ports.NODE_AGENT, period=2, failures=5),
        volumeMounts=[
            pods.mount("state", places.HOST_ROOT, read_only=False),
            pods.mount("kubernetes", places.KUBERNETES),
            pods.mount("manifests", places.MANIFESTS, read_only=False),
            # A node that a label makes a control node gets its etcd certificates by its agent, and one that ceases to
            # be one loses its keys by it.
            pods.mount("pki", places.PKI, read_only=False),
            # A control node's kubelet whose certificate has expired gets another one by its agent.
            pods.mount("kubelet-pki", KUBELET_PKI, read_only=False),
            pods.mount("run", places.RUN, read_only=False),
            pods.mount("containerd", CONTAINERD_RUN, read_only=False),
            # A disk of etcd's own may come when this container runs already: without it, its member would seem lost.
            pods.mount("etcd", places.ETCD_DATA, read_only=False, follows_host=True),
        ],
        # root without capabilities: it writes root's files on the host, and needs no more.
        securityContext=pods.restricted_container(user=0),
    )
    return {
        "terminationGracePeriodSeconds": 10,
        # The group of the hosted components, for which it keeps certificates: who is in a group may give it files.
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}, "supplementalGroups": [pods.NONROOT]},
        "containers": [container],
        "volumes": [
            pods.host_volume("state", places.HOST_ROOT, "DirectoryOrCreate"),
            pods.host_volume("kubernetes", places.KUBERNETES, "Directory"),
            pods.host_volume("manifests", places.MANIFESTS, "DirectoryOrCreate"),
            pods.host_volume("pki", places.PKI, "DirectoryOrCreate"),
            pods.host_volume("kubelet-pki", KUBELET_PKI, "Directory"),
            pods.host_volume("run", places.RUN, "DirectoryOrCreate"),
            pods.host_volume("containerd", CONTAINERD_RUN, "Directory"),
            pods.host_volume("etcd", places.ETCD_DATA, "DirectoryOrCreate"),
        ],
    }


# --- rights ------------------------------------------------------------------------------------------


def _rights(cluster: Cluster) -> list[Object]:
    lease_names = [CONTROLLER_MANAGER, SCHEDULER]
    leases = {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": lease_names,
        "verbs": ["get", "list", "watch"],
    }
    control_planes = {"apiGroups": [GROUP], "resources": ["controlplanes"], "verbs": ["get", "list", "watch"]}
    endpoints = {
        "apiGroups": [KIND[0].partition("/")[0]],
        "resources": ["endpointslices"],
        "resourceNames": [NAME],
        "verbs": ["get", "list", "watch"],
    }
    # What the certificates that it keeps must name.
    plan = {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": [CONFIG_MAP],
        "verbs": ["get", "list", "watch"],
    }
    users = [_subject("User", f"system:node:{node.name}") for node in cluster.control_nodes]
    return [
        _object("Role", "autarky:node-agent-endpoints", NAMESPACE, rules=[endpoints]),
        _object(
            "RoleBinding",
            "autarky:node-agent-endpoints",
            NAMESPACE,
            roleRef=_role("Role", "autarky:node-agent-endpoints"),
            subjects=[_subject("Group", "system:nodes")],
        ),
        _object("ClusterRole", "autarky:node-agent", rules=[control_planes]),
        _object(
            "ClusterRoleBinding",
            "autarky:node-agent",
            roleRef=_role("ClusterRole", "autarky:node-agent"),
            subjects=[_subject("Group", "system:nodes")],
        ),
        _object("Role", LEASES, SYSTEM, rules=[leases, plan]),
        _object(
            "RoleBinding",
            LEASES,
            SYSTEM,
            roleRef=_role("Role", LEASES),
            subjects=users,
        ),
    ]


def _object(kind: str, name: str, namespace: str | None = None, **fields: object) -> Object:
    return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata(name, namespace), **fields}


def _role(kind: str, name: str) -> Object:
    return {"apiGroup": _RBAC, "kind": kind, "name": name}


def _subject(kind: str, name: str) -> Object:
    return {"apiGroup": _RBAC, "kind": kind, "name": name}
