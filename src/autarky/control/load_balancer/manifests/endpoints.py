"""The EndpointSlice of default/kubernetes: the load balancers of all control nodes. Written and read here.

The API servers do not write it (`--endpoint-reconciler-type=none`): the two servers of a node share one address, and
the one that stops would remove it for both.
"""

from __future__ import annotations

from collections.abc import Iterable

from autarky.model import ports
from autarky.model.cluster import Cluster
from autarky.model.endpoint import Endpoint
from autarky.render.values import MANAGED_BY, Object

NAMESPACE = "default"
NAME = "kubernetes"
KIND = ("discovery.k8s.io/v1", "EndpointSlice")


def kubernetes_endpoints(cluster: Cluster) -> Object:
    """As `up` first writes it; from then on the operator maintains it, and adds nodes that join."""
    nodes = cluster.initial_members or cluster.control_nodes
    return kubernetes_slice(Endpoint(node.name, node.known_address(), ready=True) for node in nodes)


def kubernetes_slice(endpoints: Iterable[Endpoint]) -> Object:
    return {
        "apiVersion": KIND[0],
        "kind": KIND[1],
        "metadata": {
            "name": NAME,
            "namespace": NAMESPACE,
            "labels": {
                **MANAGED_BY,
                "kubernetes.io/service-name": "kubernetes",
                "endpointslice.kubernetes.io/managed-by": "autarky.dev",
            },
        },
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": ports.NLLB_API, "protocol": "TCP"}],
        "endpoints": [
            {"addresses": [endpoint.address], "conditions": _conditions(endpoint), "nodeName": endpoint.node}
            for endpoint in endpoints
        ],
    }


def _conditions(endpoint: Endpoint) -> Object:
    """An absent condition means true, as in the API."""
    return {"ready": endpoint.ready} | ({} if endpoint.serving else {"serving": False})


def slice_endpoints(live: Object) -> tuple[Endpoint, ...]:
    """The endpoints of a live slice, whoever wrote it; empty where it has none."""
    return tuple(_endpoint(entry) for entry in live.get("endpoints") or () if entry.get("addresses"))


def _endpoint(entry: Object) -> Endpoint:
    conditions = entry.get("conditions") or {}
    ready, serving = (conditions.get(name) is not False for name in ("ready", "serving"))
    return Endpoint(entry.get("nodeName") or "", entry["addresses"][0], ready=ready, serving=serving)
