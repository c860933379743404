"""Names of clusters, nodes and test hosts."""

from __future__ import annotations

import re

LABEL = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
"""A DNS label (RFC 1123), as a pattern for a complete text."""


def is_name(value: str) -> bool:
    """Whether it is a DNS label, as names of clusters, nodes and test hosts must be."""
    return re.fullmatch(LABEL, value) is not None
