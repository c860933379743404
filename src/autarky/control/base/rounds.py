"""How long a round of the agent's rounds may take: one that hangs is broken off, and one that cannot be broken off
shows, so that the agent gives no beat any more (`lock`) and is ended.

Contract: `bounded` rounds raise Overdue; `hangs` may be called from another thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from autarky.model import patience

LONGEST_SECONDS = patience.LONGEST_ROUND
"""Each request and each command gives up within 30 s, and a round makes a few of them."""
GRACE_SECONDS = 30.0
"""For a round that is broken off to end."""
_running: dict[object, tuple[str, float]] = {}

_P = ParamSpec("_P")
_S = TypeVar("_S")
_T = TypeVar("_T")


class Overdue(Exception):
    """A round took too long."""


def bounded(
    method: Callable[Concatenate[_S, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[_S, _P], Coroutine[Any, Any, _T]]:
    """For the method that is one round of a duty."""

    async def one_round(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        name, token = type(self).__name__, object()
        _running[token] = (name, time.monotonic())
        try:
            async with asyncio.timeout(LONGEST_SECONDS) as bound:
                return await method(self, *args, **kwargs)
        except TimeoutError as error:
            if not bound.expired():
                raise
            raise Overdue(f"a round of {name} was broken off after {LONGEST_SECONDS:.0f} s") from error
        finally:
            del _running[token]

    return one_round


def hangs() -> str | None:
    """The round that should have ended long ago, in a sentence."""
    now = time.monotonic()
    for name, began in list(_running.values()):
        if now - began > LONGEST_SECONDS + GRACE_SECONDS:
            return f"a round of {name} has taken {now - began:.0f} s and cannot be broken off"
    return None
