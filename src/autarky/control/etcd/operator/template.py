"""The controller that says from which template etcd's members should be made: of which version, with which arguments.

Contract: it writes the template into its ConfigMap and its revision into the EtcdMembers; the node agents change the
members, one at a time (`decide.membership`, `decide.change`). A template that a member is not healthy with is given up
(`decide.template`). Where level 1 is not hosted, nothing is done. What is not applied, and why, is in `unapplied`,
for the status.

The ConfigMap holds all that must be remembered, so another operator goes on where this one ends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from autarky.control.base.controller import MANAGER, ClusterController
from autarky.control.base.operator_view import View, current
from autarky.control.etcd.decide import template as etcd_template
from autarky.control.etcd.decide.template import Kept, Reports
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.etcd.manifests.members import KIND, should_be_member
from autarky.control.status.decide import Unapplied
from autarky.ports import Kube, Object
from autarky.render.crds import API_VERSION
from autarky.render.values import SYSTEM, metadata

SUBJECT = "etcd template"
AGAIN = (
    "correct what is asked for; or, if something else was the cause, remove that, ask for the former one, and then for"
    " this one again"
)


@dataclass(slots=True)
class EtcdTemplate(ClusterController):
    view: View
    kube: Kube
    name: ClassVar[str] = "etcd template"
    unapplied: list[Unapplied] = field(default_factory=list, init=False)

    async def reconcile(self) -> None:
        view, plane = self.view, self.view.control_plane
        if plane is None or not current([view.planes, view.etcd_members, view.etcd_template]):
            return
        self.unapplied.clear()
        live = view.etcd_template.items.get((SYSTEM, etcd.TEMPLATE))
        if not view.hosts_etcd(plane) or live is None or (base := etcd.spec_in(live, etcd.TEMPLATE_KEY)) is None:
            return
        members = [obj for obj in view.etcd_members.items.values() if should_be_member(obj)]
        kept = _kept(live)
        goes_back = bool((plane["spec"].get("rollback") or {}).get("enabled", True))
        decision = etcd_template.decide(
            base, etcd_template.request(plane), kept, _reports(members), goes_back=goes_back
        )
        self._tell_of(decision)
        if decision.kept != kept:
            await self._write(decision.kept)
        elif kept.in_force is not None:
            await self._give(members, etcd_template.revision(kept.in_force))

    def _tell_of(self, decision: etcd_template.Decision) -> None:
        if decision.refused:
            self.unapplied.append(Unapplied("EtcdTemplateRefused", decision.refused, refused=True))
        if decision.rolled_back:
            sentence = f"etcd was rolled back, and runs with the last template that was healthy: {decision.rolled_back}"
            self.unapplied.append(Unapplied("EtcdRolledBack", f"{sentence}; {AGAIN}", refused=True))
        if decision.waits:
            sentence = f"etcd is not changed yet: {decision.waits}; its node withdraws that by itself, once it answers"
            self.unapplied.append(Unapplied("EtcdTemplateWaits", sentence, refused=False))
        for one in self.unapplied:
            self.tell(one.sentence, SUBJECT)

    async def _write(self, kept: Kept) -> None:
        """What it says to the members follows when the view has it."""
        held = {etcd.IN_FORCE_KEY: kept.in_force, etcd.SETTLED_KEY: kept.settled, etcd.CONDEMNED_KEY: kept.condemned}
        data = {key: json.dumps(spec, indent=2) for key, spec in held.items() if spec is not None}
        if kept.why:
            data[etcd.WHY_KEY] = kept.why
        meta = metadata(etcd.TEMPLATE, SYSTEM)
        await self.kube.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}, manager=MANAGER
        )
        if kept.in_force is not None:
            self.tell(f"the template of etcd's members is {etcd_template.revision(kept.in_force)}", SUBJECT)

    async def _give(self, members: list[Object], revision: str) -> None:
        for obj in members:
            if obj["spec"].get("revision") != revision:
                await self.kube.patch(API_VERSION, KIND, obj["metadata"]["name"], {"spec": {"revision": revision}})


def _kept(live: Object) -> Kept:
    in_force, settled, condemned = (
        etcd.spec_in(live, key) for key in (etcd.IN_FORCE_KEY, etcd.SETTLED_KEY, etcd.CONDEMNED_KEY)
    )
    return Kept(in_force, settled, condemned, str((live.get("data") or {}).get(etcd.WHY_KEY, "")))


def _reports(members: list[Object]) -> Reports:
    said = [obj.get("status") or {} for obj in members]
    return Reports(tuple(one.get("revision") or None for one in said), _failures(members))


def _failures(members: list[Object]) -> Mapping[str, str]:
    found = {}
    for obj in members:
        status = obj.get("status") or {}
        if status.get("failedRevision"):
            why = status.get("failure") or "it was not healthy"
            found[str(status["failedRevision"])] = f"the member of {obj['metadata']['name']}: {why}"
    return found
