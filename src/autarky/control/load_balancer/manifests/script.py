"""What HAProxy's configuration language cannot express, in Lua (`nllb_script.lua`): holding connections, which servers
start as down, and whose sessions are closed."""

from __future__ import annotations

from autarky.model import patience
from autarky.programs import program

CLOSE_WATCH_SECONDS = 0.05
"""Between two looks after a first failed check of `alive`: how long after HAProxy's verdict sessions may stay open."""


def script(*, in_use: str, own: str) -> str:
    """in_use: the file with the servers that the former worker considered healthy. own: the address of the node's own
    servers."""
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
