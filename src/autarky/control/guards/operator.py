"""The controller that restores the policies that restrict nodes to reports and tenants to what is theirs, when somebody
has deleted them.

Contract: an absent policy or binding is created again, as this release renders it; an existing one is left as it is: an
edit is intended (a binding with `validationActions: [Audit]` is the way to switch a policy off), and `up` writes what a
release changes. A policy comes before its binding: the API server authorizes a binding by its policy's parameter.
Policies for a pod network of ours are restored where its workload is: with one of the user's own they would be in the
way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autarky.control.addons import ADD_ONS
from autarky.control.base.controller import ClusterController
from autarky.control.base.operator_view import View, current
from autarky.control.guards.manifests import all as admission
from autarky.errors import Conflict
from autarky.ports import Kube, Object
from autarky.render.values import SYSTEM, with_rendered_hash


@dataclass(slots=True)
class Guards(ClusterController):
    view: View
    kube: Kube
    name: ClassVar[str] = "guards"

    async def reconcile(self) -> None:
        sources = {source.kind: source for source in (self.view.policies, self.view.policy_bindings)}
        if not current([*sources.values(), self.view.daemon_sets]):
            return
        missing = [obj for obj in self._wanted() if (None, obj["metadata"]["name"]) not in sources[obj["kind"]].items]
        self.remember_only({_subject(obj) for obj in missing})
        await self.each(missing, self._put_back)

    def _wanted(self) -> list[Object]:
        there = [one for one in ADD_ONS if one.cni is None or (SYSTEM, one.component) in self.view.daemon_sets.items]
        return admission.objects(there)

    async def _put_back(self, obj: Object) -> None:
        try:
            await self.kube.create(with_rendered_hash(obj))
        except Conflict:
            return  # somebody else was first; the next reconcile sees that
        self.tell("it was deleted and is restored: it limits what nodes and tenants may write", _subject(obj))


def _subject(obj: Object) -> str:
    return f"{obj['kind']} {obj['metadata']['name']}"
