"""Which version of Kubernetes has written what is in a backup: the latest of all that may have. Pure.

Contract: whoever reads etcd's data must be of that version, so what is not known for certain counts as the later one: a
version that an upgrade has begun with counts though not every API server has it yet. The host's marker counts only
where nothing else says anything: it has the version that `up` prepared the host for, and the control plane is upgraded,
and taken back, without `up`. All functions return for any content, and never raise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from autarky.control.common.shapes import image_of, mapping
from autarky.control.common.skew import image_version
from autarky.control.upgrade.decide import reported
from autarky.model.components import API_SERVER
from autarky.model.versions import Version
from autarky.places import STANDBY

STANDBY_POD = f"{STANDBY}/{API_SERVER}/current/pod.json"
"""Made of the API server that has served on that host: also of one whose image somebody has set."""
_KEPT_STATUS = ("version", "formerVersion", "upgrade")


def excerpt(plane: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a backup has of the ControlPlane, also for people: the spec, and of the status what says the version."""
    if plane is None:
        return {}
    found = {name: value for name, value in mapping(plane.get("status")).items() if name in _KEPT_STATUS}
    return {"spec": mapping(plane.get("spec"))} | ({"status": found} if found else {})


def of_plane(plane: object) -> Version | None:
    """By what its operator says; None where that is nothing."""
    found = mapping(plane)
    return max(filter(None, [reported.complete_version(found), *reported.noted_versions(found)]), default=None)


def of_standby(pod: bytes | None) -> Version | None:
    """By the image of the API server in that file; None where there is none, or none with a version."""
    return image_version(image_of(_json(pod), API_SERVER))


def written_by(marker: str, plane: bytes | None, standby: bytes | None) -> str:
    """The version that a backup is to be read with. marker: of the host; plane: what the backup has of the
    ControlPlane; standby: the host's file."""
    found = max(filter(None, (of_plane(_json(plane)), of_standby(standby))), default=None)
    return marker if found is None else str(found)


def at_least(label: str, plane: bytes | None, standby: bytes | None) -> str:
    """The same of an archive, whose label an earlier release may have taken from the marker, and which is never read
    with an earlier version than it says. What is no version stays as it is."""
    known, found = reported.parsed(label), reported.parsed(written_by("", plane, standby))
    return str(found) if known is not None and found is not None and found > known else label


def comes_up_with(label: str, plane: bytes | None) -> str:
    """The version for new machines. In the middle of an upgrade, or where somebody has set a later image, that is what
    the control plane has had completely last: the ControlPlane that comes back says so, and its operator goes on from
    there. As on every way back, the minor before reads what was written."""
    wrote, complete = reported.parsed(label), reported.complete_version(mapping(_json(plane)))
    if wrote is None or complete is None or wrote.major != complete.major:
        return label
    return str(complete) if wrote.minor - complete.minor in (0, 1) else label


def _json(content: bytes | None) -> object:
    try:
        return json.loads(content or b"")
    except (ValueError, RecursionError):
        return None
