"""Who is trusted as a node: the join inventory, and which credential each of them may come back with; both at once.

Contract: at no moment is the inventory empty, since an empty one refuses nobody, nor does it have a node whose entry
among the renewals is not written yet: any credential of that name would be valid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autarky.control.admission.act import read_renewals
from autarky.phases import renewals
from autarky.ports import Kube
from autarky.render import access
from autarky.render.values import SYSTEM, with_rendered_hash

_MANAGER = "autarky-access"
"""As `render.objects` applies the inventory: the next `up` takes entries out again."""


@dataclass(frozen=True, slots=True)
class Trusted:
    """Node → its entry, as they are in the API."""

    inventory: Mapping[str, str] = field(default_factory=dict)
    renewals: Mapping[str, str] = field(default_factory=dict)


async def trusted(kube: Kube) -> Trusted:
    return Trusted(await _inventory(kube), await read_renewals(kube))


async def trust_only(kube: Kube, wanted: Trusted) -> None:
    """These, and nobody else. ValueError for nobody. Interrupted anywhere, it does the rest when it is called again."""
    if not wanted.inventory:
        raise ValueError("an empty join inventory refuses nobody")
    await renewals.note(kube, wanted.renewals)
    await kube.apply(with_rendered_hash(access.inventory_with(wanted.inventory)), manager=_MANAGER)
    others = dict.fromkeys((await _inventory(kube)).keys() - wanted.inventory.keys())
    if others:
        await kube.patch("v1", "ConfigMap", access.INVENTORY, {"data": others}, namespace=SYSTEM)
    unknown = (await read_renewals(kube)).keys() - wanted.renewals.keys()
    await renewals.note(kube, dict.fromkeys(unknown))


async def _inventory(kube: Kube) -> dict[str, str]:
    live = await kube.get("v1", "ConfigMap", access.INVENTORY, SYSTEM)
    return {str(name): str(entry) for name, entry in ((live or {}).get("data") or {}).items()}
