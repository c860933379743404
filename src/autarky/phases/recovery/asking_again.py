"""A command that has finished another recovery than the one that it was given for does not succeed.

Contract: it is the last phase, and only looks: what was under way has ended by then. Whoever has asked for something
else must not take that for done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autarky.engine.phase import Change
from autarky.errors import Refused
from autarky.phases.context import Context
from autarky.phases.recovery.resuming import OWN_COMMAND
from autarky.phases.recovery.state import Recovery
from autarky.ports import Progress


@dataclass(frozen=True, slots=True)
class AskAgain:
    recovery: Recovery
    name: str = "ask-again"
    title: str = "See whether that was asked for"
    timeout: float = 5

    async def plan(self, context: Context) -> Sequence[Change]:
        left = self.recovery.not_done
        return [] if left is None else [Change(f"end with an error, since {left.clause}")]

    async def run(self, context: Context, progress: Progress) -> None:
        left = self.recovery.not_done
        assert left is not None  # noqa: S101 # it has changes to make
        seen = f"the recovery {self.recovery.made_of} has been finished, and {left.clause}"
        raise Refused(OWN_COMMAND, seen, f"run {left.command} again")
