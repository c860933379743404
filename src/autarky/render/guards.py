"""What nodes may not write, and what makes a node: ValidatingAdmissionPolicies (docs/security.md).

Whoever is root on a worker holds its kubelet's certificate and the tokens of its pods. NodeRestriction holds the
kubelet to its own Node and a few labels, and looks at neither annotations nor addresses; and it looks at no other
identity. These policies leave to administrators and the operator what orders something. What a node may still write
is a report.

    autarky-node-orders     role labels, orders among annotations, more of either than can be looked through; of
                            kubelets also finalizers, owners, pod networks
    autarky-flannel-report  flannel's account changes its own node's Node only, and of that only what flannel reports
    autarky-join-tokens     join tokens are made by who may update the ControlPlane
    autarky-node-addresses  flannel's public address is one that the join inventory has for the node
    autarky-node-tunnels    flannel's tunnel has no other node's hardware address
    autarky-inventory       nodes that the join inventory lacks create no Node, no request, no lease and no pod
    autarky-mirror-pods     static pods in kube-system do not pass for hosted ones, and none keeps pods off nodes

Contract: nobody is exempt but by right: who may update the ControlPlane may do all of this, and the operator what it
decides. There are no other exemptions: `protection` trusts kubelets and kube-system's accounts, which is what this is
about.

Dangers: with failurePolicy Fail an expression that fails refuses the write, a kubelet's heartbeat among them. So the
policy that heartbeats meet has no parameter, and matches only when a guarded key changes: its conditions read maps
that may be absent through optional selection, which cannot fail, and look through none that is as it was, or large: a
kubelet that could make that cost too much would have every write to its Node refused, that of a drain too. The two that
are about writes of Nodes and need a parameter are let through when they cannot be judged; an absent or empty inventory
refuses nothing.
"""

from __future__ import annotations

from autarky.decide.certificates import ANNOTATION as CERTIFICATES
from autarky.decide.control_nodes import ANNOTATION as CONTROL_NODE
from autarky.decide.control_nodes import LEAVE
from autarky.decide.node_slots import ANNOTATION as SLOTS
from autarky.model.components import FLANNEL, HOSTED, NAME_LABEL, OPERATOR, SLOT_LABEL
from autarky.render.access import INVENTORY
from autarky.render.addons import DNS
from autarky.render.etcd_members import GUARD
from autarky.render.policies import ANTI_AFFINITY_TERMS, MAY, Parameter, listed, policy
from autarky.render.values import SYSTEM, WITHDRAWN, Object

ORDERS = "autarky-node-orders"
FLANNEL_REPORT = "autarky-flannel-report"
TOKENS = "autarky-join-tokens"
ADDRESSES = "autarky-node-addresses"
TUNNELS = "autarky-node-tunnels"
NODES = "autarky-inventory"
MIRRORS = "autarky-mirror-pods"

REPORTS = (SLOTS, WITHDRAWN, CERTIFICATES, CONTROL_NODE)
"""Of our annotations on Nodes, those that a node writes of itself; of the last, all words but `leave`."""
FLANNEL_USER = f"system:serviceaccount:{SYSTEM}:{FLANNEL}"
PUBLIC_IP = "flannel.alpha.coreos.com/public-ip"
TUNNEL = "flannel.alpha.coreos.com/backend-data"
FLANNEL_REPORTS = (
    PUBLIC_IP,
    TUNNEL,
    "flannel.alpha.coreos.com/backend-type",
    "flannel.alpha.coreos.com/kube-subnet-manager",
)
"""All that flannel writes of an IPv4 network. What it reads besides (overwrites, an address to keep) orders it."""
_NODE_NAME = "authentication.kubernetes.io/node-name"
"""What the API server says of a token that is bound to a pod: the node of that pod."""
_STATUS = (
    *("addresses", "allocatable", "capacity", "config", "daemonEndpoints", "declaredFeatures", "features", "images"),
    *("nodeInfo", "phase", "runtimeHandlers", "volumesAttached", "volumesInUse"),
)
_NODE_WRITES: Object = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["nodes", "nodes/status"],
    "scope": "Cluster",
}
NODE_GROUPS = ("system:nodes", "autarky:kubelet-renewals")
"""Of kubelets, and of the credentials by which kubelets come back whose certificates have expired. The users of both
are a fixed word and the node's name."""
HOSTED_ONLY = (OPERATOR, GUARD, DNS)
"""The label `k8s-app` of pods that disruption budgets and Services select by it alone. All others that they select have
`autarky.dev/slot: hosted` as well."""
MOST = 1000
"""Labels of a Node, or annotations, that a change is looked for among. With the longest keys that takes less than a
third of what an expression may cost; who feels out a node's hardware sets some hundreds."""
_INVENTORY: Parameter = ({"apiVersion": "v1", "kind": "ConfigMap"}, {"name": INVENTORY, "namespace": SYSTEM})
_A_KUBELET = "request.userInfo.?groups.orValue([]).exists(group, group == 'system:nodes')"


def objects() -> list[Object]:
    """All policies, each with its binding."""
    return [
        *_node_orders(),
        *_flannel_report(),
        *_join_tokens(),
        *_node_addresses(),
        *_node_tunnels(),
        *_inventory(),
        *_mirror_pods(),
    ]


# --- what only administrators and the operator may write ----------------------------------------------------


def _node_orders() -> list[Object]:
    message = (
        "role labels, node-restriction labels and orders on a Node are for administrators of the control plane and"
        f" the operator, and so are labels or annotations of one that has more than {MOST} of them (autarky's"
        f" docs/security.md, policy {ORDERS})"
    )
    changes = f"{_labels_change()} || {_annotations_change()} || ({_A_KUBELET} && ({_ties_change()}))"
    return policy(ORDERS, [_NODE_WRITES], conditions={"orders-something": changes}, validations=[(MAY, message)])


def _labels_change() -> str:
    guarded = "(key.startsWith('node-role.kubernetes.io/') || key.contains('node-restriction.kubernetes.io/'))"
    return _some_change("labels", guarded)


def _annotations_change() -> str:
    """Ours, but for reports; those that order flannel; and `leave`, when it comes."""
    ours = f"(key.startsWith('autarky.dev/') && !(key in {listed(REPORTS)}))"
    flannels = f"(key.startsWith('flannel.alpha.coreos.com/') && !(key in {listed(FLANNEL_REPORTS)}))"
    new, old = _of("object", "annotations"), _of("oldObject", "annotations")
    told = f"[?'{CONTROL_NODE}'].orValue('')"
    leaves = f"({new}{told} == '{LEAVE}' && {old}{told} != '{LEAVE}')"
    return f"{leaves} || {_some_change('annotations', f'({ours} || {flannels})')}"


def _ties_change() -> str:
    """A Node that a kubelet could have deleted by its owner would be made anew by it, with another's pod network."""
    pairs = [f"{_field('metadata', name, '[]')}" for name in ("finalizers", "ownerReferences")]
    pairs += [_field("spec", "podCIDR", "''"), _field("spec", "podCIDRs", "[]")]
    return " || ".join(pairs)


def _field(part: str, name: str, empty: str) -> str:
    new, old = (f"{_whole(which)}.?{part}.?{name}.orValue({empty})" for which in ("object", "oldObject"))
    return f"{new} != {old}"


def _some_change(part: str, guarded: str) -> str:
    """Whether one of these keys comes, goes or changes, or any where there are too many to look through: what that may
    cost is limited, and beyond it every write would be refused, also those that change nothing of this."""
    new, old = _of("object", part), _of("oldObject", part)
    comes = f"{new}.exists(key, {guarded} && {new}[?key] != {old}[?key])"
    goes = f"{old}.exists(key, {guarded} && !(key in {new}))"
    return f"({new} != {old} && (size({new}) > {MOST} || size({old}) > {MOST} || {comes} || {goes}))"


def _of(which: str, part: str) -> str:
    return f"{_whole(which)}.?metadata.?{part}.orValue({{}})"


def _whole(which: str) -> str:
    """There is no old object where one is created."""
    return "(oldObject == null ? {} : oldObject)" if which == "oldObject" else which


# --- flannel ----------------------------------------------------------------------------------------------


def _flannel_report() -> list[Object]:
    own = f"request.userInfo.?extra[?'{_NODE_NAME}'].orValue([]) == [object.metadata.name]"
    return policy(
        FLANNEL_REPORT,
        [_NODE_WRITES],
        conditions={"by-flannel": f"request.userInfo.username == '{FLANNEL_USER}'"},
        validations=[
            (own, "flannel writes to the Node that its pod runs on, and to no other"),
            (_nothing_else_of_metadata(), "flannel writes its own annotations, and nothing else of a Node's metadata"),
            (
                _nothing_else_of_status(),
                "flannel writes the condition NetworkUnavailable, and nothing else of a status",
            ),
        ],
    )


def _nothing_else_of_metadata() -> str:
    same = [f"!({_field('metadata', name, empty)})" for name, empty in (("labels", "{}"), ("finalizers", "[]"))]
    same.append(f"!({_field('metadata', 'ownerReferences', '[]')})")
    same.append(f"!({_some_change('annotations', f'!(key in {listed(FLANNEL_REPORTS)})')})")
    return " && ".join(same)


def _nothing_else_of_status() -> str:
    same = [f"object.?status.?{name} == oldObject.?status.?{name}" for name in _STATUS]
    new, old = (
        f"{which}.?status.?conditions.orValue([]).filter(one, one.type != 'NetworkUnavailable')"
        for which in ("object", "oldObject")
    )
    same.append(f"size({new}) == size({old}) && {new}.all(condition, condition in {old})")
    return " && ".join(same)


def _node_addresses() -> list[Object]:
    """What a worker says here is where the others send its pods' traffic."""
    said = f"{_of('object', 'annotations')}[?'{PUBLIC_IP}'].orValue('')"
    known = "params.?data.orValue({})"
    fits = f"{known}[?object.metadata.name].orValue('').contains('\"' + {said} + '\"') && {said}.matches('^[0-9.]+$')"
    return policy(
        ADDRESSES,
        [_NODE_WRITES],
        conditions={"says-another-address": _annotation_comes(PUBLIC_IP)},
        validations=[
            (
                f"size({known}) == 0 || ({fits}) || {MAY}",
                "flannel's public address is not the node's in the join inventory",
            )
        ],
        failure="Ignore",
        parameter=_INVENTORY,
    )


def _node_tunnels() -> list[Object]:
    """Forwarding goes by hardware address: two nodes with the same one, and the last gets the traffic of both."""
    said, theirs = (
        f"{whose}[?'{TUNNEL}'].orValue('')" for whose in (_of("object", "annotations"), _of("params", "annotations"))
    )
    form = f'{said}.matches(\'^[{{]"VNI":1,"VtepMAC":"([0-9a-f]{{2}}:){{5}}[0-9a-f]{{2}}"[}}]$\')'
    its_own = f"params.metadata.name == object.metadata.name || {said} != {theirs}"
    return policy(
        TUNNELS,
        [_NODE_WRITES],
        conditions={"says-another-tunnel": _annotation_comes(TUNNEL)},
        validations=[
            (f"({form} && ({its_own})) || {MAY}", "the tunnel's hardware address is another node's, or unreadable")
        ],
        failure="Ignore",
        parameter=({"apiVersion": "v1", "kind": "Node"}, {"selector": {}}),
    )


def _annotation_comes(key: str) -> str:
    new, old = (f"{_of(which, 'annotations')}[?'{key}'].orValue('')" for which in ("object", "oldObject"))
    return f"{new} != '' && {new} != {old}"


# --- what makes a node --------------------------------------------------------------------------------------


def _join_tokens() -> list[Object]:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["secrets"]}
    message = (
        "a join token makes a node: only who may update the ControlPlane may make one"
        f" (autarky's docs/security.md, policy {TOKENS})"
    )
    return policy(
        TOKENS,
        [rule],
        conditions={"is-a-token": "object.?type.orValue('') == 'bootstrap.kubernetes.io/token'"},
        validations=[(MAY, message)],
        namespace=SYSTEM,
    )


def _inventory() -> list[Object]:
    """A node that was removed has a certificate that is good for a while. Nothing that it does often is asked about."""
    created = {
        "": ["nodes", "pods"],
        "certificates.k8s.io": ["certificatesigningrequests"],
        "coordination.k8s.io": ["leases"],
    }
    rules = [
        {"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": resources}
        for group, resources in created.items()
    ]
    known = "params.?data.orValue({})"
    name = "request.userInfo.username.replace('system:node:', '').replace('renew:node:', '')"
    by_a_node = f"request.userInfo.?groups.orValue([]).exists(group, group in {listed(NODE_GROUPS)})"
    return policy(
        NODES,
        rules,
        conditions={"by-a-node": by_a_node},
        validations=[
            (f"size({known}) == 0 || {name} in {known}", "this node is not in the join inventory: it was removed")
        ],
        parameter=_INVENTORY,
    )


# --- what a node shows --------------------------------------------------------------------------------------


def _mirror_pods() -> list[Object]:
    """A kubelet makes no other pods, and no scheduler is asked where these go. Theirs belong to a Node, which has no
    number of replicas: a disruption budget that selects one lets none of its pods go, and no control node could be
    drained. NodeRestriction lets no kubelet change the labels of a pod that is there."""
    labels = _of("object", "labels")
    passes = (
        f"request.namespace == '{SYSTEM}' && ({labels}[?'{SLOT_LABEL}'].orValue('') == '{HOSTED}' ||"
        f" {labels}[?'{NAME_LABEL}'].orValue('') in {listed(HOSTED_ONLY)})"
    )
    passes_for = (
        "a static pod does not pass for a hosted pod of the control plane: it may not have these labels (autarky's"
        f" docs/security.md, policy {MIRRORS})"
    )
    keeps_away = (
        "a static pod has no required anti-affinity: the scheduler would keep other pods off nodes for it (autarky's"
        f" docs/security.md, policy {MIRRORS})"
    )
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    return policy(
        MIRRORS,
        [rule],
        conditions={"by-a-kubelet": _A_KUBELET},
        validations=[
            (f"!({passes}) || {MAY}", passes_for),
            (f"size({ANTI_AFFINITY_TERMS}) == 0 || {MAY}", keeps_away),
        ],
    )
