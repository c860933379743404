"""What Services and pods may not take: ValidatingAdmissionPolicies (docs/security.md).

    autarky-external-addresses   only administrators add addresses to `spec.externalIPs` of Services
    autarky-host-ports           no pod has a `hostPort` that the control plane listens on
    autarky-priorities           no pod outside kube-system is as important as the control plane's
    autarky-anti-affinity        no pod outside kube-system keeps pods of other namespaces off nodes
    autarky-api-service          default/kubernetes stays as the API server has created it

kube-proxy sends traffic for an address in `spec.externalIPs` to the Service's pods, on every node, whatever address it
is: also that of a control node, with the port of its API server or of its etcd. The pod network does the same with a
`hostPort`, on the pod's node, for all its addresses, including 127.0.0.1, which our probes and clients use. So whoever
may create a Service or a pod in some namespace could impersonate the control plane, or anybody else.

A kubelet evicts less important pods for a pod that has been bound to its node, however it got there: a pod with a
priority class of the control plane, and with `nodeName`, makes it evict the pods of the control plane there. The
scheduler also respects the anti-affinity of running pods: one such pod on one node can keep all pods off all nodes that
have a label in common. And through default/kubernetes every pod finds the API.

Contract: an address that the Service has already stays, and may be removed by anybody who may change the Service. The
ports, the priority and the anti-affinity of a pod never change. A pod on the host's network may declare any ports:
nothing is forwarded to them, and whoever may have such a pod may listen anyway. Whoever may create pods in kube-system
is trusted with their priority and anti-affinity: the pods of the control plane are there. The API server creates
default/kubernetes as a member of system:masters, who may do anything.

`decide` judges the priority and the anti-affinity in templates for the warnings of `doctor`: the two have to change
together.

All fail closed: with Ignore, a list so long that judging it exceeds the cost limit would be let through. On what the
API admits the expressions cannot fail otherwise: whatever may be absent is read by optional selection. They depend on
nothing but the API server itself, and no pod of ours has a `hostPort`, or is outside kube-system.

What is left to RBAC: kube-proxy does the same with `status.loadBalancer.ingress`. None of Kubernetes' own roles allows
to write that (not `edit`, not `admin`): granting the right to a load balancer's controller grants it the addresses.
"""

from __future__ import annotations

from autarky.control.guards.decide import ANTI_AFFINITY, HOST_PORTS, MOST_IMPORTANT, NOT_ASKED, PRIORITIES
from autarky.control.guards.manifests.policies import ANTI_AFFINITY_TERMS, MAY, changes, policy
from autarky.model import ports
from autarky.render.values import Object

EXTERNAL = "autarky-external-addresses"
API_SERVICE = "autarky-api-service"

_NEW_PODS: Object = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}


def objects() -> list[Object]:
    """All policies, each with its binding."""
    return [*_external_addresses(), *_host_ports(), *_priorities(), *_anti_affinity(), *_api_service()]


def _external_addresses() -> list[Object]:
    new, old = (
        "object.?spec.?externalIPs.orValue([])",
        "(oldObject == null ? {} : oldObject).?spec.?externalIPs.orValue([])",
    )
    message = (
        "an external address of a Service takes over that address on every node: only who may update the ControlPlane"
        f" may add one (autarky's docs/security.md, policy {EXTERNAL})"
    )
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["services"]}
    # The lists are compared as values first: that is cheap even where they are long.
    comes = f"{new} != {old} && {new}.exists(address, !(address in {old}))"
    return policy(EXTERNAL, [rule], conditions={"takes-an-address": comes}, validations=[(MAY, message)])


def _host_ports() -> list[Object]:
    """Whatever the protocol: to refuse both does no harm."""
    message = (
        "this hostPort is a port of the control plane, which the pod would take over on its node: choose another, or a"
        f" Service of type NodePort (autarky's docs/security.md, policy {HOST_PORTS})"
    )
    taken = ", ".join(str(port) for port in sorted(ports.ON_HOSTS))
    takes = " || ".join(
        f"object.spec.?{containers}.orValue([]).exists(container, container.?ports.orValue([]).exists(port,"
        f" port.?hostPort.orValue(0) in [{taken}]))"
        for containers in ("containers", "initContainers")
    )
    conditions = {"has-its-own-network": "!object.spec.?hostNetwork.orValue(false)", "takes-a-port": takes}
    return policy(HOST_PORTS, [_NEW_PODS], conditions=conditions, validations=[(MAY, message)])


def _priorities() -> list[Object]:
    """By the number, which the API server has filled in by then, whatever the name of the class."""
    message = (
        "a pod outside kube-system is not as important as the control plane, whose pods would be evicted for it: choose"
        f" another priority class (autarky's docs/security.md, policy {PRIORITIES})"
    )
    important = f"object.?spec.?priority.orValue(0) > {MOST_IMPORTANT}"
    return policy(
        PRIORITIES,
        [_NEW_PODS],
        conditions={"as-important-as-the-control-plane": important},
        validations=[(MAY, message)],
        outside=NOT_ASKED,
    )


def _anti_affinity() -> list[Object]:
    """A term without namespaces applies to the pod's own. Preferred terms keep no pods away."""
    message = (
        "a required anti-affinity with pods of other namespaces would keep them off nodes: leave out namespaces and"
        f" namespaceSelector (autarky's docs/security.md, policy {ANTI_AFFINITY})"
    )
    others = "term.?namespaces.orValue([]).exists(name, name != request.namespace)"
    reaches = f"{ANTI_AFFINITY_TERMS}.exists(term, term.?namespaceSelector.hasValue() || {others})"
    return policy(
        ANTI_AFFINITY,
        [_NEW_PODS],
        conditions={"keeps-others-away": reaches},
        validations=[(MAY, message)],
        outside=NOT_ASKED,
    )


def _api_service() -> list[Object]:
    message = (
        "by this Service all pods find the API: only who may update the ControlPlane may change it"
        f" (autarky's docs/security.md, policy {API_SERVICE})"
    )
    operations = ["CREATE", "UPDATE", "DELETE"]
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": operations, "resources": ["services"]}
    # A request that deletes a collection has no name: the object has it.
    conditions = {
        "is-the-apis": "(object == null ? oldObject : object).metadata.name == 'kubernetes'",
        "changes-it": f"object == null || {changes('spec')}",
    }
    return policy(API_SERVICE, [rule], conditions=conditions, validations=[(MAY, message)], namespace="default")
