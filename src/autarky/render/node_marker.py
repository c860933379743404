"""The host's own word on whose it is: its cluster, its node, on a founder who all the founders are, which version of
Kubernetes it was prepared for, and the fingerprint of the cluster's CA, since two clusters may have one name.

Contract: a host without it belongs to nobody. Written the same by the command line and by the agent, so that neither
sees a change in what the other wrote. One of an older release has no fingerprint.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from autarky import places
from autarky.model.files import File


def node_marker(
    cluster: str, node: str, initial_members: Sequence[str], *, version: str, ca: str | None = None
) -> File:
    """`founders`: empty on a host that is none of them. `ca`: the fingerprint of the cluster's CA."""
    content: dict[str, Any] = {"cluster": cluster, "node": node, "founders": list(initial_members), "version": version}
    return _marker(content | ({"ca": ca} if ca is not None else {}))


def _marker(content: Mapping[str, Any]) -> File:
    return File(places.NODE_MARKER, (json.dumps(content) + "\n").encode())


def without_founders(content: bytes) -> File | None:
    """The marker of a host that is a founder no more, the rest as it is; None where nothing changes. ValueError,
    KeyError."""
    said = json.loads(content)
    return _marker({**said, "founders": []}) if said["cluster"] and said.get("founders") else None
