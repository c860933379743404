"""The controller that publishes which names the API servers' certificates must have: those of all control nodes.

One set of names covers them all, since any load balancer leads to any API server. Each control node's agent signs its
own certificate (`node`) and issues it again when the names change, which the API server picks up without a restart. So
a node's names are published as soon as it is labelled, before anybody reaches an API server there.

Contract: an address counts if the join inventory has it for that node. `up` publishes the names from the cluster file,
in another field of the same ConfigMap. The names of a former control node stay until the next change: without
revocation, removing them would have no effect.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from autarky.control.base.controller import MANAGER, ClusterController
from autarky.control.base.operator_view import View, current
from autarky.control.certificates.manifests import leaves
from autarky.control.common.pods import internal_address
from autarky.errors import UserError
from autarky.ports import Kube, Object
from autarky.render.values import CONTROL_PLANE_ACTIVE, CONTROL_PLANE_REQUESTED, SYSTEM


@dataclass(slots=True)
class Serving(ClusterController):
    view: View
    kube: Kube
    name: ClassVar[str] = "serving-certificate"

    async def reconcile(self) -> None:
        if not current([self.view.nodes, self.view.inventory, self.view.leaves]):
            return
        live = self.view.leaves.items.get((SYSTEM, leaves.CONFIG_MAP))
        if live is None:
            return  # a cluster created by an earlier release, until its first `up`
        try:
            planned = frozenset(leaves.plan_in(live).names)
        except UserError as error:
            self.tell(str(error))
            return
        wanted = frozenset(self._wanted())
        if wanted <= planned:
            return
        await self.kube.apply(leaves.with_control_nodes(wanted), manager=MANAGER)
        self.tell(f"the API servers' certificates will include {', '.join(sorted(wanted))} as well")

    def _wanted(self) -> Iterable[str]:
        inventory = self.view.known_addresses
        for node in self.view.nodes.items.values():
            name, address = node["metadata"]["name"], internal_address(node)
            if _is_or_becomes_one(node) and address is not None and address in inventory.get(name, frozenset()):
                yield from (name, address)


def _is_or_becomes_one(node: Object) -> bool:
    labels = node["metadata"].get("labels") or {}
    return CONTROL_PLANE_ACTIVE in labels or CONTROL_PLANE_REQUESTED in labels
