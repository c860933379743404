"""Names of clusters, nodes and test hosts."""

from __future__ import annotations

import re

LABEL = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
"""A DNS label (RFC 1123), as a pattern for the whole of a text."""


def is_name(value: str) -> bool:
    """Whether it is a DNS label: of a cluster, a node, a test host."""
    return re.fullmatch(LABEL, value) is not None
