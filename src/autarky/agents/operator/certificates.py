"""The duty of judging kubelets' certificate requests by the join inventory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autarky.agents.operator.duty import Duty
from autarky.agents.operator.view import View, current
from autarky.duties import certificates
from autarky.ports import Kube
from autarky.render.access import INVENTORY
from autarky.render.values import SYSTEM


@dataclass(slots=True)
class Certificates(Duty):
    view: View
    kube: Kube
    counted: Callable[[str], None]
    """Hears of each verdict that was written: "approve" or "deny"."""
    name: str = "certificates"

    async def round(self) -> None:
        if not current([self.view.requests, self.view.inventory]):
            return
        inventory = certificates.inventory_of(self.view.inventory.items.get((SYSTEM, INVENTORY)))
        for node, csr in certificates.pending(self.view.requests.items.values()):
            decision = await certificates.judge(self.kube, csr, inventory)
            if decision.verdict in certificates.JUDGED:
                self.counted(decision.verdict.value)
            name = csr["metadata"]["name"]
            self.tell(f"{decision.verdict.value}: {decision.sentence}", name, node=node)
