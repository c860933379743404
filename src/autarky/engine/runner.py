"""Running a list of phases: plan, act, say, remember.

Contract: phases run in the order of the list, each within its own timeout. The journal is written before
and after each. An error or an interruption ends the operation; running it again resumes, because every
phase looks before it acts. A dry run plans all phases and runs none.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

from autarky.engine import events as ev
from autarky.engine.journal import Journal
from autarky.engine.phase import Change, Phase
from autarky.errors import AutarkyError, TimedOut, UserError
from autarky.ports import Clock

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Result:
    """outcome: "changed", "unchanged" or "planned"."""

    outcome: str
    changes: int
    seconds: float


class Emitter:
    """Turns what a phase says into events; implements ports.Progress for the phase at hand."""

    def __init__(self, operation: str, clock: Clock, subscribers: Sequence[ev.Subscriber]) -> None:
        self._operation = operation
        self._clock = clock
        self._subscribers = subscribers
        self.phase = ""
        self.last_wait = ""

    def emit(self, kind: type[ev.Event], **fields: object) -> None:
        event = kind(time=self._clock.time(), operation=self._operation, phase=self.phase, **fields)
        for subscriber in self._subscribers:
            subscriber(event)

    def note(self, sentence: str) -> None:
        self.emit(ev.Noted, sentence=sentence)

    def progress(self, what: str, done: float, total: float) -> None:
        self.emit(ev.Progressed, what=what, done=done, total=total)

    def waiting(self, what: str, deadline: float, last: str) -> None:
        self.last_wait = f"{what}; last seen: {last}"
        self.emit(ev.Waiting, what=what, deadline=deadline, last=last)


async def run_operation(
    name: str,
    title: str,
    phases: Sequence[Phase[C]],
    context: C,
    *,
    clock: Clock,
    journal: Journal,
    subscribers: Sequence[ev.Subscriber] = (),
    dry_run: bool = False,
    skip: Collection[str] = (),
) -> Result:
    """Run (or plan) the phases. Raises what a phase raised, after it was told and written down."""
    _refuse_unknown(skip, [phase.name for phase in phases])
    emitter = Emitter(name, clock, subscribers)
    emitter.emit(ev.OperationStarted, title=title, phases=tuple(phase.name for phase in phases))
    begin = clock.monotonic()
    if not dry_run:
        journal.write({"entry": "operation-started", "operation": name, "title": title, "time": clock.time()})
    changes = 0
    try:
        for number, phase in enumerate(phases, 1):
            if phase.name not in skip:
                emitter.phase = phase.name
                changes += await _one_phase(phase, context, emitter, clock, journal, number, len(phases), dry_run)
    except BaseException as error:
        _end_failed(emitter, journal, title, error, clock.monotonic() - begin, changes, dry_run=dry_run)
        raise
    emitter.phase = ""
    outcome = "unchanged" if not changes else "planned" if dry_run else "changed"
    seconds = clock.monotonic() - begin
    emitter.emit(ev.OperationEnded, title=title, outcome=outcome, seconds=seconds, changes=changes)
    if not dry_run:
        journal.write({"entry": "operation-ended", "operation": name, "outcome": outcome, "time": clock.time()})
    return Result(outcome, changes, seconds)


async def _one_phase(
    phase: Phase[C],
    context: C,
    emitter: Emitter,
    clock: Clock,
    journal: Journal,
    number: int,
    of: int,
    dry_run: bool,
) -> int:
    """Plan and run one phase; the number of its changes."""
    emitter.emit(ev.PhaseStarted, title=phase.title, number=number, of=of)
    begin = clock.monotonic()
    emitter.last_wait = ""
    try:
        async with _deadline(phase, emitter):
            planned: Sequence[Change] = await phase.plan(context)
            for change in planned:
                emitter.emit(ev.Changed, sentence=change.sentence, dry_run=dry_run)
            if planned and not dry_run:
                journal.write({"entry": "phase-started", "phase": phase.name, "time": clock.time()})
                await phase.run(context, emitter)
                journal.write({"entry": "phase-ended", "phase": phase.name, "time": clock.time()})
    except BaseException as error:
        seconds = clock.monotonic() - begin
        emitter.emit(ev.PhaseEnded, title=phase.title, outcome="failed", seconds=seconds, detail=_text(error))
        raise
    outcome = "unchanged" if not planned else "planned" if dry_run else "changed"
    emitter.emit(ev.PhaseEnded, title=phase.title, outcome=outcome, seconds=clock.monotonic() - begin)
    return len(planned)


class _deadline:  # noqa: N801 # reads as a statement: async with _deadline(phase)
    """The phase's timeout; the error names the phase and what it last waited for."""

    def __init__(self, phase: Phase[C], emitter: Emitter) -> None:
        self._phase_title = phase.title
        self._seconds = phase.timeout
        self._emitter = emitter
        self._timeout = asyncio.timeout(phase.timeout)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)  # type: ignore[arg-type] # passed through
        except TimeoutError as late:
            last = self._emitter.last_wait or "nothing that it waited for by name"
            raise TimedOut(f"«{self._phase_title}» took more than {self._seconds:.0f} s: {last}") from late


def _end_failed(
    emitter: Emitter,
    journal: Journal,
    title: str,
    error: BaseException,
    seconds: float,
    changes: int,
    *,
    dry_run: bool,
) -> None:
    detail = _text(error)
    emitter.emit(ev.OperationEnded, title=title, outcome="failed", seconds=seconds, changes=changes, detail=detail)
    if not dry_run:
        journal.write({"entry": "operation-ended", "outcome": "failed", "phase": emitter.phase, "error": detail})


def _text(error: BaseException) -> str:
    if isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
        return "interrupted; run the same command again to resume"
    return str(error) if isinstance(error, AutarkyError) else f"{type(error).__name__}: {error}"


def _refuse_unknown(names: Collection[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the phases are: {', '.join(known)}"
            raise UserError(f"there is no phase {name}", fix=hint)
