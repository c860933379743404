"""The controller that restores the policies that restrict nodes to reports and tenants to what is theirs, when somebody
has deleted them.

Contract: an absent policy or binding is created again, as this release renders it; an existing one is left as it is: an
edit is intended (a binding with `validationActions: [Audit]` is the way to switch a policy off), and `up` writes what a
release changes. A policy comes before its binding: the API server authorizes a binding by its policy's parameter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autarky.control.base.controller import ClusterController
from autarky.control.base.operator_view import View, current
from autarky.control.guards.manifests import all as admission
from autarky.errors import Conflict
from autarky.ports import Kube, Object
from autarky.render.values import with_rendered_hash

RESTORED = tuple(admission.objects())


@dataclass(slots=True)
class Guards(ClusterController):
    view: View
    kube: Kube
    name: ClassVar[str] = "guards"

    async def reconcile(self) -> None:
        sources = {source.kind: source for source in (self.view.policies, self.view.policy_bindings)}
        if not current(sources.values()):
            return
        missing = [obj for obj in RESTORED if (None, obj["metadata"]["name"]) not in sources[obj["kind"]].items]
        self.remember_only({_subject(obj) for obj in missing})
        await self.each(missing, self._put_back)

    async def _put_back(self, obj: Object) -> None:
        try:
            await self.kube.create(with_rendered_hash(obj))
        except Conflict:
            return  # somebody else was first; the next reconcile sees that
        self.tell("it was deleted and is restored: it limits what nodes and tenants may write", _subject(obj))


def _subject(obj: Object) -> str:
    return f"{obj['kind']} {obj['metadata']['name']}"
