"""What else is at work on this node, by callables of those who know it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autarky.control.kubelet.decide.observed import Other
from autarky.store import NOT_UNDERSTOOD


def at_work(works: Mapping[Other, Callable[[], bool]]) -> frozenset[Other] | None:
    """None where that cannot be read: then it may be any of them."""
    try:
        return frozenset(other for other, is_at_work in works.items() if is_at_work())
    except NOT_UNDERSTOOD:
        return None
