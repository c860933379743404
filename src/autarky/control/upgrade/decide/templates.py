"""The template of a hosted component after a step of an upgrade. Pure."""

from __future__ import annotations

import json

from autarky.control.common import emulation
from autarky.control.common.skew import repository_of
from autarky.control.upgrade.decide.observed import Object
from autarky.model.versions import Version


def with_tag(template: Object, component: str, version: Version) -> Object:
    """The template with the component's image of that version, from where it comes now."""
    copy: Object = json.loads(json.dumps(template))
    for container in copy["spec"].get("containers") or []:
        if container["name"] == component:
            container["image"] = f"{repository_of(str(container['image']))}:{version}"
    return copy


def with_step(template: Object, component: str, version: Version, emulates: str, *, flagged: bool) -> Object:
    """The template after a step. flagged: whether what it emulates now is the plan's, and may be taken away."""
    changed = with_tag(template, component, version)
    return emulation.with_emulated(changed, component, emulates) if emulates or flagged else changed
