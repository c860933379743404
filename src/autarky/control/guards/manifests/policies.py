"""The form of our ValidatingAdmissionPolicies: each with its binding. Their content: `nodes`, `tenants`."""

from __future__ import annotations

from collections.abc import Sequence

from autarky.control.guards.decide import NAMESPACE_LABEL
from autarky.model.components import OPERATOR
from autarky.render.crds import CONTROL_PLANE, GROUP
from autarky.render.values import SYSTEM, Object, metadata

POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
OPERATOR_USER = f"system:serviceaccount:{SYSTEM}:{OPERATOR}"
MAY = (
    f"(request.userInfo.username == '{OPERATOR_USER}' ||"
    f" authorizer.group('{GROUP}').resource('controlplanes').name('{CONTROL_PLANE}').check('update').allowed())"
)
"""Whether the writer is an administrator of the control plane or the operator."""
ANTI_AFFINITY_TERMS = (
    "object.?spec.?affinity.?podAntiAffinity.?requiredDuringSchedulingIgnoredDuringExecution.orValue([])"
)
"""A pod's required anti-affinity. The scheduler respects it also for pods that come later."""
API = "admissionregistration.k8s.io/v1"

Parameter = tuple[Object, Object]
"""(kind, reference)."""


def policy(
    name: str,
    rules: list[Object],
    *,
    conditions: dict[str, str],
    validations: Sequence[tuple[str, str]],
    failure: str = "Fail",
    parameter: Parameter | None = None,
    namespace: str | None = None,
    outside: str | None = None,
) -> list[Object]:
    """`validations`: (what must hold, the message otherwise). A missing parameter lets the write through.
    `namespace`: the only one that it applies to; `outside`: the only one that it does not apply to."""
    constraints: Object = {"resourceRules": rules}
    if namespace is not None:
        constraints["namespaceSelector"] = {"matchLabels": {NAMESPACE_LABEL: namespace}}
    if outside is not None:
        others = {"key": NAMESPACE_LABEL, "operator": "NotIn", "values": [outside]}
        constraints["namespaceSelector"] = {"matchExpressions": [others]}
    spec: Object = {
        "failurePolicy": failure,
        "matchConstraints": constraints,
        "matchConditions": [{"name": what, "expression": expression} for what, expression in conditions.items()],
        "validations": [
            {"expression": expression, "message": message, "reason": "Forbidden"} for expression, message in validations
        ],
    }
    bound: Object = {"policyName": name, "validationActions": ["Deny"]}
    if parameter is not None:
        spec["paramKind"] = parameter[0]
        bound["paramRef"] = {**parameter[1], "parameterNotFoundAction": "Allow"}
    return [
        {"apiVersion": API, "kind": POLICY, "metadata": metadata(name), "spec": spec},
        {"apiVersion": API, "kind": BINDING, "metadata": metadata(name), "spec": bound},
    ]


def listed(names: Sequence[str]) -> str:
    return "[" + ", ".join(f"'{name}'" for name in names) + "]"


def changes(*fields: str) -> str:
    """Whether something is created, or changes in these fields or in the metadata that others act on. Writing the same
    again is allowed: that is how everything is rewritten in storage, in another version or with another key."""
    parts = [f"?{field}" for field in fields]
    parts += [f"metadata.?{field}" for field in ("labels", "annotations", "ownerReferences", "finalizers")]
    return " || ".join(["oldObject == null", *(f"object.{part} != oldObject.{part}" for part in parts)])
