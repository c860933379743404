"""The controller that judges kubelets' certificate requests by the join inventory.

Contract: a reconcile judges at most MOST requests, one of each requester before a second of any
(control/common/turns.py): a requester with thousands delays no other node, and no other controller. A request that has
to wait is not judged again until AGAIN_SECONDS have passed or the data that decides on it has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from autarky.control.admission import act as certificates
from autarky.control.base.controller import ClusterController
from autarky.control.base.operator_view import View, current
from autarky.control.common.turns import in_turn
from autarky.ports import Clock, Kube, Object

MOST = 20
"""In one reconcile: about 20 ms each."""
MORE_SECONDS = 0.2
"""Until the next reconcile while there are more."""
AGAIN_SECONDS = 30.0


@dataclass(slots=True)
class Certificates(ClusterController):
    view: View
    kube: Kube
    clock: Clock
    counted: Callable[[str], None]
    """Called with each verdict that was written: "approve" or "deny"."""
    name: ClassVar[str] = "certificates"
    _waiting: dict[str, float] = field(default_factory=dict, init=False)
    """Request → when it is judged again."""
    _judged_by: object = field(default=None, init=False)

    async def reconcile(self) -> float | None:
        if not current([self.view.requests, self.view.inventory, self.view.renewals]):
            return None
        known, now = (self.view.known_addresses, self.view.good_renewals), self.clock.monotonic()
        unjudged = [csr for csr in self.view.requests.items.values() if certificates.is_unjudged(csr)]
        self._forget_what_is_done(unjudged, known, now)
        ready = [csr for csr in unjudged if _id(csr) not in self._waiting]
        turn = in_turn(ready, certificates.requester, MOST)
        await self.each(turn, lambda csr: self._judge(csr, *known))
        if len(turn) < len(ready):
            return MORE_SECONDS
        return min(self._waiting.values()) - now if self._waiting else None

    def _forget_what_is_done(self, unjudged: Iterable[Object], known: object, now: float) -> None:
        self.remember_only({csr["metadata"]["name"] for csr in self.view.requests.items.values()})
        still = {_id(csr) for csr in unjudged} if known == self._judged_by else set()
        self._waiting = {one: again for one, again in self._waiting.items() if one in still and again > now}
        self._judged_by = known

    async def _judge(self, csr: Object, inventory: Mapping[str, frozenset[str]], renewals: Mapping[str, str]) -> None:
        name = csr["metadata"]["name"]
        decision = await certificates.judge(self.kube, csr, inventory, renewals)
        if decision.verdict in certificates.JUDGED:
            self.counted(decision.verdict.value)
        else:
            self._wait(csr)
        self.tell(f"{decision.verdict.value}: {decision.sentence}", name, node=certificates.node_of(csr) or "")

    def _wait(self, csr: Object) -> None:
        self._waiting[_id(csr)] = self.clock.monotonic() + AGAIN_SECONDS


def _id(csr: Object) -> str:
    metadata = csr["metadata"]
    return f"{metadata['name']} {metadata.get('uid')}"
