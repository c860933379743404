"""The duty of keeping the EndpointSlice of default/kubernetes: the API servers do not write it themselves."""

from __future__ import annotations

from dataclasses import dataclass

from autarky.agents.operator.duty import MANAGER, Duty
from autarky.agents.operator.view import KUBERNETES_SLICE, View, current, node_is_ready
from autarky.decide.endpoints import ControlNode, endpoints
from autarky.model.endpoint import Endpoint
from autarky.ports import Kube, Object
from autarky.render.endpoints import kubernetes_slice, slice_endpoints
from autarky.render.values import CONTROL_PLANE_FACT, WITHDRAWN


@dataclass(slots=True)
class Endpoints(Duty):
    view: View
    kube: Kube
    name: str = "endpoints"

    async def round(self) -> None:
        if not current([self.view.nodes, self.view.slices]):
            return
        live = self.view.slices.items.get(("default", KUBERNETES_SLICE))
        before = slice_endpoints(live or {})
        wanted = endpoints(_control_nodes(self.view), {e.address: e.ready for e in before})
        if wanted is None or (live is not None and wanted == before):
            return
        await self.kube.apply(kubernetes_slice(wanted), manager=MANAGER)
        self.tell("default/kubernetes leads to " + ", ".join(_clause(endpoint) for endpoint in wanted))


def _control_nodes(view: View) -> list[ControlNode]:
    return [
        ControlNode(node["metadata"]["name"], address, node_is_ready(node), withdrawn=_is_withdrawn(node))
        for node in view.nodes.items.values()
        if CONTROL_PLANE_FACT in node["metadata"].get("labels", {})
        and "deletionTimestamp" not in node["metadata"]
        and (address := internal_address(node)) is not None
    ]


def internal_address(node: Object) -> str | None:
    addresses = node.get("status", {}).get("addresses", [])
    return next((entry["address"] for entry in addresses if entry["type"] == "InternalIP"), None)


def _is_withdrawn(node: Object) -> bool:
    return bool((node["metadata"].get("annotations") or {}).get(WITHDRAWN))


def _clause(endpoint: Endpoint) -> str:
    if not endpoint.serving:
        return f"{endpoint.address} (withdrawn)"
    return endpoint.address if endpoint.ready else f"{endpoint.address} (not ready)"
