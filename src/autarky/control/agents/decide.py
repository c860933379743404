"""Which standby agents a control node has: the one of the current revision, and no other once that runs.

Contract: `decide(seen, memory, now)` is pure; `now` in monotonic seconds. It returns whether to
put one of the current revision in place, the manifests to remove after that, what to remember, and one sentence.

A standby agent is always in place: a new revision runs beside the old one until its container has run for
SETTLED_SECONDS. Both wait for the same lock, and either may be the next to act.

Rules, in whatever order observations come:
- no manifest is removed unless another one is known to run (rule 1), except those of which nothing runs when a new
  activation replaces them;
- unknown is not down (rule 2): without an answer from the runtime nothing is removed and nothing is given up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

SETTLED_SECONDS = 10.0
"""A container with a broken command exits within a second or two; a standby agent that starts waits indefinitely."""
PATIENCE_SECONDS = 60.0
"""How long one may take to start: a busy node needs seconds."""
LONGEST_GAP_SECONDS = 10.0
"""Two observations further apart than this prove nothing about the time between them."""


@dataclass(frozen=True, slots=True)
class Seen:
    """current: the revision that should be in place; None when there is none, or it is not known.

    in_place: manifest → its revision, "" for one rendered by `up`; None when that could not be read.
    running: the manifests whose pod has a running container; None when the runtime did not answer.
    """

    current: str | None
    in_place: Mapping[str, str] | None
    running: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Memory:
    """looked: when the last valid observation was made. runs, idle: for how many seconds without a break one of the
    current revision has run, or none has. given_up: the revision that did not start."""

    looked: float | None = None
    current: str = ""
    runs: float = 0.0
    idle: float = 0.0
    given_up: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    place: bool
    remove: frozenset[str]
    memory: Memory
    sentence: str
    settled: bool = False


def decide(seen: Seen, memory: Memory, now: float) -> Decision:
    """See the module's contract."""
    if seen.in_place is None or seen.current is None:
        return Decision(False, frozenset(), replace(memory, looked=None), "no revision of the agent is known")
    fresh = frozenset(name for name, revision in seen.in_place.items() if revision == seen.current)
    others = frozenset(seen.in_place) - fresh
    if not fresh:
        return _begun(seen.current, memory)
    if seen.running is None:
        return Decision(False, frozenset(), replace(memory, looked=None), "unknown: the runtime does not answer")
    memory = _counted(seen.current, bool(fresh & seen.running), memory, now)
    if memory.runs >= SETTLED_SECONDS:
        unlisted = others | (fresh - {min(fresh & seen.running)})
        return Decision(False, unlisted, memory, "the standby agent is a copy of the hosted one", settled=not unlisted)
    if memory.idle >= PATIENCE_SECONDS:
        return _given_up(seen.current, fresh, bool(others & seen.running), memory)
    return Decision(False, frozenset(), memory, "the new standby agent has not run for long enough yet")


def _begun(current: str, memory: Memory) -> Decision:
    if memory.given_up == current:
        return Decision(False, frozenset(), memory, _NOT_AGAIN, settled=True)
    return Decision(True, frozenset(), Memory(), "the standby agent becomes a copy of the hosted one")


_NOT_AGAIN = "the new standby agent did not start: the previous one stays"


def _counted(current: str, runs: bool, memory: Memory, now: float) -> Memory:
    """The clocks, one observation later."""
    if memory.current != current:
        return Memory(looked=now, current=current, given_up=memory.given_up)
    between = 0.0 if memory.looked is None else now - memory.looked
    between = between if 0 < between <= LONGEST_GAP_SECONDS else 0.0
    if runs:
        return replace(memory, looked=now, runs=memory.runs + between, idle=0.0)
    return replace(memory, looked=now, runs=0.0, idle=memory.idle + between)


def _given_up(current: str, fresh: frozenset[str], others_run: bool, memory: Memory) -> Decision:
    """Back to the previous one, if that runs; else a new activation: a kubelet never retries one that it rejected."""
    if others_run:
        return Decision(False, fresh, Memory(given_up=current), _NOT_AGAIN)
    return Decision(True, fresh, replace(memory, idle=0.0), "no standby agent runs: it gets a new activation")
