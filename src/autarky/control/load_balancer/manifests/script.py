"""What HAProxy's own words cannot say, in its Lua (`nllb_script.lua`): the hold, who begins as down, and whose sessions
are cut."""

from __future__ import annotations

from autarky.model import patience
from autarky.programs import program

CLOSE_WATCH_SECONDS = 0.05
"""After a first look at `alive` that failed: what it takes beyond HAProxy's verdict until the sessions are cut."""


def script(*, in_use: str, own: str) -> str:
    """in_use: the file with what the former worker held for healthy. own: the address by which the node's own servers
    are led to."""
    return program(
        __file__,
        "nllb_script.lua",
        in_use_file=in_use,
        own=own,
        close_watch_ms=round(CLOSE_WATCH_SECONDS * 1000),
        refused=patience.REFUSED,
        unanswered=patience.UNANSWERED,
        drained=f"{patience.DRAINED:g}",
        second_best=patience.SECOND_BEST,
    )
