"""The node agent: DaemonSet on every node, static pod on control nodes, and what its identity may do.

It acts as its node's kubelet: a shared ServiceAccount would give every worker the rights that control nodes
need, and a static pod cannot have one. What it needs beyond a kubelet's rights is bound by name: all nodes may read
the ControlPlane and the endpoints of default/kubernetes, control nodes the two leases of level 3; the operator binds
the latter for nodes that become control nodes by a label (`control_nodes`). (To release the lease of a holder that died
in a power cut it acts as that component: NodeRestriction lets no kubelet change leases.)
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
"""Prefix of the static pod's name, and of its manifest's."""
IMAGE = "agent"
SLOT = "AUTARKY_SLOT"
"""Environment variable: the slot that the agent runs in, "hosted" or "standby"."""
POD_UID = "POD_UID"
"""Environment variable: the uid of the agent's pod. Whoever waits for the lock uses it to kill a holder that hangs."""
KUBELET_PKI = "/var/lib/kubelet/pki"
POD_LOGS = "/var/log/pods"
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
    """The standby agent, which needs no API: it waits until no other agent acts."""
    spec = standby_agent({"spec": _spec(inputs, "standby")})["spec"]
    pod = pods.generation(STANDBY_POD, node, spec)
    pod["metadata"]["labels"] |= {NAME_LABEL: NODE_AGENT, SLOT_LABEL: STANDBY}
    return pod


def standby_agent(pod: Object) -> Object:
    """A hosted agent's pod as a standby agent. It has no readiness probe: waiting for the lock is its normal state."""
    spec = pod["spec"]
    containers = [_waits_for_its_turn(c) if c["name"] == NODE_AGENT else c for c in spec["containers"]]
    return {**pod, "spec": {**spec, "terminationGracePeriodSeconds": 5, "containers": containers}}


def _waits_for_its_turn(container: Object) -> Object:
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
        # Whichever agent of the node acts answers these, so they judge the node and not the container. An agent that
        # waits for the lock kills a holder that hangs much sooner; this is for when none waits. Then the kubelet
        # restarts all agents of the node, the one that hangs among them.
        livenessProbe=pods.http_probe("/healthz", ports.NODE_AGENT, period=10, failures=9),
        # A slow machine may need minutes until the agent listens.
        startupProbe=pods.http_probe("/healthz", ports.NODE_AGENT, period=2, failures=150),
        readinessProbe=pods.http_probe("/healthz", ports.NODE_AGENT, period=2, failures=5),
        volumeMounts=[
            pods.mount("state", places.HOST_ROOT, read_only=False),
            pods.mount("kubernetes", places.KUBERNETES),
            pods.mount("manifests", places.MANIFESTS, read_only=False),
            # When a label makes a node a control node, its agent writes the etcd certificates here; when the node stops
            # being one, its agent deletes the keys.
            pods.mount("pki", places.PKI, read_only=False),
            # The agent issues a new certificate for a control node's kubelet whose own has expired.
            pods.mount("kubelet-pki", KUBELET_PKI, read_only=False),
            pods.mount("run", places.RUN, read_only=False),
            pods.mount("containerd", CONTAINERD_RUN, read_only=False),
            # etcd's disk may be mounted after this container has started: unseen, its member would seem lost.
            pods.mount("etcd", places.ETCD_DATA, read_only=False, follows_host=True),
            # Why a member of etcd ended, for whoever must correct its arguments.
            pods.mount("pod-logs", POD_LOGS),
        ],
        # root without capabilities: it writes files of root on the host, and needs no more.
        securityContext=pods.restricted_container(user=0),
    )
    return {
        "terminationGracePeriodSeconds": 10,
        # The group of the hosted components, whose certificates it writes: only a member may chgrp files to a group.
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
            pods.host_volume("pod-logs", POD_LOGS, "DirectoryOrCreate"),
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
    # What the certificates that it issues must contain.
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
