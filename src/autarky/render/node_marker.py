"""The host's own word on whose it is: its cluster, its node, and on a founder who all the founders are.

Contract: a host without it belongs to nobody. Written the same by the command line and by the agent, so that neither
sees a change in what the other wrote.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from autarky import places
from autarky.model.files import File


def node_marker(cluster: str, node: str, founders: Sequence[str]) -> File:
    """`founders`: empty on a host that is none of them."""
    content = {"cluster": cluster, "node": node, "founders": list(founders)}
    return File(places.NODE_MARKER, (json.dumps(content) + "\n").encode())


def without_founders(content: bytes) -> File | None:
    """The marker of a host that is a founder no more; None where nothing changes. ValueError, KeyError."""
    said = json.loads(content)
    return node_marker(said["cluster"], said["node"], ()) if said.get("founders") else None
