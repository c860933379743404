"""The duty of judging kubelets' certificate requests by the join inventory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autarky.agents.operator.duty import Duty
from autarky.agents.operator.view import View, current
from autarky.duties import certificates
from autarky.ports import Kube, Object


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
        inventory = self.view.known_addresses
        self.forget(set(self._said) - {csr["metadata"]["name"] for csr in self.view.requests.items.values()})

        async def one(found: tuple[str, Object]) -> None:
            node, csr = found
            decision = await certificates.judge(self.kube, csr, inventory)
            if decision.verdict in certificates.JUDGED:
                self.counted(decision.verdict.value)
            self.tell(f"{decision.verdict.value}: {decision.sentence}", csr["metadata"]["name"], node=node)

        await self.each(certificates.pending(self.view.requests.items.values()), one)
