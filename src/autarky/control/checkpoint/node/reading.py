"""Reads from the API what a standby is made of, and remembers it: rarely, since it is large and secret.

Contract: what was read of a subject is valid until the subject changes; what could not be read is tried again after a
pause. A refusal because of the content is valid as long: another read would give the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from autarky.control.checkpoint.decide.evidence import source_of
from autarky.control.checkpoint.decide.revisions import Source
from autarky.control.checkpoint.manifests import Reference, references, revision_from_pod
from autarky.control.slots.manifests import Revision
from autarky.errors import Refused
from autarky.ports import Kube, Object
from autarky.render.values import SYSTEM, is_named_by_content

READ_SECONDS = 5.0
"""For all requests together: the node's slots are not observed meanwhile."""
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Content:
    """A pod, and the Secrets and ConfigMaps that it names; None for those that do not exist."""

    pod: Object
    found: Mapping[Reference, Object | None]

    @property
    def objects(self) -> list[Object]:
        return [obj for obj in self.found.values() if obj is not None]

    def revision(self, component: str) -> Revision:
        """The revision that its standby would have. Raises Refused where there can be none."""
        return revision_from_pod(component, self.pod, self._of("Secret"), self._of("ConfigMap"))

    def _of(self, kind: str) -> dict[str, Object | None]:
        return {one.name: obj for one, obj in self.found.items() if one.kind == kind}


async def content_of_pod(kube: Kube, pod: Object) -> Content:
    return Content(pod, {one: await kube.get("v1", one.kind, one.name, SYSTEM) for one in references(pod)})


def pod_of_template(component: str, template: Object) -> Object:
    """A pod as its workload would create it."""
    meta = {"name": component, "namespace": SYSTEM, **template["metadata"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}


@dataclass(frozen=True, slots=True)
class Reading(Generic[S]):
    """What was read of a subject: the revision that it would become, or why there is none. tried: when (monotonic
    seconds). final: whether the refusal is valid as long as the subject; ends: whether it is temporary. sources: the
    objects that the content comes from, where they could be read."""

    subject: S
    tried: float
    revision: Revision | None = field(default=None, repr=False)
    refusal: str = ""
    final: bool = False
    ends: bool = False
    sources: tuple[Source, ...] | None = None

    def stands(self, subject: S, now: float, pause: float) -> bool:
        """Whether nothing has to be read."""
        known = self.revision is not None or self.final
        return self.subject == subject and (known or now - self.tried < pause)


def reading(subject: S, tried: float, component: str, content: Content, *, refused: str) -> Reading[S]:
    """The reading of content. refused: how the text of a refusal starts."""
    sources = tuple(source_of(obj, by_content=is_named_by_content(obj)) for obj in content.objects)
    try:
        return Reading(subject, tried, content.revision(component), sources=sources)
    except Refused as refusal:
        return Reading(subject, tried, refusal=f"{refused}: {refusal}", final=True, sources=sources)
