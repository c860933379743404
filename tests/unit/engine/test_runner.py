from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from autarky.engine.deadline import poll_until
from autarky.engine.events import Drifted, Noted, OperationEnded, PhaseEnded, Warned
from autarky.engine.journal import Journal
from autarky.engine.phase import Change, Kept, Warn
from autarky.engine.runner import run_operation
from autarky.errors import TimedOut, Unreachable, UserError

pytestmark = pytest.mark.looptime


@dataclass
class Step:
    """A phase that makes one thing exist, in `seconds`. `hook` is called in the middle of `run`."""

    name: str
    seconds: float = 1.0
    timeout: float = 60.0
    planning: float = 0.0
    hook: Callable[[], object] = field(default=lambda: None)
    needs: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return self.name.replace("-", " ").capitalize()

    async def plan(self, context):
        await asyncio.sleep(self.planning)
        return [] if self.name in context else [Change(f"make {self.name}")]

    async def run(self, context, progress):
        await asyncio.sleep(self.seconds / 2)
        self.hook()
        progress.note(f"{self.name} is half done")
        await asyncio.sleep(self.seconds / 2)
        context.add(self.name)


def fail(error):
    def hook():
        raise error

    return hook


def endings(listener) -> dict[str, str]:
    return {event.phase: event.outcome for event in listener.events if isinstance(event, PhaseEnded)}


def end(listener) -> OperationEnded:
    last = listener.events[-1]
    assert isinstance(last, OperationEnded)
    return last


async def test_phases_run_in_order_and_tell_what_they_do(clock, listener):
    world: set[str] = set()
    phases = [Step("get-payload"), Step("pivot", seconds=3)]
    result = await run_operation("up", "cluster one", phases, world, clock=clock, events=[listener])
    assert listener.kinds() == [
        "operation-started",
        *["phase-started", "change", "note", "phase-ended"] * 2,
        "operation-ended",
    ]
    assert listener.events[0].phases == ("get-payload", "pivot")
    assert listener.events[0].titles == ("Get payload", "Pivot")
    assert (listener.events[5].number, listener.events[5].of, listener.events[5].title) == (2, 2, "Pivot")
    assert (end(listener).outcome, end(listener).seconds, end(listener).changes) == ("changed", 4, 2)
    assert (result.outcome, result.seconds, result.phases) == (
        "changed",
        4,
        {"get-payload": "changed", "pivot": "changed"},
    )
    assert result.changes == (Change("make get-payload"), Change("make pivot"))


async def test_a_second_run_changes_nothing_and_says_so(clock, listener):
    world: set[str] = set()
    phases = [Step("get-payload"), Step("pivot")]
    await run_operation("up", "cluster one", phases, world, clock=clock)
    phases = [Step("get-payload", hook=fail(AssertionError)), Step("pivot", hook=fail(AssertionError))]
    result = await run_operation("up", "cluster one", phases, world, clock=clock, events=[listener])
    assert endings(listener) == {"get-payload": "unchanged", "pivot": "unchanged"}
    assert (result.outcome, result.changes, end(listener).outcome) == ("unchanged", (), "unchanged")


async def test_a_dry_run_plans_all_phases_runs_none_and_leaves_the_journal_alone(clock, listener, tmp_path):
    world = {"get-payload"}
    phases = [Step("get-payload"), Step("pivot", hook=fail(AssertionError)), Step("join", hook=fail(AssertionError))]
    with Journal(tmp_path / "journal") as journal:
        result = await run_operation(
            "up", "cluster one", phases, world, clock=clock, events=[listener], journal=journal, dry_run=True
        )
        assert journal.entries() == []
    assert endings(listener) == {"get-payload": "unchanged", "pivot": "planned", "join": "planned"}
    assert [event.sentence for event in listener.events if event.kind == "change" and event.dry_run] == [
        "make pivot",
        "make join",
    ]
    assert result.outcome == "planned"
    assert world == {"get-payload"}


async def test_a_dry_run_with_nothing_to_do_is_unchanged(clock):
    result = await run_operation("up", "cluster one", [Step("pivot")], {"pivot"}, clock=clock, dry_run=True)
    assert result.outcome == "unchanged"


LEFT_OUT = ["get-payload"]


@pytest.mark.parametrize("dry_run", [True, False])
async def test_a_phase_is_refused_where_one_that_it_needs_is_left_out_and_not_done(clock, listener, dry_run):
    phases = [Step("get-payload"), Step("pivot", needs=("get-payload",), hook=fail(AssertionError))]
    with pytest.raises(
        UserError, match=r"pivot needs get-payload, .* still has changes to make: make get-payload"
    ) as no:
        await run_operation("up", "one", phases, set(), clock=clock, events=[listener], skip=LEFT_OUT, dry_run=dry_run)
    assert no.value.fix == "do not skip get-payload, or skip pivot as well"
    assert endings(listener) == {"get-payload": "skipped", "pivot": "failed"}


@pytest.mark.parametrize("done", [{"get-payload"}, {"pivot"}], ids=["needs nothing more", "has no changes itself"])
async def test_a_phase_that_lacks_nothing_is_not_refused(clock, listener, done):
    phases = [Step("get-payload"), Step("pivot", needs=("get-payload",))]
    world = set(done)
    await run_operation("up", "one", phases, world, clock=clock, events=[listener], skip=LEFT_OUT)
    assert "pivot" in world
    assert endings(listener)["get-payload"] == "skipped"


async def test_each_phase_that_is_needed_is_asked(clock):
    phases = [Step("get-payload"), Step("prepare"), Step("pivot", needs=("get-payload", "prepare"))]
    both = ["get-payload", "prepare"]
    with pytest.raises(UserError, match="pivot needs prepare"):
        await run_operation("up", "one", phases, {"get-payload"}, clock=clock, skip=both)


async def test_what_a_needed_phase_needs_is_looked_at_before_it(clock):
    """Its plan may find there what it compares with: without it, it would seem to have something to do."""

    class Finds(Step):
        async def plan(self, context):
            context.add("found")
            return []

    class Compares(Step):
        async def plan(self, context):
            return [] if "found" in context else [Change("prepare host n1")]

    phases = [Finds("get-payload"), Compares("prepare", needs=("get-payload",)), Step("start", needs=("prepare",))]
    both = ["get-payload", "prepare"]
    world: set[str] = set()
    await run_operation("up", "one", phases, world, clock=clock, skip=both)
    assert "start" in world


async def test_a_phase_that_needs_one_that_runs_runs_after_it(clock):
    world: set[str] = set()
    phases = [Step("get-payload"), Step("pivot", needs=("get-payload",))]
    await run_operation("up", "one", phases, world, clock=clock)
    assert world == {"get-payload", "pivot"}


async def test_an_error_ends_the_operation_and_says_how_to_resume(clock, listener):
    phases = [Step("get-payload"), Step("pivot", hook=fail(Unreachable("n1 is silent"))), Step("join")]
    with pytest.raises(Unreachable):
        await run_operation("up", "cluster one", phases, set(), clock=clock, events=[listener])
    assert endings(listener) == {"get-payload": "changed", "pivot": "failed"}
    assert listener.events[-2].detail == "n1 is silent"
    assert end(listener).outcome == "failed"
    assert end(listener).detail == "n1 is silent\nrun the same command again to resume"


async def test_a_bug_is_told_with_its_type_and_raised_as_it_is(clock, listener):
    with pytest.raises(KeyError):
        await run_operation(
            "up", "cluster one", [Step("pivot", hook=fail(KeyError("etcd")))], set(), clock=clock, events=[listener]
        )
    assert end(listener).detail.startswith("KeyError: 'etcd'")


async def test_an_interruption_is_told_and_says_how_to_resume(clock, listener):
    task = asyncio.current_task()
    with pytest.raises(asyncio.CancelledError):
        await run_operation(
            "up", "cluster one", [Step("pivot", hook=task.cancel)], set(), clock=clock, events=[listener]
        )
    task.uncancel()
    assert endings(listener) == {"pivot": "interrupted"}
    assert (end(listener).outcome, end(listener).detail) == (
        "interrupted",
        "run the same command again to resume",
    )


async def test_a_phase_that_takes_too_long_is_cut_off(clock, listener):
    with pytest.raises(TimedOut, match=r"^Pivot: not done within 5 s$"):
        await run_operation("up", "one", [Step("pivot", seconds=100, timeout=5)], set(), clock=clock, events=[listener])
    assert end(listener).seconds == 5


async def test_a_plan_that_takes_too_long_is_cut_off(clock):
    with pytest.raises(TimedOut, match=r"^Pivot: not done within 5 s$"):
        await run_operation("up", "one", [Step("pivot", planning=100, timeout=5)], set(), clock=clock)


async def test_a_phase_that_is_stuck_tells_the_wait_it_was_stuck_in(clock):
    class Stuck(Step):
        async def run(self, _context, progress):
            async def refused() -> str | None:
                return "connection refused"

            await poll_until("the API answers", refused, timeout=600, progress=progress, clock=clock)

    with pytest.raises(TimedOut) as caught:
        await run_operation("up", "one", [Stuck("pivot", timeout=30)], set(), clock=clock)
    assert str(caught.value) == (
        "Pivot: not done within 30 s; it was waiting: the API answers; last seen: connection refused"
    )


async def test_a_timeout_error_of_a_phase_is_not_taken_for_its_time_limit(clock):
    with pytest.raises(TimeoutError, match="a bug of an adapter"):
        await run_operation(
            "up", "one", [Step("pivot", hook=fail(TimeoutError("a bug of an adapter")))], set(), clock=clock
        )


async def test_phases_to_skip_are_skipped(clock, listener):
    world: set[str] = set()
    phases = [Step("get-payload"), Step("pivot"), Step("join")]
    skip = ["get-payload", "join"]
    await run_operation("up", "one", phases, world, clock=clock, events=[listener], skip=skip)
    assert endings(listener) == {"get-payload": "skipped", "pivot": "changed", "join": "skipped"}
    assert world == {"pivot"}


async def test_to_skip_an_unknown_phase_is_refused_before_anything_is_done(clock, listener):
    with pytest.raises(UserError, match="up has no phase pivto"):
        await run_operation("up", "one", [Step("pivot")], set(), clock=clock, events=[listener], skip=["pivto"])
    assert listener.events == []


async def test_the_journal_is_written_before_and_after_each_phase(clock, tmp_path):
    with Journal(tmp_path / "journal") as journal:
        seen_in_run: list[str] = []
        phases = [Step("pivot", hook=lambda: seen_in_run.extend(entry.what for entry in journal.entries()))]
        await run_operation("up", "one", phases, set(), clock=clock, journal=journal)
    assert seen_in_run == ["operation-started", "phase-started"]
    lines = [json.loads(line) for line in journal.path.read_text().splitlines()]
    assert len({line.pop("id") for line in lines}) == 1
    assert lines[1:] == [
        {"time": lines[0]["time"], "operation": "up", "what": "phase-started", "phase": "pivot"},
        {
            "time": lines[0]["time"] + 1,
            "operation": "up",
            "what": "phase-ended",
            "phase": "pivot",
            "outcome": "changed",
        },
        {"time": lines[0]["time"] + 1, "operation": "up", "what": "operation-ended", "outcome": "changed"},
    ]


async def test_the_error_is_in_the_journal_and_the_next_run_tells_where_the_last_one_stopped(clock, listener, tmp_path):
    world: set[str] = set()
    with Journal(tmp_path / "journal") as journal:
        with pytest.raises(Unreachable):
            await run_operation(
                "up",
                "one",
                [Step("get-payload"), Step("pivot", hook=fail(Unreachable("n1 is silent")))],
                world,
                clock=clock,
                journal=journal,
            )
        assert journal.entries()[-1].error == "n1 is silent"
        phases = [Step("get-payload"), Step("pivot")]
        await run_operation("up", "one", phases, world, clock=clock, events=[listener], journal=journal)
    assert next(event.sentence for event in listener.events if isinstance(event, Noted)) == (
        "the last `up` stopped in phase pivot; what is already done is left alone"
    )
    assert endings(listener) == {"get-payload": "unchanged", "pivot": "changed"}


async def test_a_journal_that_cannot_be_written_stops_the_operation_before_it_changes_anything(clock, listener):
    class FullDisk(Journal):
        def __init__(self) -> None: ...

        def entries(self):
            return []

        def append(self, entry):
            if entry.what != "operation-started":
                raise UserError("cannot write the journal", fix="make room")

    world: set[str] = set()
    with pytest.raises(UserError, match="cannot write the journal"):
        await run_operation("up", "one", [Step("pivot")], world, clock=clock, events=[listener], journal=FullDisk())
    assert world == set()
    assert end(listener).outcome == "failed"


class Edited(Step):
    async def plan(self, context):
        return [Kept("DaemonSet x", "spec.image", "a:1", "a:2", "kubectl-set", "2026-11-21T10:00:00Z")]


async def test_what_others_have_set_is_told_and_is_no_change(clock, listener):
    world: set[str] = set()
    result = await run_operation("up", "one", [Edited("apply")], world, clock=clock, events=[listener])
    (reported,) = [event for event in listener.events if isinstance(event, Drifted)]
    assert (reported.subject, reported.field, reported.ours, reported.live) == (
        "DaemonSet x",
        "spec.image",
        "a:1",
        "a:2",
    )
    assert (reported.manager, reported.since, reported.phase) == ("kubectl-set", "2026-11-21T10:00:00Z", "apply")
    assert result.outcome == "unchanged"
    assert world == set()


class Doubtful(Step):
    async def plan(self, context):
        return [Warn("swap is on"), Warn("an old default", in_plan=True)]


@pytest.mark.parametrize("dry_run", [False, True])
async def test_a_warning_is_told_by_every_run_and_plan_and_is_no_change(clock, listener, dry_run):
    phases = [Doubtful("check", hook=fail(AssertionError))]
    result = await run_operation("up", "one", phases, set(), clock=clock, events=[listener], dry_run=dry_run)
    reported = [(event.sentence, event.in_plan) for event in listener.events if isinstance(event, Warned)]
    assert reported == [("swap is on", False), ("an old default", True)]
    assert result.outcome == "unchanged"
