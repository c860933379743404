"""Waiting until what was restarted with other settings is well, or is known to have failed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from autarky.control.common.restarted import Verdict
from autarky.engine.deadline import poll_until
from autarky.errors import TimedOut
from autarky.ports import Clock, Progress


class NotWell(Exception):
    """The text says what was seen, as a clause."""


def quoted(lines: Sequence[str]) -> str:
    """The last three, a line each, with a prefix that no line of ours has: whoever wrote them may be root on a worker,
    and a line of theirs must not pass for one of ours (`fix: …`)."""
    return "\n".join(f"  | {line[:400]}" for line in lines[-3:]) or "  (nothing)"


async def until_well(
    what: str, look: Callable[[], Awaitable[Verdict]], *, timeout: float, progress: Progress, clock: Clock
) -> None:
    """timeout: seconds. Raises NotWell for a verdict that it has failed, and where it is not healthy in time."""
    last = Verdict(well=False, failed=False, missing="nothing was seen of it")

    async def is_judged() -> str | None:
        nonlocal last
        last = await look()
        return None if last.well or last.failed else last.missing

    try:
        await poll_until(what, is_judged, timeout=timeout, progress=progress, clock=clock)
    except TimedOut:
        raise NotWell(f"{last.missing} after {timeout:.0f} s") from None
    if last.failed:
        raise NotWell(last.missing)
