"""How much more work something is for four times as many nodes: by steps of the interpreter, which depend on no clock
and on no load of the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

MOST = 5.0
"""Times as many steps for four times as many: what grows with the square takes up to 16 times."""


@dataclass(slots=True)
class Counted:
    steps: int = 0


@contextmanager
def counting() -> Iterator[Counted]:
    """Counts what this thread does meanwhile, but for what is done in C."""
    found, before = Counted(), sys.gettrace()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        found.steps += event == "opcode"
        return trace

    sys.settrace(trace)
    try:
        yield found
    finally:
        sys.settrace(before)


def growth(look: Callable[[int], Callable[[], object]], few: int = 25) -> float:
    """Times as many steps where there are four times as many. look: of so many, what is to be counted."""
    steps = []
    for number in (few, 4 * few):
        act = look(number)
        act()  # what is remembered from the first time on is not counted
        with counting() as found:
            act()
        steps.append(found.steps)
    return steps[1] / steps[0]
