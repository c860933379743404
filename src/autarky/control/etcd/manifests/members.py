"""EtcdMember: one per node that has, or should have, an etcd member; what its agents may do; the quorum guard.

The operator writes the spec, users may set `state`; the node agents write the status. Deleting an EtcdMember (or
the definition) stops nothing (rule 10): the operator creates it again.

The quorum guard is one idle pod beside each member, Ready while that member is, with a PodDisruptionBudget. Drains skip
static pods (`kubectl drain` ignores mirror pods, and evicting one stops nothing), so etcd's own pod cannot hold up a
drain; an ordinary pod can.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from autarky.control.common.understood import MEMBER_ID, REVISION
from autarky.control.etcd.manifests import pods as etcd
from autarky.model import ports
from autarky.model.components import NAME_LABEL
from autarky.model.patience import ADDON_PROBE
from autarky.render import pods
from autarky.render.crds import API_VERSION, GROUP, NODE_NAME, definition
from autarky.render.values import MANAGED_BY, SYSTEM, Inputs, Object, metadata

KIND = "EtcdMember"
PLURAL = "etcdmembers"
IDEA = "autarky.dev/operator-wants"
"""Annotation: the state that the operator last wanted; `spec.state` follows when that changes, and only then."""
AGENTS_ROLE = "autarky:etcd-members"
GUARD = "etcd-quorum-guard"
OWN_TAINTS = "node.kubernetes.io/"
"""Prefix of Kubernetes' own taints. A guard that tolerated "unschedulable" would come back at once on the node that it
was evicted from."""
_RBAC = "rbac.authorization.k8s.io"


def crd() -> Object:
    columns: list[Object] = [
        {"name": "State", "type": "string", "jsonPath": ".spec.state"},
        {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
        {"name": "Address", "type": "string", "jsonPath": ".spec.address"},
        {"name": "Member", "type": "string", "jsonPath": ".status.memberID"},
        {"name": "Template", "type": "string", "jsonPath": ".status.revision", "priority": 1},
        {"name": "Message", "type": "string", "jsonPath": ".status.message", "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    return definition(KIND, PLURAL, _schema(), columns)


def _schema() -> Object:
    fixed = {"rule": "self == oldSelf", "message": "it cannot be changed: a member stays where it is"}
    spec: Object = {
        "type": "object",
        "required": ["nodeName", "address"],
        "properties": {
            "nodeName": {
                "type": "string",
                "minLength": 1,
                "maxLength": 253,
                "pattern": NODE_NAME,
                "x-kubernetes-validations": [fixed],
            },
            "address": {
                "type": "string",
                "format": "ipv4",
                "x-kubernetes-validations": [fixed],
                "description": "Of the node; etcd listens there.",
            },
            "state": {
                "type": "string",
                "enum": ["Member", "Removed"],
                "default": "Member",
                "description": "Member: etcd runs there, as a learner until it is in sync. Removed: it leaves etcd.",
            },
            "revision": {
                "type": "string",
                "pattern": REVISION,
                "description": "The template that it should be made from. The operator writes it.",
            },
        },
    }
    status: Object = {
        "type": "object",
        "properties": {
            "phase": {
                "type": "string",
                "enum": ["Pending", "Joining", "Learner", "Member", "Leaving", "Removed", "Blocked"],
            },
            "memberID": {
                "type": "string",
                "pattern": MEMBER_ID,
                "description": "Of etcd, in hex, as etcdctl prints it.",
            },
            "message": {"type": "string"},
            "lostMemberID": {
                "type": "string",
                "pattern": MEMBER_ID,
                "description": "The member whose data is not on its node any more, as its node's agent found.",
            },
            "vacating": {
                "type": "string",
                "pattern": "^([0-9a-f]{1,16}/.+)?$",
                "description": "Member and pod: the API server beside a member that leaves, which makes way.",
            },
            "vacatedMemberID": {
                "type": "string",
                "pattern": MEMBER_ID,
                "description": "The member that nobody is connected to any more, so that it may be removed.",
            },
            "uses": {
                "type": "array",
                "maxItems": 20,
                "items": {"type": "string", "pattern": MEMBER_ID},
                "description": "Members on other nodes that leave, to which this node's API server is still connected.",
            },
            "revision": {
                "type": "string",
                "pattern": REVISION,
                "description": "The template that it is made from; empty while that is another one than in the spec.",
            },
            "turn": {
                "type": "string",
                "pattern": REVISION,
                "description": "The template that it may change to now.",
            },
            "failedRevision": {
                "type": "string",
                "pattern": REVISION,
                "description": "The template that it was not healthy with.",
            },
            "failure": {"type": "string", "description": "Why it was not."},
            "trouble": {
                "type": "string",
                "description": "What of its data or its disk needs a person, as its node's agent found.",
            },
            "second": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
                "description": "A second member on its node, which stands in for the only one while that is changed.",
            },
        },
    }
    named = {
        "rule": "self.metadata.name == self.spec.nodeName",
        "message": "an EtcdMember has the name of its node",
    }
    return {
        "type": "object",
        "required": ["spec"],
        "x-kubernetes-validations": [named],
        "properties": {"spec": spec, "status": status},
    }


def objects(inputs: Inputs) -> list[Object]:
    """The template of joining members, and what a control node's agent may do with EtcdMembers. The operator binds the
    agents to these roles: control nodes come and go."""
    return [
        etcd.template_object(inputs),
        _role(
            "ClusterRole",
            None,
            [
                {"apiGroups": [GROUP], "resources": [PLURAL], "verbs": ["get", "list", "watch"]},
                {"apiGroups": [GROUP], "resources": [f"{PLURAL}/status"], "verbs": ["patch"]},
            ],
        ),
        _role(
            "Role",
            SYSTEM,
            [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [etcd.TEMPLATE], "verbs": ["get"]}],
        ),
    ]


def _role(kind: str, namespace: str | None, rules: list[Object]) -> Object:
    return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata(AGENTS_ROLE, namespace), "rules": rules}


def bindings(nodes: Iterable[str]) -> list[Object]:
    """For the node agents of these nodes, which use their kubelets' identities and manage etcd's members."""
    subjects = [{"apiGroup": _RBAC, "kind": "User", "name": f"system:node:{name}"} for name in sorted(nodes)]
    return [
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": f"{kind}Binding",
            "metadata": metadata(AGENTS_ROLE, namespace),
            "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": AGENTS_ROLE},
            "subjects": subjects,
        }
        for kind, namespace in (("ClusterRole", None), ("Role", SYSTEM))
    ]


def member(name: str, address: str, *, present: bool) -> Object:
    """As the operator creates it."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {**metadata(name), "annotations": {IDEA: state(present=present)}},
        "spec": {"nodeName": name, "address": address, "state": state(present=present)},
    }


def state(*, present: bool) -> str:
    return "Member" if present else "Removed"


def should_be_member(obj: Object) -> bool:
    """Whether this EtcdMember asks for a member of etcd, or for it to leave."""
    return bool(obj["spec"].get("state", "Member") == "Member")


# --- the quorum guard ------------------------------------------------------------------------------


def guard(image: str, nodes: Collection[str], taint_keys: Collection[str]) -> Object:
    """A pod on each of these nodes; `taint_keys`: of the nodes' taints, which it tolerates unless they are
    Kubernetes' own. Selected by node name: a kubelet sets its own hostname label, so a worker could claim a control
    node's, get the guard, and report the quorum as healthy."""
    labels = {NAME_LABEL: GUARD}
    here = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]} for name in sorted(nodes)]
    container = {
        "name": GUARD,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "resources": pods.requests("5m", "4Mi"),
        # The kubelet asks its own loopback, where etcd serves its health.
        "readinessProbe": pods.http_probe("/readyz", ports.ETCD_HEALTH, period=3, failures=3, timeout=ADDON_PROBE),
        "securityContext": pods.restricted_container(),
    }
    pod: Object = {
        "hostNetwork": True,
        "priorityClassName": pods.CLUSTER_CRITICAL,
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": here}},
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
                ]
            },
        },
        "tolerations": _tolerations(taint_keys),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 3,
        "securityContext": pods.nonroot_pod(),
        "containers": [container],
    }
    strategy = pods.rolling(surge=0, unavailable=1)
    return pods.deployment(GUARD, pod, replicas=len(nodes), strategy=strategy, labels=labels)


def _tolerations(taint_keys: Collection[str]) -> list[Object]:
    """A node that does not respond keeps its guard, unready: moving it elsewhere would hide the loss."""
    silent: list[Object] = [
        {"key": f"{OWN_TAINTS}{what}", "operator": "Exists", "effect": "NoExecute"}
        for what in ("not-ready", "unreachable")
    ]
    given = sorted({key for key in taint_keys if not key.startswith(OWN_TAINTS)})
    return [*silent, *({"key": key, "operator": "Exists"} for key in given)]


def guard_budget(unavailable: int) -> Object:
    """An unready guard may always be evicted: the member beside it is down anyway."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": GUARD, "namespace": SYSTEM, "labels": dict(MANAGED_BY)},
        "spec": {
            "maxUnavailable": unavailable,
            "selector": {"matchLabels": {NAME_LABEL: GUARD}},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
