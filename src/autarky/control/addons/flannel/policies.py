"""What flannel's account may write, and what nodes may report to it: ValidatingAdmissionPolicies (docs/security.md).

    autarky-flannel-report  its account changes only its own Node, and of that only what flannel reports
    autarky-node-addresses  its public address is one that the join inventory has for the node
    autarky-node-tunnels    its tunnel has no other node's hardware address

The last two fail open (failurePolicy Ignore); an absent or empty inventory refuses nothing.
"""

from __future__ import annotations

from autarky.control.guards.manifests.node_writes import (
    INVENTORY_PARAMETER,
    NODE_WRITES,
    annotation_comes,
    field_changes,
    of,
    some_change,
)
from autarky.control.guards.manifests.policies import MAY, listed, policy
from autarky.model.components import FLANNEL
from autarky.render.values import SYSTEM, Object

REPORT = "autarky-flannel-report"
ADDRESSES = "autarky-node-addresses"
TUNNELS = "autarky-node-tunnels"
ORDERS = "flannel.alpha.coreos.com/"
"""Prefix of the annotations that configure it."""
USER = f"system:serviceaccount:{SYSTEM}:{FLANNEL}"
PUBLIC_IP = "flannel.alpha.coreos.com/public-ip"
TUNNEL = "flannel.alpha.coreos.com/backend-data"
REPORTS = (
    PUBLIC_IP,
    TUNNEL,
    "flannel.alpha.coreos.com/backend-type",
    "flannel.alpha.coreos.com/kube-subnet-manager",
)
"""All that flannel writes for an IPv4 network. The other annotations that it reads (overwrites) configure it."""
_NODE_NAME = "authentication.kubernetes.io/node-name"
"""What the API server adds to the user of a token that is bound to a pod: the node of that pod."""
_STATUS = (
    *("addresses", "allocatable", "capacity", "config", "daemonEndpoints", "declaredFeatures", "features", "images"),
    *("nodeInfo", "phase", "runtimeHandlers", "volumesAttached", "volumesInUse"),
)


def objects() -> list[Object]:
    return [*_flannel_report(), *_node_addresses(), *_node_tunnels()]


def _flannel_report() -> list[Object]:
    own = f"request.userInfo.?extra[?'{_NODE_NAME}'].orValue([]) == [object.metadata.name]"
    return policy(
        REPORT,
        [NODE_WRITES],
        conditions={"by-flannel": f"request.userInfo.username == '{USER}'"},
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
    same = [f"!({field_changes('metadata', name, empty)})" for name, empty in (("labels", "{}"), ("finalizers", "[]"))]
    same.append(f"!({field_changes('metadata', 'ownerReferences', '[]')})")
    same.append(f"!({some_change('annotations', f'!(key in {listed(REPORTS)})')})")
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
    """What a worker reports here is where other nodes send the traffic for its pods."""
    said = f"{of('object', 'annotations')}[?'{PUBLIC_IP}'].orValue('')"
    known = "params.?data.orValue({})"
    fits = f"{known}[?object.metadata.name].orValue('').contains('\"' + {said} + '\"') && {said}.matches('^[0-9.]+$')"
    return policy(
        ADDRESSES,
        [NODE_WRITES],
        conditions={"says-another-address": annotation_comes(PUBLIC_IP)},
        validations=[
            (
                f"size({known}) == 0 || ({fits}) || {MAY}",
                "flannel's public address is not the node's in the join inventory",
            )
        ],
        failure="Ignore",
        parameter=INVENTORY_PARAMETER,
    )


def _node_tunnels() -> list[Object]:
    """Forwarding goes by hardware address: of two nodes with the same one, the last gets the traffic of both."""
    said, theirs = (
        f"{whose}[?'{TUNNEL}'].orValue('')" for whose in (of("object", "annotations"), of("params", "annotations"))
    )
    form = f'{said}.matches(\'^[{{]"VNI":1,"VtepMAC":"([0-9a-f]{{2}}:){{5}}[0-9a-f]{{2}}"[}}]$\')'
    its_own = f"params.metadata.name == object.metadata.name || {said} != {theirs}"
    return policy(
        TUNNELS,
        [NODE_WRITES],
        conditions={"says-another-tunnel": annotation_comes(TUNNEL)},
        validations=[
            (f"({form} && ({its_own})) || {MAY}", "the tunnel's hardware address is another node's, or unreadable")
        ],
        failure="Ignore",
        parameter=({"apiVersion": "v1", "kind": "Node"}, {"selector": {}}),
    )
