"""The controller that keeps the EndpointSlice of default/kubernetes: the API servers do not write it themselves.

Contract: a node's address comes from the join inventory; the address that the node reports only selects among several.
Where the inventory is absent or lacks the node, the address in the slice stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from autarky.control.base.controller import MANAGER, ClusterController
from autarky.control.base.operator_view import KUBERNETES_SLICE, View, current
from autarky.control.common.pods import internal_address
from autarky.control.common.shapes import node_is_ready
from autarky.control.load_balancer.decide.endpoints import ControlNode, endpoints
from autarky.control.load_balancer.manifests.endpoints import kubernetes_slice, slice_endpoints
from autarky.model.endpoint import Endpoint
from autarky.ports import Kube, Object
from autarky.render.values import CONTROL_PLANE_ACTIVE, WITHDRAWN


@dataclass(slots=True)
class Endpoints(ClusterController):
    view: View
    kube: Kube
    name: ClassVar[str] = "endpoints"

    async def reconcile(self) -> None:
        if not current([self.view.nodes, self.view.slices, self.view.inventory]):
            return
        live = self.view.slices.items.get(("default", KUBERNETES_SLICE))
        before = slice_endpoints(live or {})
        nodes = self._control_nodes({endpoint.node: endpoint.address for endpoint in before})
        wanted = endpoints(nodes, {endpoint.address: endpoint.ready for endpoint in before})
        if wanted is None or (live is not None and wanted == before):
            return
        await self.kube.apply(kubernetes_slice(wanted), manager=MANAGER)
        self.tell("default/kubernetes leads to " + ", ".join(_clause(endpoint) for endpoint in wanted))

    def _control_nodes(self, before: Mapping[str, str]) -> list[ControlNode]:
        """`before`: node → the address that it has in the slice."""
        inventory = self.view.known_addresses
        found = []
        for node in self.view.nodes.items.values():
            meta = node["metadata"]
            if CONTROL_PLANE_ACTIVE not in (meta.get("labels") or {}) or "deletionTimestamp" in meta:
                continue
            address = agreed_address(node, inventory) if meta["name"] in inventory else before.get(meta["name"])
            if address is None:
                self.tell("it gets no connections: the join inventory has no address for it", meta["name"])
                continue
            found.append(ControlNode(meta["name"], address, node_is_ready(node), withdrawn=_is_withdrawn(node)))
        return found


def agreed_address(node: Object, inventory: Mapping[str, frozenset[str]]) -> str | None:
    """The node's address in the join inventory: of several, the one that the node reports. None where there is none."""
    known, said = inventory.get(node["metadata"]["name"], frozenset()), internal_address(node)
    return said if said in known else min(known, default=None)


def _is_withdrawn(node: Object) -> bool:
    return bool((node["metadata"].get("annotations") or {}).get(WITHDRAWN))


def _clause(endpoint: Endpoint) -> str:
    if not endpoint.serving:
        return f"{endpoint.address} (withdrawn)"
    return endpoint.address if endpoint.ready else f"{endpoint.address} (not ready)"
