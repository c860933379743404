"""Which of the Backups that wait for a pod has it next: pure.

Invariants: who waits goes before whoever comes later, and before the next attempt of whoever has had one meanwhile: so
a target on which every attempt fails, or takes all of its time, keeps nobody for longer than one of them. A removal
that has failed before comes after all others: such a target may have many archives.
"""

from __future__ import annotations

from collections.abc import Sequence

from autarky.control.backup.decide.step import Asked, Phase


def in_turn(before: Sequence[str], waiting: Sequence[Asked]) -> list[str]:
    """Names of those that wait, whose turn comes first first. before: the last answer; who is not in it, since nobody
    was asked before or since it did not wait, comes last, those that have had no attempt first among them."""
    turns = {name: turn for turn, name in enumerate(before)}

    def turn(one: Asked) -> tuple[bool, int, int]:
        return one.phase is Phase.NOT_REMOVED, turns.get(one.name, len(turns)), one.attempt

    return [one.name for one in sorted(waiting, key=turn)]
