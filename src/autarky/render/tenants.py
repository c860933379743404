"""What Services may not take: a ValidatingAdmissionPolicy (docs/security.md).

kube-proxy sends what goes to an address in `spec.externalIPs` to the Service's pods, on every node, whatever address it
is: also that of a control node, with the port of its API server or of its etcd. Whoever may create a Service in some
namespace could stand in for the control plane, or for anybody. So such addresses are for administrators.

Contract: an address that the Service has already stays, and may be taken out by anybody who may change the Service.

What is left to RBAC: kube-proxy does the same with `status.loadBalancer.ingress`. Nobody may write that by a role of
Kubernetes' own (not `edit`, not `admin`): who gives a load balancer's controller the right gives it the addresses.
"""

from __future__ import annotations

from autarky.render.policies import MAY, policy
from autarky.render.values import Object

EXTERNAL = "autarky-external-addresses"


def objects() -> list[Object]:
    new, old = (
        "object.?spec.?externalIPs.orValue([])",
        "(oldObject == null ? {} : oldObject).?spec.?externalIPs.orValue([])",
    )
    message = (
        "an external address of a Service takes over that address on every node: only who may update the ControlPlane"
        f" may add one (autarky's docs/security.md, policy {EXTERNAL})"
    )
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["services"]}
    # The comparison of whole lists comes first: it costs little where they are long.
    comes = f"{new} != {old} && {new}.exists(address, !(address in {old}))"
    return policy(EXTERNAL, [rule], conditions={"takes-an-address": comes}, validations=[(MAY, message)])
