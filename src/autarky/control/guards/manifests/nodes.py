"""What nodes may not write, and what makes a node: ValidatingAdmissionPolicies (docs/security.md).

Root on a worker has its kubelet's certificate and the tokens of its pods. NodeRestriction limits the kubelet to its own
Node and a few labels, but checks neither annotations nor addresses, and no other identity. These policies reserve
everything that requests an action for administrators and the operator. What a node may still write is a report.

    autarky-node-orders     role labels, requests among annotations and reports about another node, more of either than
                            can be searched; for kubelets and service accounts also finalizers and owners, for kubelets
                            pod networks
    autarky-join-tokens     only those who may update the ControlPlane create join tokens
    autarky-inventory       nodes missing in the join inventory create no Node, no request, no lease and no pod
    autarky-mirror-pods     static pods in kube-system do not pass for hosted ones, and none keeps pods off nodes

Contract: exemptions come only by right: whoever may update the ControlPlane may do all of this, and the operator may do
what it decides. There are no others: `protection` trusts kubelets and kube-system's accounts, which these policies are
meant to restrict.

Dangers: with failurePolicy Fail an expression that fails refuses the write, even a kubelet's heartbeat. So the policy
that is evaluated for heartbeats has no parameter, and matches only when a guarded key changes: its conditions read maps
that may be absent through optional selection, which cannot fail, and search none that is unchanged or large: a kubelet
that could exceed the cost limit would get every write to its Node refused, also that of a drain. An absent or empty
inventory refuses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from autarky.control.addons import ADD_ONS, AddOn
from autarky.control.addons.coredns import DNS
from autarky.control.certificates.decide import ANNOTATION as CERTIFICATES
from autarky.control.control_nodes.decide.observed import ANNOTATION as CONTROL_NODE
from autarky.control.control_nodes.decide.observed import LEAVE
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
from autarky.control.kubelet.decide.hosted_report import ANNOTATION as HOSTED_KUBELET
from autarky.control.kubelet.decide.report import ANNOTATION as KUBELET
from autarky.control.slots.decide.report import ANNOTATION as SLOTS
from autarky.model.components import HOSTED, NAME_LABEL, OPERATOR, SLOT_LABEL
from autarky.render.values import SYSTEM, WITHDRAWN, Object

ORDERS = "autarky-node-orders"
TOKENS = "autarky-join-tokens"
NODES = "autarky-inventory"
MIRRORS = "autarky-mirror-pods"

REPORTS = (SLOTS, WITHDRAWN, CERTIFICATES, KUBELET, HOSTED_KUBELET, CONTROL_NODE)
"""Those of our annotations on Nodes that a node writes about itself; of the last, all values but `leave`."""
NODE_GROUPS = ("system:nodes", "autarky:kubelet-renewals")
"""The groups of kubelets and of renewal credentials, for kubelets whose certificates have expired. The user names in
both are a fixed prefix and the node's name."""
HOSTED_ONLY = (OPERATOR, GUARD, DNS)
"""Values of the label `k8s-app` by which alone disruption budgets and Services select pods. All other pods that they
select have `autarky.dev/slot: hosted` as well."""
_ITS_OWN = "request.userInfo.username == 'system:node:' + object.metadata.name"
"""The agents act as their nodes' kubelets."""
_A_SERVICE_ACCOUNT = (
    "(request.userInfo.username.startsWith('system:serviceaccount:') &&"
    f" request.userInfo.username != 'system:serviceaccount:{SYSTEM}:generic-garbage-collector')"
)
"""But that which drops owners that do not exist any more."""
_A_KUBELET = "request.userInfo.?groups.orValue([]).exists(group, group == 'system:nodes')"


def objects(addons: Sequence[AddOn] = ADD_ONS) -> list[Object]:
    """All policies, each with its binding, for a cluster with these add-ons."""
    return [
        *_node_orders(addons),
        *_join_tokens(),
        *_inventory(),
        *_mirror_pods(),
    ]


# --- what only administrators and the operator may write ----------------------------------------------------


def _node_orders(addons: Sequence[AddOn]) -> list[Object]:
    message = (
        "role labels, node-restriction labels and orders on a Node are for administrators of the control plane and"
        f" the operator, and so are labels or annotations of one that has more than {MOST} of them (autarky's"
        f" docs/security.md, policy {ORDERS})"
    )
    changes = " || ".join(
        [
            _labels_change(),
            _annotations_change(addons),
            f"(({_A_KUBELET} || {_A_SERVICE_ACCOUNT}) && ({_ties_change()}))",
            f"({_A_KUBELET} && ({_pod_network_changes()}))",
        ]
    )
    return policy(ORDERS, [NODE_WRITES], conditions={"orders-something": changes}, validations=[(MAY, message)])


def _labels_change() -> str:
    guarded = "(key.startsWith('node-role.kubernetes.io/') || key.contains('node-restriction.kubernetes.io/'))"
    return some_change("labels", guarded)


def _annotations_change(addons: Sequence[AddOn]) -> str:
    """Ours, except for a node's reports about itself; those that configure an add-on; and `leave`, when it is set."""
    ours = f"(key.startsWith('autarky.dev/') && !(key in {listed(REPORTS)} && {_ITS_OWN}))"
    theirs = [
        f"(key.startsWith('{prefix}') && !(key in {listed(reports)}))"
        for addon in addons
        for prefix, reports in addon.node_annotations.items()
    ]
    orders = " || ".join([ours, *theirs])
    new, old = of("object", "annotations"), of("oldObject", "annotations")
    annotation = f"[?'{CONTROL_NODE}'].orValue('')"
    leaves = f"({new}{annotation} == '{LEAVE}' && {old}{annotation} != '{LEAVE}')"
    return f"{leaves} || {some_change('annotations', f'({orders})')}"


def _ties_change() -> str:
    """Who could get a Node deleted through an owner ends what runs there. A kubelet would create its Node again, with
    another node's pod network; the token of a pod network's agent, which any worker has, may write every Node's
    status, and with it the metadata."""
    return " || ".join(field_changes("metadata", name, "[]") for name in ("finalizers", "ownerReferences"))


def _pod_network_changes() -> str:
    return " || ".join([field_changes("spec", "podCIDR", "''"), field_changes("spec", "podCIDRs", "[]")])


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
    """The certificate of a removed node stays valid for a while. Frequent requests are not checked."""
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


# --- static pods --------------------------------------------------------------------------------------------


def _mirror_pods() -> list[Object]:
    """A kubelet creates no other pods, and these bypass the scheduler. They belong to a Node, which has no number of
    replicas: a disruption budget that selects one allows no eviction of its pods, and no control node could be
    drained. NodeRestriction lets no kubelet change the labels of an existing pod."""
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
