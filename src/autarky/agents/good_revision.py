"""What a revision of a hosted workload is called between the operator, which judges it, and the node agents.

Contract: pure; the same template and the same content give the same names in both. Danger: a name is a hash of what
may be secret; it is as long as those by which immutable Secrets are called, and like those anybody may see it.
"""

from __future__ import annotations

from collections.abc import Iterable

from autarky.ports import Object
from autarky.render.values import content_hash

TEMPLATE_LENGTH, CONTENT_LENGTH = 16, 10
_CONTENT = ("data", "binaryData")


def revision_of(template: Object) -> str:
    """Our own name for a template, whatever the controllers call it."""
    return content_hash(template, TEMPLATE_LENGTH)


def content_of(objects: Iterable[Object]) -> str:
    """The same for Secrets and ConfigMaps: what of them a pod gets to see."""
    seen = [
        (obj["kind"], obj["metadata"]["name"], [[part, obj[part]] for part in _CONTENT if obj.get(part)])
        for obj in objects
    ]
    return content_hash(sorted(seen, key=lambda one: one[:2]), CONTENT_LENGTH)
