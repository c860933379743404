"""Names of the revisions of a hosted workload, as the operator, which judges them, and the node agents use them.

Contract: pure; the same template and the same content give the same names in both. Danger: a name is a hash of
content that may be secret; it is as long as the hash in the name of an immutable Secret, and as public.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from autarky.control.checkpoint.manifests import references
from autarky.render.values import content_hash

Object = dict[str, Any]
TEMPLATE_LENGTH, CONTENT_LENGTH = 16, 10
_CONTENT = ("data", "binaryData")


def revision_of(template: Object) -> str:
    """Our own name for a template, independent of the name that the controllers give it."""
    return content_hash(template, TEMPLATE_LENGTH)


def content_of(template: Object, objects: Iterable[Object]) -> str:
    """The same for the content of the Secrets and ConfigMaps that a standby of the template needs.

    objects: those, and maybe others. Optional references do not count: the operator keeps none of them.
    """
    needed = {(one.kind, one.name) for one in references(template) if not one.optional}
    seen = [
        (obj["kind"], obj["metadata"]["name"], [[part, obj[part]] for part in _CONTENT if obj.get(part)])
        for obj in objects
        if (obj["kind"], obj["metadata"]["name"]) in needed
    ]
    return content_hash(sorted(seen, key=lambda one: one[:2]), CONTENT_LENGTH)
