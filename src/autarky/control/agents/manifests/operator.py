"""The operator: account, rights, Deployment, disruption budget.

It rolls out as level 3 does (see `leadership`): the new pod starts beside the old one, the lease decides which one
acts, and both share the port. Only its probes have an address of their own, by its revision: else the former operator
would answer them, and end for one that hangs; and it judges the new one, so it stays until that has been Ready for
SETTLES. It is on the host network, since it must work without a service network.
"""

from __future__ import annotations

import base64
import hashlib

from autarky.control.admission.decide.approval import CLIENT_SIGNER, SERVING_SIGNER
from autarky.control.backup.manifests.definitions import BACKUPS, SCHEDULES
from autarky.control.certificates.manifests.leaves import CONFIG_MAP
from autarky.control.control_nodes.manifests import AUTHORITIES, RECORD, authority_key
from autarky.control.etcd.manifests.members import AGENTS_ROLE, GUARD, PLURAL
from autarky.control.etcd.manifests.pods import TEMPLATE
from autarky.control.leadership.manifests import one_per_node
from autarky.control.rollout.manifests import secret_name
from autarky.model import ports
from autarky.model.components import (
    API_SERVER,
    COMPONENTS,
    CONTROLLER_MANAGER,
    JUDGED,
    KUBELET,
    MOVED,
    NAME_LABEL,
    OPERATOR,
    SCHEDULER,
)
from autarky.model.patience import STARTS
from autarky.render import node, pods
from autarky.render.access import INVENTORY, RENEWALS
from autarky.render.crds import CONTROL_PLANE, GROUP
from autarky.render.values import CONTROL_PLANE_ACTIVE, SYSTEM, Inputs, Object, metadata

IMAGE = "agent"
WATCH = ["get", "list", "watch"]
SETTLES = 45
"""Seconds: longer than a revision needs to be found healthy (`PROVEN_SECONDS` of `rollout.decide.verdict`). Only the
former operator can take back a new one that does not run for so long: it has to be there until then."""
_RBAC = "rbac.authorization.k8s.io"


def retired_name(component: str) -> str:
    """The ConfigMap that keeps a hosted workload while its level is not hosted."""
    return f"autarky-retired-{component}"


def objects(inputs: Inputs) -> list[Object]:
    """Everything of the operator."""
    labels = {NAME_LABEL: OPERATOR, "tier": "control-plane"}
    deployment = pods.deployment(
        OPERATOR,
        _pod(inputs, labels),
        replicas=min(2, len(inputs.cluster.control_nodes)),
        strategy=pods.rolling(surge=1, unavailable=0),
        labels=labels,
        settles=SETTLES,
    )
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(OPERATOR, SYSTEM)}
    return [account, *_rights(), _authorities(inputs), deployment, pods.disruption_budget(OPERATOR, labels)]


def _authorities(inputs: Inputs) -> Object:
    """The keys that every control node has on its disk. Nothing mounts them: a node that a label makes a control node
    reads them once, by a right that it has only during that change."""
    files = node.recovery_files(inputs)
    data = {authority_key(name): base64.b64encode(content).decode() for name, content in files.items()}
    meta = metadata(AUTHORITIES, SYSTEM, {NAME_LABEL: OPERATOR})
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "Opaque", "data": data}


def _pod(inputs: Inputs, labels: dict[str, str]) -> Object:
    image = inputs.image(IMAGE)
    own = own_address(image)
    container = pods.command_container(
        OPERATOR,
        image,
        ["/usr/bin/python3", "-m", "autarky.agents.operator", f"--own-address={own}"],
        env=[{"name": "PYTHONUNBUFFERED", "value": "1"}],
        resources=pods.requests("20m", "64Mi"),
        startupProbe=pods.http_probe("/healthz", ports.OPERATOR, period=1, failures=STARTS, host=own),
        livenessProbe=pods.http_probe("/healthz", ports.OPERATOR, period=10, failures=6, host=own),
        readinessProbe=pods.http_probe("/healthz", ports.OPERATOR, period=2, failures=5, host=own),
        securityContext=pods.restricted_container(),
    )
    return {
        "hostNetwork": True,
        "priorityClassName": pods.CLUSTER_CRITICAL,
        "nodeSelector": {CONTROL_PLANE_ACTIVE: ""},
        "tolerations": pods.LEAVE_DEAD_NODES,
        "serviceAccountName": OPERATOR,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 15,
        "securityContext": pods.nonroot_pod(),
        "affinity": {"podAntiAffinity": one_per_node(labels)},
        "containers": [container],
    }


def own_address(image: str) -> str:
    """The loopback address, out of 127.64.0.0/10, at which operators of that image, and no others, answer probes."""
    first, second, third = hashlib.sha256(image.encode()).digest()[:3]
    return f"127.{64 + first % 64}.{second}.{1 + third % 254}"


# --- rights --------------------------------------------------------------------------------------------


def _rights() -> list[Object]:
    return [
        *_granted("ClusterRole", "autarky:operator", None, _in_the_cluster()),
        *_granted("Role", "autarky:operator-rollbacks", SYSTEM, _in_the_system_namespace()),
        *_granted("Role", "autarky:operator-endpoints", "default", _in_the_default_namespace()),
    ]


def _in_the_cluster() -> list[Object]:
    return [
        # Which control nodes there are, their addresses, readiness, and what their agents report of their slots.
        _rule("", ["nodes"], WATCH),
        # Sets and removes the active label of control nodes; orders kubelets, with a cordon where a node is drained;
        # gives hosted ones their turns.
        _rule("", ["nodes"], ["patch"]),
        # The desired control plane; in the status, its actual state.
        _rule(GROUP, ["controlplanes"], WATCH),
        _rule(GROUP, ["controlplanes/status"], ["update"], [CONTROL_PLANE]),
        # Which nodes have a member of etcd; node agents report on them, and get the rights that they need for it.
        _rule(GROUP, [PLURAL], [*WATCH, "create", "patch", "delete"]),
        # Asks for the backups of a schedule, gives up old ones, and says what became of each.
        _rule(GROUP, [SCHEDULES], WATCH),
        _rule(GROUP, [BACKUPS], [*WATCH, "create", "patch", "delete"]),
        _rule(GROUP, [f"{BACKUPS}/status", f"{SCHEDULES}/status"], ["patch"]),
        _rule(_RBAC, ["clusterrolebindings", "rolebindings"], ["create"]),
        _rule(_RBAC, ["clusterrolebindings", "rolebindings"], ["get", "patch"], [AGENTS_ROLE]),
        _rule(_RBAC, ["clusterroles", "roles"], ["bind"], [AGENTS_ROLE]),
        # Approves or denies kubelets' certificate requests, for these two signers only.
        _rule("certificates.k8s.io", ["certificatesigningrequests"], WATCH),
        _rule("certificates.k8s.io", ["certificatesigningrequests/approval"], ["update"]),
        _rule("certificates.k8s.io", ["signers"], ["approve"], [CLIENT_SIGNER, SERVING_SIGNER]),
        # The policies that restrict what nodes may write: created again when they are deleted.
        _rule(
            "admissionregistration.k8s.io",
            ["validatingadmissionpolicies", "validatingadmissionpolicybindings"],
            [*WATCH, "create"],
        ),
        # Creating one with a parameter requires the right to read every object that may be a parameter. The API server
        # checks that by the name "*", which no object can have: this grants no access to any ConfigMap.
        _rule("", ["configmaps"], ["get"], ["*"]),
        *_to_check_before_an_upgrade(),
    ]


def _to_check_before_an_upgrade() -> list[Object]:
    """What `control.upgrade.observe` reads and nothing above allows; it is all read there, and nothing is written."""
    return [
        # Webhooks that nothing answers for refuse what an upgrade writes: which there are, whether their Services have
        # ready endpoints, and whether they are for kube-system, by its labels.
        _rule(
            "admissionregistration.k8s.io",
            ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"],
            ["list"],
        ),
        _rule("discovery.k8s.io", ["endpointslices"], ["list"]),
        _rule("", ["services"], ["get"]),
        _rule("", ["namespaces"], ["get"], [SYSTEM]),
        # Which budgets would hold up the drains for kubelets, and which aggregated APIs are away.
        _rule("policy", ["poddisruptionbudgets"], ["list"]),
        _rule("apiregistration.k8s.io", ["apiservices"], ["list"]),
        # Whether clients ask for APIs that the new version does not have, and how many objects there are of these.
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
    ]


def _in_the_system_namespace() -> list[Object]:
    kept = [secret_name(name) for name in JUDGED]
    judged = {kind: [n for n in JUDGED if COMPONENTS[n].kind == kind] for kind in ("DaemonSet", "Deployment")}
    retired = [retired_name(name) for name in MOVED]
    return [
        # Its own lease: created without a name in the request, hence a rule of its own.
        _rule("coordination.k8s.io", ["leases"], ["create"]),
        _rule("coordination.k8s.io", ["leases"], ["get", "update"], [OPERATOR]),
        # Who leads level 3.
        _rule("coordination.k8s.io", ["leases"], WATCH, [CONTROLLER_MANAGER, SCHEDULER]),
        # What runs, why it does not, and the end of its log for the event.
        _rule("", ["pods"], WATCH),
        _rule("", ["pods/log"], ["get"]),
        _rule("", ["events"], ["list", "create"]),
        # Deletes a failed API server that never served, since the good one waits for it; continues a rollout that is
        # stuck on a node that is off.
        _rule("", ["pods"], ["delete"]),
        # A pod that makes or removes a backup (it creates Deployments and DaemonSets anyway).
        _rule("", ["pods"], ["create"]),
        # The workloads and their revisions. A rollback replaces their template, and so does a change of arguments
        # (except for kube-proxy, the kubelet and the add-ons); the kubelet's follows the control plane's version.
        _rule("apps", ["daemonsets", "deployments", "replicasets", "controllerrevisions"], WATCH),
        _rule("apps", ["daemonsets"], ["update"], judged["DaemonSet"]),
        _rule("apps", ["deployments"], ["update"], judged["Deployment"]),
        # Moving a level deletes its workload, or creates it again as it was (`create` cannot be limited to names).
        _rule("apps", ["daemonsets"], ["get", "delete"], [API_SERVER, KUBELET]),
        _rule("apps", ["deployments"], ["get", "delete"], [CONTROLLER_MANAGER, SCHEDULER]),
        _rule("apps", ["daemonsets", "deployments"], ["create"]),
        _rule("policy", ["poddisruptionbudgets"], ["get", "delete"], [CONTROLLER_MANAGER, SCHEDULER, API_SERVER]),
        _rule("policy", ["poddisruptionbudgets"], ["create"]),
        # The quorum guard: an idle pod beside each member of etcd, and a budget for how many may be away.
        _rule("apps", ["deployments"], ["patch", "delete"], [GUARD]),
        _rule("policy", ["poddisruptionbudgets"], [*WATCH, "patch", "delete"], [GUARD]),
        _rule("", ["configmaps"], ["update", "delete"], retired),
        # Which nodes may join, and which renewal credentials are valid. (A list by name returns one object.)
        _rule("", ["configmaps"], ["list", "watch"], [INVENTORY, RENEWALS]),
        # Which nodes are control nodes, in case their Node objects are deleted; what their agents may read meanwhile.
        # (RBAC lets nobody grant rights that they do not have themselves.)
        _rule("", ["configmaps"], ["list", "watch", "update", "delete"], [RECORD]),
        _rule(_RBAC, ["roles", "rolebindings"], ["get", "create", "patch", "delete"]),
        # What the certificates of the API servers must contain (`create` cannot be limited to names, and is below).
        _rule("", ["configmaps"], ["list", "watch", "patch"], [CONFIG_MAP]),
        # The template of etcd's members, with the arguments and the version that the ControlPlane asks for.
        _rule("", ["configmaps"], ["list", "watch", "patch"], [TEMPLATE]),
        # Copies of what the last good templates refer to, named by hashes of their content; the node that a join token
        # is for; before an upgrade, the configuration files that hosted components mount. Never listed. Created again
        # where a copy is missing.
        _rule("", ["secrets", "configmaps"], ["get", "create"]),
        _rule("", ["secrets"], ["update", "delete"], kept),
    ]


def _in_the_default_namespace() -> list[Object]:
    # default/kubernetes, which the API servers do not write. Apply needs `create` where it is absent.
    return [
        _rule("discovery.k8s.io", ["endpointslices"], [*WATCH, "patch"], ["kubernetes"]),
        _rule("discovery.k8s.io", ["endpointslices"], ["create"]),
        # Events about Nodes, which are cluster-scoped, are in this namespace.
        _rule("", ["events"], ["create"]),
    ]


def _rule(group: str, resources: list[str], verbs: list[str], names: list[str] | None = None) -> Object:
    rule: Object = {"apiGroups": [group], "resources": resources, "verbs": verbs}
    return rule if names is None else {**rule, "resourceNames": names}


def _granted(kind: str, name: str, namespace: str | None, rules: list[Object]) -> list[Object]:
    """The role and its binding to the operator's account."""
    subject = {"kind": "ServiceAccount", "name": OPERATOR, "namespace": SYSTEM}
    role = {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata(name, namespace), "rules": rules}
    binding = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{kind}Binding",
        "metadata": metadata(name, namespace),
        "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": name},
        "subjects": [subject],
    }
    return [role, binding]
