"""The file on a host that says which cluster and node it belongs to: also all initial members (on an initial member),
the Kubernetes version that the host was prepared for, and the fingerprint of the cluster's CA, since two clusters may
have the same name.

Contract: a host without it belongs to no cluster. The command line and the agent write the same bytes, so that neither
sees a change in what the other wrote. A marker of an older release has no fingerprint.
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
    """`initial_members`: empty on a host that is not one of them. `ca`: the fingerprint of the cluster's CA."""
    content: dict[str, Any] = {"cluster": cluster, "node": node, "founders": list(initial_members), "version": version}
    return _marker(content | ({"ca": ca} if ca is not None else {}))


def _marker(content: Mapping[str, Any]) -> File:
    return File(places.NODE_MARKER, (json.dumps(content) + "\n").encode())


def without_initial_members(content: bytes) -> File | None:
    """The marker of a host that is no longer an initial member, otherwise unchanged; None where nothing changes. Raises
    ValueError, KeyError."""
    said = json.loads(content)
    return _marker({**said, "founders": []}) if said["cluster"] and said.get("founders") else None
