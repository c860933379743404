"""What nodes may not write, and what makes a node: ValidatingAdmissionPolicies (docs/security.md).

Whoever is root on a worker holds its kubelet's certificate and the tokens of its pods. NodeRestriction holds the
kubelet to its own Node and a few labels, and looks at neither annotations nor addresses; and it looks at no other
identity. These policies leave to administrators and the operator what orders something. What a node may still write
is a report.

    autarky-node-orders     role labels, orders among annotations, more of either than can be looked through; of
                            kubelets also finalizers, owners, pod networks
    autarky-join-tokens     join tokens are made by who may update the ControlPlane
    autarky-inventory       nodes that the join inventory lacks create no Node, no request, no lease and no pod
    autarky-mirror-pods     static pods in kube-system do not pass for hosted ones, and none keeps pods off nodes

Contract: nobody is exempt but by right: who may update the ControlPlane may do all of this, and the operator what it
decides. There are no other exemptions: `protection` trusts kubelets and kube-system's accounts, which is what this is
about.

Dangers: with failurePolicy Fail an expression that fails refuses the write, a kubelet's heartbeat among them. So the
policy that heartbeats meet has no parameter, and matches only when a guarded key changes: its conditions read maps
that may be absent through optional selection, which cannot fail, and look through none that is as it was, or large: a
kubelet that could make that cost too much would have every write to its Node refused, that of a drain too. An absent or
empty inventory refuses nothing.
"""

from __future__ import annotations

from autarky.control.addons import ADD_ONS
from autarky.control.addons.coredns import DNS
from autarky.control.certificates.decide import ANNOTATION as CERTIFICATES
from autarky.control.control_nodes.decide.roles import ANNOTATION as CONTROL_NODE
from autarky.control.control_nodes.decide.roles import LEAVE
from autarky.control.etcd.manifests.members import GUARD
from autarky.control.guards.manifests.node_writes import (
    INVENTORY_PARAMETER,
    MOST,
    NODE_WRITES,
    field_changes,
    of,
    some_change,
)
from autarky.control.guards.manifests.policies import ANTI_AFFINITY_TERMS, MAY, listed, policy
from autarky.control.slots.decide.report import ANNOTATION as SLOTS
from autarky.model.components import HOSTED, NAME_LABEL, OPERATOR, SLOT_LABEL
from autarky.render.values import SYSTEM, WITHDRAWN, Object

ORDERS = "autarky-node-orders"
TOKENS = "autarky-join-tokens"
NODES = "autarky-inventory"
MIRRORS = "autarky-mirror-pods"

REPORTS = (SLOTS, WITHDRAWN, CERTIFICATES, CONTROL_NODE)
"""Of our annotations on Nodes, those that a node writes of itself; of the last, all words but `leave`."""
NODE_GROUPS = ("system:nodes", "autarky:kubelet-renewals")
"""Of kubelets, and of the credentials by which kubelets come back whose certificates have expired. The users of both
are a fixed word and the node's name."""
HOSTED_ONLY = (OPERATOR, GUARD, DNS)
"""The label `k8s-app` of pods that disruption budgets and Services select by it alone. All others that they select have
`autarky.dev/slot: hosted` as well."""
_A_KUBELET = "request.userInfo.?groups.orValue([]).exists(group, group == 'system:nodes')"


def objects() -> list[Object]:
    """All policies, each with its binding."""
    return [
        *_node_orders(),
        *_join_tokens(),
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
    return policy(ORDERS, [NODE_WRITES], conditions={"orders-something": changes}, validations=[(MAY, message)])


def _labels_change() -> str:
    guarded = "(key.startsWith('node-role.kubernetes.io/') || key.contains('node-restriction.kubernetes.io/'))"
    return some_change("labels", guarded)


def _annotations_change() -> str:
    """Ours, but for reports; those that order an add-on; and `leave`, when it comes."""
    guarded = {"autarky.dev/": REPORTS} | {
        key: value for addon in ADD_ONS for key, value in addon.node_annotations.items()
    }
    orders = " || ".join(
        f"(key.startsWith('{prefix}') && !(key in {listed(reports)}))" for prefix, reports in guarded.items()
    )
    new, old = of("object", "annotations"), of("oldObject", "annotations")
    told = f"[?'{CONTROL_NODE}'].orValue('')"
    leaves = f"({new}{told} == '{LEAVE}' && {old}{told} != '{LEAVE}')"
    return f"{leaves} || {some_change('annotations', f'({orders})')}"


def _ties_change() -> str:
    """A Node that a kubelet could have deleted by its owner would be made anew by it, with another's pod network."""
    pairs = [f"{field_changes('metadata', name, '[]')}" for name in ("finalizers", "ownerReferences")]
    pairs += [field_changes("spec", "podCIDR", "''"), field_changes("spec", "podCIDRs", "[]")]
    return " || ".join(pairs)


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
        parameter=INVENTORY_PARAMETER,
    )


# --- what a node shows --------------------------------------------------------------------------------------


def _mirror_pods() -> list[Object]:
    """A kubelet makes no other pods, and no scheduler is asked where these go. Theirs belong to a Node, which has no
    number of replicas: a disruption budget that selects one lets none of its pods go, and no control node could be
    drained. NodeRestriction lets no kubelet change the labels of a pod that is there."""
    labels = of("object", "labels")
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
