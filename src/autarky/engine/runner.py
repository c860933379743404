"""Runs the phases of an operation: plan, then run what the plan found, one after the other.

Contract:
- For each phase: plan; no changes → "unchanged", and `run` is not called; else announce the changes and
  run. A dry run plans every phase and runs none, and touches no journal.
- A phase that has changes to make is refused where one that it needs was left out and has changes to make as well.
- `plan` and `run` each get the phase's timeout; passing it raises TimedOut with the wait it was stuck in.
- The journal is on disk before a phase starts and after it ended, whatever the outcome.
- The last event is OperationEnded, also after an error or a cancellation; the error is raised again.
- Whatever stopped it, running the same operation again converges (rule 5): nothing here is remembered.

The runner knows no Kubernetes, prints nothing and holds no lock: the caller takes `engine.lock` around it.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import TypeVar

from autarky.engine.events import (
    Changed,
    Drifted,
    Noted,
    OperationEnded,
    OperationStarted,
    PhaseEnded,
    PhaseStarted,
    Subscriber,
    Warned,
)
from autarky.engine.journal import Entry, Journal, What, stopped_in
from autarky.engine.phase import Change, Kept, Phase, Warn, needs_of
from autarky.engine.progress import Bus, EventProgress, failure
from autarky.engine.selection import refuse_unknown
from autarky.errors import TimedOut, UserError
from autarky.ports import Clock

C = TypeVar("C")

RESUME = "run the same command again to resume"


@dataclass(frozen=True, slots=True)
class Result:
    """How an operation ended: "changed", "unchanged" or "planned"; the changes; and how long it took.

    `phases` has the outcome of each phase by its name, `seconds` is the duration of the operation.
    """

    operation: str
    outcome: str
    changes: tuple[Change, ...]
    phases: dict[str, str]
    seconds: float


async def run_operation(
    name: str,
    title: str,
    phases: Sequence[Phase[C]],
    context: C,
    *,
    clock: Clock,
    events: Sequence[Subscriber] = (),
    journal: Journal | None = None,
    dry_run: bool = False,
    skip: Collection[str] = (),
) -> Result:
    """Run all phases but those to skip, in order. See the module's contract.

    skip: names of phases. Raises what a phase raised, TimedOut for a phase that took too long, and UserError (or
    Problems), before anything is done, for phases to skip which do not exist.
    """
    refuse_unknown(name, [phase.name for phase in phases], skip)
    operation = _Operation(name, title, clock, Bus(events), None if dry_run else journal, dry_run=dry_run)
    skipped = {phase.name: phase for phase in phases if phase.name in skip}
    operation.begin(phases)
    try:
        for number, phase in enumerate(phases, start=1):
            operation.begin_phase(phase, number, len(phases))
            if phase.name in skipped:
                operation.skip(phase)
                continue
            await operation.work_on(phase, context, skipped)
        return operation.succeed()
    except BaseException as error:
        operation.fail(error)
        raise


@dataclass(slots=True)
class _Operation:
    """One run: what it says, what it writes down, and what it has done so far."""

    name: str
    title: str
    clock: Clock
    bus: Bus
    journal: Journal | None
    dry_run: bool
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    started: float = 0.0
    changes: list[Change] = field(default_factory=list)
    outcomes: dict[str, str] = field(default_factory=dict)

    # --- the operation ---

    def begin(self, phases: Sequence[Phase[C]]) -> None:
        self.started = self.clock.monotonic()
        self.bus.emit(
            OperationStarted(
                time=self.clock.time(),
                operation=self.name,
                title=self.title,
                phases=tuple(phase.name for phase in phases),
                titles=tuple(phase.title for phase in phases),
            )
        )
        if self.journal is not None:
            self._tell_of_last_run(self.journal)
        self._write("operation-started")

    def _tell_of_last_run(self, journal: Journal) -> None:
        last = stopped_in(journal.entries())
        if last is not None:
            where = f"in phase {last.phase}" if last.phase else "before its first phase"
            sentence = f"the last `{last.operation}` stopped {where}; what is already done is left alone"
            self.bus.emit(Noted(time=self.clock.time(), operation=self.name, sentence=sentence))

    def succeed(self) -> Result:
        outcome = ("planned" if self.dry_run else "changed") if self.changes else "unchanged"
        self._write("operation-ended", outcome=outcome)
        seconds = self._end(outcome)
        return Result(self.name, outcome, tuple(self.changes), dict(self.outcomes), seconds)

    def fail(self, error: BaseException) -> None:
        outcome, text = failure(error)
        with suppress(UserError):  # a journal that cannot be written must not hide the error
            self._write("operation-ended", outcome=outcome, error=text)
        self._end(outcome, text if self.dry_run else f"{text}\n{RESUME}".strip())

    def _end(self, outcome: str, detail: str = "") -> float:
        seconds = self.clock.monotonic() - self.started
        self.bus.emit(
            OperationEnded(
                time=self.clock.time(),
                operation=self.name,
                title=self.title,
                outcome=outcome,
                seconds=seconds,
                changes=len(self.changes),
                detail=detail,
            )
        )
        return seconds

    # --- one phase ---

    def begin_phase(self, phase: Phase[C], number: int, of: int) -> None:
        self.bus.emit(
            PhaseStarted(
                time=self.clock.time(),
                operation=self.name,
                phase=phase.name,
                title=phase.title,
                number=number,
                of=of,
            )
        )

    def skip(self, phase: Phase[C]) -> None:
        self._end_phase(phase, "skipped", self.clock.monotonic())

    async def work_on(self, phase: Phase[C], context: C, skipped: Mapping[str, Phase[C]]) -> None:
        """Plan and run one phase; its outcome is reported and written down, whatever it is."""
        started = self.clock.monotonic()
        try:
            self._write("phase-started", phase=phase.name)
            outcome = await self._plan_and_run(phase, context, skipped)
            self._write("phase-ended", phase=phase.name, outcome=outcome)
        except BaseException as error:
            outcome, text = failure(error)
            with suppress(UserError):
                self._write("phase-ended", phase=phase.name, outcome=outcome, error=text)
            self._end_phase(phase, outcome, started, text)
            raise
        self._end_phase(phase, outcome, started)

    async def _plan_and_run(self, phase: Phase[C], context: C, skipped: Mapping[str, Phase[C]]) -> str:
        progress = EventProgress(self.bus, self.clock, self.name, phase.name)
        async with _bounded(phase, progress):
            found = await phase.plan(context)
        changes = [change for change in found if isinstance(change, Change)]
        for change in changes:
            self._announce(phase, change)
        for finding in found:
            if isinstance(finding, Kept | Warn):
                self._tell(phase, finding)
        if not changes:
            return "unchanged"
        async with _bounded(phase, progress):
            await _refuse_without(phase, skipped, context)
        if self.dry_run:
            return "planned"
        async with _bounded(phase, progress):
            await phase.run(context, progress)
        return "changed"

    def _announce(self, phase: Phase[C], change: Change) -> None:
        self.changes.append(change)
        self.bus.emit(
            Changed(
                time=self.clock.time(),
                operation=self.name,
                phase=phase.name,
                sentence=change.sentence,
                dry_run=self.dry_run,
            )
        )

    def _tell(self, phase: Phase[C], finding: Kept | Warn) -> None:
        kind, time = Drifted if isinstance(finding, Kept) else Warned, self.clock.time()
        self.bus.emit(kind(time=time, operation=self.name, phase=phase.name, **asdict(finding)))

    def _end_phase(self, phase: Phase[C], outcome: str, started: float, detail: str = "") -> None:
        self.outcomes[phase.name] = outcome
        self.bus.emit(
            PhaseEnded(
                time=self.clock.time(),
                operation=self.name,
                phase=phase.name,
                title=phase.title,
                outcome=outcome,
                seconds=self.clock.monotonic() - started,
                detail=detail,
            )
        )

    def _write(self, what: What, *, phase: str = "", outcome: str = "", error: str = "") -> None:
        if self.journal is not None:
            entry = Entry(
                time=self.clock.time(),
                operation=self.name,
                id=self.id,
                what=what,
                phase=phase,
                outcome=outcome,
                error=error,
            )
            self.journal.append(entry)


async def _refuse_without(phase: Phase[C], skipped: Mapping[str, Phase[C]], context: C) -> None:
    """Raises UserError where a phase that this one needs is left out and has changes to make."""
    for needed in needs_of(phase):
        changes = await _left_to_do(needed, skipped, context) if needed in skipped else []
        if changes:
            more = f" and {len(changes) - 1} more" if changes[1:] else ""
            raise UserError(
                f"{phase.name} needs {needed}, which is left out and still has changes to make: {changes[0]}{more}",
                fix=f"do not skip {needed}, or skip {phase.name} as well",
            )


async def _left_to_do(name: str, skipped: Mapping[str, Phase[C]], context: C) -> list[str]:
    """What it would change. What it needs in turn is looked at first: a plan may find there what it compares with."""
    for needed in needs_of(skipped[name]):
        if needed in skipped:
            await _left_to_do(needed, skipped, context)
    return [found.sentence for found in await skipped[name].plan(context) if isinstance(found, Change)]


@asynccontextmanager
async def _bounded(phase: Phase[C], progress: EventProgress) -> AsyncIterator[None]:
    """The phase's time limit, with the wait it was stuck in as part of the error."""
    try:
        async with asyncio.timeout(phase.timeout) as limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        stuck = f"; it was waiting: {progress.last_wait}" if progress.last_wait else ""
        raise TimedOut(f"{phase.title}: not done within {phase.timeout:.0f} s{stuck}") from error
