"""The duty of putting back the policies that hold nodes to reports, and tenants to their own addresses, when somebody
has deleted them.

Contract: what is absent is made anew, as this release renders it; what is there is left as it is, whatever it says: an
edit is somebody's will (a binding with `validationActions: [Audit]` is the way to switch one off), and `up` writes
what a release changes. Those with parameters are `up`'s alone: making one takes the right to read all that may be one.
"""

from __future__ import annotations

from dataclasses import dataclass

from autarky.agents.operator.duty import Duty
from autarky.agents.operator.view import View, current
from autarky.errors import Conflict
from autarky.ports import Kube
from autarky.render import guards, tenants
from autarky.render.values import with_rendered_hash

RESTORED = (*guards.restored(), *tenants.objects())


@dataclass(slots=True)
class Guards(Duty):
    view: View
    kube: Kube
    name: str = "guards"

    async def round(self) -> None:
        sources = {source.kind: source for source in (self.view.policies, self.view.policy_bindings)}
        if not current(sources.values()):
            return
        for obj in RESTORED:
            name = obj["metadata"]["name"]
            if (None, name) in sources[obj["kind"]].items:
                continue
            try:
                await self.kube.create(with_rendered_hash(obj))
            except Conflict:
                continue  # somebody else was first; the next round sees that
            self.tell(
                "it was deleted, and is put back: what nodes and tenants may write depends on it",
                f"{obj['kind']} {name}",
            )
