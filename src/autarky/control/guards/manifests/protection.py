"""Who may change autarky's own objects in kube-system: a ValidatingAdmissionPolicy (docs/security.md).

RBAC says who may change objects of a kind in a namespace, and knows no labels: whoever got `edit` in kube-system for an
add-on could change the control plane as well. The policy adds one condition, which RBAC decides: may the user change
the ControlPlane, which says what these objects should be? Cluster admins may, whatever makes them admins.

Whatever keeps the cluster alive is exempt: kubelets, the scheduler, the controller-manager with its controllers'
service accounts, the operator. They must not depend on a role that somebody may remove.

failurePolicy is Ignore: the policy depends on nothing but the API server itself, and its expressions cannot fail on
what the API lets through; if one does, a cluster that heals itself matters more than one refusal.
"""

from __future__ import annotations

from autarky.model.components import SLOT_LABEL
from autarky.render.crds import CONTROL_PLANE, GROUP
from autarky.render.values import MANAGED_BY, SYSTEM, Object, metadata

NAME = "autarky-protect-control-plane"
_API = "admissionregistration.k8s.io/v1"
_WRITES = ["CREATE", "UPDATE", "DELETE"]
_RESOURCES = {
    "": ["configmaps", "pods", "secrets", "serviceaccounts", "services"],
    "apps": ["daemonsets", "deployments", "deployments/scale", "replicasets", "replicasets/scale"],
    "policy": ["poddisruptionbudgets"],
    "rbac.authorization.k8s.io": ["rolebindings", "roles"],
}
SCALED = ("autarky-operator", "coredns", "etcd-quorum-guard", "kube-controller-manager", "kube-scheduler")
"""Our Deployments, after which their ReplicaSets are named: the object of a scale request has no labels."""
OWN_USERS = ("system:kube-controller-manager", "system:kube-scheduler", "system:apiserver")
OWN_GROUPS = ("system:nodes", f"system:serviceaccounts:{SYSTEM}")
"""NodeRestriction limits kubelets to their own node's pods. The service accounts of kube-system are the controllers',
the operator's, and those of add-ons there, which are trusted anyway (see docs/security.md)."""


def objects() -> list[Object]:
    return [_policy(), _binding()]


def _policy() -> Object:
    may_change = (
        f"authorizer.group('{GROUP}').resource('controlplanes').name('{CONTROL_PLANE}').check('update').allowed()"
    )
    message = (
        "this object is part of the control plane: only who may update the ControlPlane may change it"
        " (autarky's docs/security.md, policy " + NAME + ")"
    )
    return {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": metadata(NAME),
        "spec": {
            "failurePolicy": "Ignore",
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": SYSTEM}},
                "resourceRules": [
                    {"apiGroups": [group], "apiVersions": ["v1"], "operations": _WRITES, "resources": resources}
                    for group, resources in _RESOURCES.items()
                ],
            },
            "matchConditions": [
                {"name": "of-autarky", "expression": _is_ours()},
                {"name": "by-somebody-else", "expression": _is_somebody_else()},
            ],
            "validations": [{"expression": may_change, "message": message, "reason": "Forbidden"}],
        },
    }


def _binding() -> Object:
    return {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": metadata(NAME),
        "spec": {"policyName": NAME, "validationActions": ["Deny"]},
    }


def _is_ours() -> str:
    """By the labels that it has, or had: removing them does not bypass the policy. Pods and ReplicaSets have those of
    their template."""
    scaled = (
        f"(request.subResource == 'scale' && {_list(SCALED)}.exists(name, (request.name + '-').startsWith(name + '-')))"
    )
    return " || ".join([_labelled("object"), _labelled("oldObject"), scaled])


def _labelled(variable: str) -> str:
    [(key, value)] = MANAGED_BY.items()
    labels = f"{variable}.metadata.labels"
    managed = f"('{key}' in {labels} && {labels}['{key}'] == '{value}')"
    return f"({variable} != null && has({labels}) && ({managed} || '{SLOT_LABEL}' in {labels}))"


def _is_somebody_else() -> str:
    users = f"request.userInfo.username in {_list(OWN_USERS)}"
    groups = f"request.userInfo.groups.exists(group, group in {_list(OWN_GROUPS)})"
    return f"!({users}) && !({groups})"


def _list(names: tuple[str, ...]) -> str:
    return "[" + ", ".join(f"'{name}'" for name in names) + "]"
