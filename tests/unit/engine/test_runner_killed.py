"""Rule 5: an operation may be killed between any two steps, run again, and converges.

Hypothesis chooses the phases and where each run is stopped: by cancellation (a signal) at an await, or by
SIGKILL (a forked process that ends there, on the same files).
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from autarky.clock import SystemClock
from autarky.engine.events import Event
from autarky.engine.journal import Journal
from autarky.engine.phase import Change
from autarky.engine.runner import Result, run_operation

STOPPED = 9
"""Exit status of a process that ended at its kill point."""


class World:
    """Things are files. Every await of a phase is a kill point; `left` counts down to the deadly one."""

    def __init__(self, directory: Path, left: int | None, *, deadly: bool) -> None:
        self.directory, self.left, self.deadly = directory, left, deadly

    async def point(self) -> None:
        if self.left == 0 and self.deadly:
            os._exit(STOPPED)
        if self.left == 0:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        if self.left is not None:
            self.left -= 1
        await asyncio.sleep(0)

    def has(self, thing: str) -> bool:
        return (self.directory / thing).exists()

    def make(self, thing: str) -> None:
        (self.directory / thing).touch(exist_ok=False)  # fails when a thing is made twice


@dataclass(frozen=True)
class Maker:
    """A phase that makes some things, one after the other, and looks before it acts."""

    number: int
    things: int
    timeout: float = 60.0

    @property
    def name(self) -> str:
        return f"phase-{self.number}"

    title = name

    def wanted(self) -> list[str]:
        return [f"{self.number}-{thing}" for thing in range(self.things)]

    async def plan(self, world: World) -> list[Change]:
        missing = []
        for thing in self.wanted():
            await world.point()
            if not world.has(thing):
                missing.append(Change(f"make {thing}"))
        return missing

    async def run(self, world: World, _progress) -> None:
        for thing in self.wanted():
            await world.point()
            if not world.has(thing):
                world.make(thing)
            await world.point()


@dataclass
class Attempts:
    """Runs one operation again and again in a directory that outlives each run."""

    directory: Path
    phases: list[Maker]

    def run(self, left: int | None, *, deadly: bool = False, events: list[Event] | None = None) -> Result:
        async def operation() -> Result:
            (self.directory / "things").mkdir(exist_ok=True)
            world = World(self.directory / "things", left, deadly=deadly)
            with Journal(self.directory / "journal") as journal:
                heard = [] if events is None else events
                return await run_operation(
                    "up", "one", self.phases, world, clock=SystemClock(), events=[heard.append], journal=journal
                )

        return asyncio.run(operation())

    def run_in_a_process_that_dies(self, left: int) -> bool:
        """Whether it was killed before it was done."""
        child = os.fork()
        if child == 0:
            status = 1
            try:
                self.run(left, deadly=True)
                status = 0
            finally:
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status in (0, STOPPED)
        return status == STOPPED

    def must_converge(self) -> None:
        """One run that is left alone reaches the goal, and one more changes nothing."""
        self.run(None)
        assert {path.name for path in (self.directory / "things").iterdir()} == {
            thing for phase in self.phases for thing in phase.wanted()
        }
        assert self.run(None).outcome == "unchanged"

    def journal_must_be_intact(self) -> None:
        with Journal(self.directory / "journal") as journal:
            entries = journal.entries()
            assert len(entries) == journal.path.read_bytes().count(b"\n")
        open_phase = None
        for entry in entries:
            if entry.what == "operation-started":
                open_phase = None  # the run before it was killed, wherever that was
            elif entry.what == "phase-started":
                assert open_phase is None
                open_phase = entry.phase
            elif entry.what == "phase-ended":
                assert entry.phase == open_phase
                open_phase = None
        assert entries[-1].what == "operation-ended"


phases_strategy = st.lists(st.integers(0, 3), min_size=1, max_size=4).map(
    lambda sizes: [Maker(number, things) for number, things in enumerate(sizes)]
)
kill_points = st.lists(st.integers(0, 30), max_size=5)


@settings(deadline=None, max_examples=60)
@given(phases=phases_strategy, kills=kill_points)
def test_rule_5_an_operation_that_is_cancelled_at_any_await_is_resumed(phases, kills):
    with tempfile.TemporaryDirectory() as directory:
        attempts = Attempts(Path(directory), phases)
        for left in kills:
            events: list[Event] = []
            try:
                attempts.run(left, events=events)
            except asyncio.CancelledError:
                assert events[-1].as_dict()["outcome"] == "interrupted"
            assert events[-1].kind == "operation-ended"
        attempts.must_converge()
        attempts.journal_must_be_intact()


@settings(deadline=None, max_examples=15)
@given(phases=phases_strategy, kills=kill_points)
def test_rule_5_an_operation_that_is_killed_at_any_await_is_resumed(phases, kills):
    with tempfile.TemporaryDirectory() as directory:
        attempts = Attempts(Path(directory), phases)
        for left in kills:
            attempts.run_in_a_process_that_dies(left)
        attempts.must_converge()
        attempts.journal_must_be_intact()
