"""What Services and pods may not take: ValidatingAdmissionPolicies (docs/security.md).

    autarky-external-addresses   addresses in `spec.externalIPs` of Services are given by administrators
    autarky-host-ports           no pod has a `hostPort` that the control plane listens on

kube-proxy sends what goes to an address in `spec.externalIPs` to the Service's pods, on every node, whatever address it
is: also that of a control node, with the port of its API server or of its etcd. The pod network does the same with a
`hostPort`, on the pod's node, for all its addresses: 127.0.0.1 among them, where our probes and clients ask. So whoever
may create a Service or a pod in some namespace could stand in for the control plane, or for anybody.

Contract: an address that the Service has already stays, and may be taken out by anybody who may change the Service. The
ports of a pod never change. A pod on the host's network may declare what it likes: that leads nothing anywhere, and who
may have such a pod may listen as well.

Both fail closed: with Ignore, whoever makes a list so long that judging it costs too much would be let through. On what
the API admits the expressions cannot fail otherwise: whatever may be absent is read by optional selection. They need
nobody but the API server itself, and no pod of ours has a `hostPort`.

What is left to RBAC: kube-proxy does the same with `status.loadBalancer.ingress`. Nobody may write that by a role of
Kubernetes' own (not `edit`, not `admin`): who gives a load balancer's controller the right gives it the addresses.
"""

from __future__ import annotations

from autarky.model import ports
from autarky.render.policies import MAY, policy
from autarky.render.values import Object

EXTERNAL = "autarky-external-addresses"
HOST_PORTS = "autarky-host-ports"


def objects() -> list[Object]:
    """All policies, each with its binding."""
    return [*_external_addresses(), *_host_ports()]


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
    # The comparison of whole lists comes first: it costs little where they are long.
    comes = f"{new} != {old} && {new}.exists(address, !(address in {old}))"
    return policy(EXTERNAL, [rule], conditions={"takes-an-address": comes}, validations=[(MAY, message)])


def _host_ports() -> list[Object]:
    """Whatever the protocol: a port too many is missed by nobody."""
    message = (
        "this hostPort is a port of the control plane, which the pod would take over on its node: choose another, or a"
        f" Service of type NodePort (autarky's docs/security.md, policy {HOST_PORTS})"
    )
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    taken = ", ".join(str(port) for port in sorted(ports.ON_HOSTS))
    takes = " || ".join(
        f"object.spec.?{containers}.orValue([]).exists(container, container.?ports.orValue([]).exists(port,"
        f" port.?hostPort.orValue(0) in [{taken}]))"
        for containers in ("containers", "initContainers")
    )
    conditions = {"has-its-own-network": "!object.spec.?hostNetwork.orValue(false)", "takes-a-port": takes}
    return policy(HOST_PORTS, [rule], conditions=conditions, validations=[(MAY, message)])
