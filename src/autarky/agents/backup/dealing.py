"""What a target is asked for, in a thread that is left behind where it hangs.

Contract: `deal` returns, or raises, at most a few seconds after the target is late or the caller is cancelled; what is
half written is taken away if the target still answers. Danger: a thread that was left behind ends with the process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from autarky.archive.pace import Paced
from autarky.archive.targets import Target
from autarky.errors import Unreachable

_LOOK_SECONDS = 1.0
_LEAVES_SECONDS = 2.0
"""For a thread to take away what it has begun: less than the pod's grace period, in which the snapshot goes as well."""
_Result = TypeVar("_Result")


async def deal(target: Target, work: Callable[[Paced], _Result]) -> _Result:
    """The result of the work with the target. Unreachable where that hangs, or does too little for its time."""
    paced = Paced(target)
    outcome = _begun(lambda: work(paced))
    try:
        while not outcome.done():
            if paced.is_late():
                raise Unreachable(_too_slow(paced))
            await asyncio.wait({outcome}, timeout=_LOOK_SECONDS)
        return outcome.result()
    finally:
        paced.stop()
        await asyncio.wait({outcome}, timeout=_LEAVES_SECONDS)
        if outcome.done():
            outcome.exception()  # looked at, so that nobody logs it


def _too_slow(paced: Paced) -> str:
    return (
        f"{paced.place}: {paced.done:,} bytes have come in {paced.spent:.0f} s, and no more is waited for\n"
        "  fix: see whether it answers, and how much it takes or gives in a second"
    )


def _begun(work: Callable[[], _Result]) -> asyncio.Future[_Result]:
    """Not one of asyncio's threads: these are waited for when the program ends."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[_Result] = loop.create_future()

    def settle(tell: Callable[..., None], what: object) -> None:
        with suppress(RuntimeError):  # the loop has ended, and nobody waits
            loop.call_soon_threadsafe(tell, what)

    def run() -> None:
        try:
            found = work()
        except BaseException as error:  # raised again where it is waited for
            settle(outcome.set_exception, _to_be_raised(error))
        else:
            settle(outcome.set_result, found)

    threading.Thread(target=run, name="target", daemon=True).start()
    return outcome


def _to_be_raised(error: BaseException) -> Exception:
    """A library's panic is no Exception: nobody would say what has happened. A future takes no StopIteration."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    found = RuntimeError(f"{type(error).__name__}: {error}")
    found.__cause__ = error
    return found
