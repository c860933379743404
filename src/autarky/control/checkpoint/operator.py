"""Lets control nodes without a hosted pod read what their standbys of level 3 are made of.

The Node authorizer lets a kubelet read only the Secrets of its own pods. So the operator keeps a Role that names
exactly the Secrets and ConfigMaps of the last good revisions, and binds it to exactly the control nodes of its record.

Contract: nothing is written while the observed state may be outdated or a last good revision was not read. The Role is
written when it changes, and once in each term.

Danger: these Secrets are the keys of the control plane. A worker is never bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from autarky.control.base.controller import MANAGER, ClusterController
from autarky.control.base.operator_view import View, current
from autarky.control.checkpoint.manifests import references
from autarky.control.control_nodes import manifests as objects
from autarky.control.control_nodes.decide.observed import Record, State
from autarky.control.control_nodes.operator import record as node_record
from autarky.control.rollout.operator.rollouts import Rollouts
from autarky.control.rollout.operator.workloads import TWO_SLOTS, workload
from autarky.ports import Kube, Object
from autarky.render.values import CONTROL_PLANE_ACTIVE, canonical_json


@dataclass(slots=True)
class StandbyRights(ClusterController):
    view: View
    kube: Kube
    rollouts: Rollouts
    name: ClassVar[str] = "standby-rights"
    _given: bytes = field(default=b"", init=False)

    def begin_term(self) -> None:
        """Another leader may have granted other rights meanwhile."""
        self._given = b""

    async def reconcile(self) -> None:
        view = self.view
        templates = self._last_good()
        if templates is None or not current([view.nodes, view.control_nodes, view.deployments]):
            return
        named = [one for template in templates for one in references(template)]
        rights = objects.standby_rights(
            self._control_nodes(),
            [one.name for one in named if one.kind == "Secret"],
            [one.name for one in named if one.kind == "ConfigMap"],
        )
        wanted = canonical_json(rights)
        if self._given != wanted:
            for obj in rights:
                await self.kube.apply(obj, manager=MANAGER)
            self._given = wanted

    def _last_good(self) -> list[Object] | None:
        """The last good templates of level 3, of the components that have one; None while one was not read."""
        hosted = [one for one in TWO_SLOTS if one.leads_by_lease and workload(self.view, one) is not None]
        if any(one.name not in self.rollouts.kept for one in hosted):
            return None
        kept = [self.rollouts.kept[one.name].template for one in hosted]
        return [template for template in kept if template is not None]

    def _control_nodes(self) -> list[str]:
        """The nodes that are recorded as control nodes and have the label that only the operator sets."""
        recorded = node_record.records(self.view.control_nodes)
        live = [node["metadata"] for node in self.view.nodes.items.values()]
        return [
            meta["name"]
            for meta in live
            if CONTROL_PLANE_ACTIVE in (meta.get("labels") or {})
            and recorded.get(meta["name"]) == Record(meta["uid"], State.MADE)
        ]
