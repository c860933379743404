"""Fair queueing: whose requests are handled next when there are more than can be answered. Pure.

Contract: `in_turn` takes at most so many, and one of each requester before a second of any: whoever floods delays
nobody else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, islice, zip_longest
from typing import TypeVar

T = TypeVar("T")


def in_turn(asked: Iterable[T], requester: Callable[[T], str], most: int) -> list[T]:
    """In the order in which they came, as far as the turns allow."""
    by_requester: dict[str, list[T]] = {}
    for one in asked:
        by_requester.setdefault(requester(one), []).append(one)
    nothing = object()
    turns = chain.from_iterable(zip_longest(*by_requester.values(), fillvalue=nothing))
    return list(islice((one for one in turns if one is not nothing), most))  # type: ignore[misc]
