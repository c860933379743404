from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import click
import pytest

from autarky.cli.session import operation, run_async, run_phases
from autarky.engine.lock import exclusive
from autarky.engine.phase import Change
from autarky.errors import Conflict, Unreachable


@pytest.fixture(autouse=True)
def interrupts_are_heard():
    """Whoever starts the tests in the background of a shell has them begin with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@dataclass(frozen=True)
class Make:
    """A phase that makes one thing exist."""

    thing: str
    name: str = "make-it"
    title: str = "Make it"
    timeout: float = 10

    async def plan(self, context):
        return [] if self.thing in context else [Change(f"make {self.thing}")]

    async def run(self, context, progress):
        progress.note("it takes a moment")
        context.add(self.thing)


@dataclass(frozen=True)
class Fail(Make):
    async def run(self, _context, _progress):
        raise Unreachable("n1 is silent")


@dataclass(frozen=True)
class Signal(Make):
    number: signal.Signals = signal.SIGTERM

    async def run(self, _context, _progress):
        os.kill(os.getpid(), self.number)
        await asyncio.sleep(5)


async def up(tmp_path, phase=None, *, world=None, **options):
    world = set() if world is None else world
    options = {"directory": tmp_path / "one", "hosts_locked": no_hosts, **options}
    return await run_phases("up", "cluster one", [phase or Make("it")], world, **options)


@asynccontextmanager
async def no_hosts(_command, _tell):
    yield


async def test_the_hosts_are_locked_while_an_operation_changes_them_and_only_then(tmp_path):
    world: set[str] = set()
    log = []

    @asynccontextmanager
    async def hosts_locked(command, _tell):
        log.append((command, set(world)))
        yield
        log.append(("free", set(world)))

    await up(tmp_path, world=world, hosts_locked=hosts_locked, dry_run=True)
    assert log == []
    await up(tmp_path, world=world, hosts_locked=hosts_locked)
    assert log == [("autarky up", set()), ("free", {"it"})]


async def test_an_operation_on_hosts_that_another_has_does_not_begin(tmp_path):
    world: set[str] = set()

    @asynccontextmanager
    async def in_use(_command, _tell):
        raise Conflict("host n1 is in use")
        yield

    with pytest.raises(Conflict, match="n1"):
        await up(tmp_path, world=world, hosts_locked=in_use)
    assert world == set()
    assert not (tmp_path / "one/journal.jsonl").exists()


# --- signals ---------------------------------------------------------------------------------------------


def test_the_result_of_the_work_is_returned():
    async def work() -> int:
        return 7

    assert run_async(work) == 7


def test_an_error_of_the_work_is_raised():
    async def work() -> None:
        raise Unreachable("n1 is silent")

    with pytest.raises(Unreachable):
        run_async(work)


@pytest.fixture
def _nothing_ignored() -> Iterator[None]:
    """A run in the background, or under nohup, begins with signals that are ignored, which our commands heed."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_nothing_ignored")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=["INT", "TERM", "HUP"]
)
def test_a_signal_ends_the_work_cleanly_with_its_exit_code(number, code):
    cleaned = []
    before = signal.getsignal(number)

    async def work() -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.sleep(5)
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    with pytest.raises(SystemExit) as caught:
        run_async(work)
    assert caught.value.code == code
    assert cleaned
    assert signal.getsignal(number) == before


@pytest.mark.usefixtures("_nothing_ignored")
def test_a_second_signal_ends_a_clean_up_that_hangs():
    async def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(5)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(60)

    with pytest.raises(KeyboardInterrupt):
        run_async(work)


def test_a_signal_that_was_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:

        async def work() -> str:
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0.01)
            return "done"

        assert run_async(work) == "done"
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_cancellation_that_is_no_signal_is_passed_on():
    async def work() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run_async(work)


def test_an_interrupted_operation_says_how_to_resume_and_exits_with_130(autarky, capsys, tmp_path):
    with pytest.raises(SystemExit) as caught:
        autarky(lambda: run_async(lambda: up(tmp_path, Signal("it", number=signal.SIGINT))))
    assert caught.value.code == 130
    text = capsys.readouterr().err
    assert "interrupted after" in text
    assert "run the same command again to resume" in text


# --- operations that are phases ------------------------------------------------------------------------


async def test_an_operation_is_narrated_on_standard_error_and_written_into_the_journal(tmp_path, capsys):
    result = await up(tmp_path)
    assert result.outcome == "changed"
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "[1/1] Make it\n  - make it\n  it takes a moment\n  changed in" in captured.err
    lines = (tmp_path / "one" / "journal.jsonl").read_text().splitlines()
    assert [json.loads(line)["what"] for line in lines] == [
        "operation-started",
        "phase-started",
        "phase-ended",
        "operation-ended",
    ]


async def test_json_lines_are_all_of_standard_output(tmp_path, capsys):
    await up(tmp_path, output="json")
    captured = capsys.readouterr()
    kinds = [json.loads(line)["kind"] for line in captured.out.splitlines()]
    assert kinds == ["operation-started", "phase-started", "change", "note", "phase-ended", "operation-ended"]
    assert captured.err == ""


@pytest.mark.parametrize(("name", "output"), [("stdout", "json"), ("stderr", "plain")])
async def test_an_operation_goes_on_when_nobody_reads_its_narration(tmp_path, monkeypatch, name, output):
    read, write = os.pipe()
    os.close(read)
    broken = open(write, "w", buffering=1)  # noqa: PTH123, SIM115, ASYNC230 # a descriptor
    monkeypatch.setattr(sys, name, broken)
    world: set[str] = set()
    await up(tmp_path, world=world, output=output)
    assert world == {"it"}
    with pytest.raises(BrokenPipeError):
        broken.close()


async def test_a_dry_run_prints_its_plan_and_touches_nothing(tmp_path, capsys):
    world: set[str] = set()
    result = await up(tmp_path, world=world, dry_run=True)
    assert result.outcome == "planned"
    assert world == set()
    assert not (tmp_path / "one").exists()
    assert capsys.readouterr().out == "Make it\n  make it\n1 change in 1 phase; nothing was done\n"


async def test_a_dry_run_with_json_has_events_only(tmp_path, capsys):
    await up(tmp_path, dry_run=True, output="json")
    changes = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["dry_run"] for event in changes if event["kind"] == "change"] == [True]


async def test_a_second_command_on_the_same_cluster_is_told_who_is_at_work(tmp_path):
    world: set[str] = set()
    with (
        exclusive(tmp_path / "one" / "lock", "autarky down", now=0.0),
        pytest.raises(Conflict, match="in use by `autarky down`"),
    ):
        await up(tmp_path, world=world)
    assert world == set()


async def test_a_look_does_not_wait_for_the_lock(tmp_path):
    with exclusive(tmp_path / "one" / "lock", "autarky up", now=0.0):
        assert (await up(tmp_path, dry_run=True)).outcome == "planned"


@pytest.mark.parametrize(("output", "reported"), [("plain", True), ("json", False)])
async def test_an_error_is_told_once(tmp_path, capsys, output, reported):
    with pytest.raises(Unreachable) as caught:
        await up(tmp_path, Fail("it"), output=output)
    assert caught.value.reported is reported
    assert capsys.readouterr().err.count("n1 is silent") == int(reported)


def test_a_failed_operation_is_reported_once_all_the_way(autarky, capsys, tmp_path):
    assert autarky(lambda: run_async(lambda: up(tmp_path, Fail("it")))) == 3
    assert capsys.readouterr().err.count("n1 is silent") == 1
    assert autarky(lambda: run_async(lambda: up(tmp_path, Fail("it"), output="json"))) == 3
    captured = capsys.readouterr()
    assert captured.err == "autarky: n1 is silent\n"
    assert json.loads(captured.out.splitlines()[-1])["detail"].startswith("n1 is silent\n")


def test_verbose_narrates_plainly(autarky, capsys, tmp_path):
    assert autarky(lambda: run_async(lambda: up(tmp_path)), "--verbose") == 0
    assert "[1/1] Make it" in capsys.readouterr().err


# --- operations that are not ---------------------------------------------------------------------------


def test_an_operation_is_named_after_its_command(autarky, capsys):
    async def work() -> None:
        async with operation("make 3 lab hosts") as progress:
            progress.note("n1 runs")

    assert autarky(lambda: run_async(work)) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("try: make 3 lab hosts\n  n1 runs\ntry: done in ")


async def test_an_operation_outside_of_a_command_is_named_after_its_title(capsys):
    async with operation("make 3 lab hosts"):
        assert click.get_current_context(silent=True) is None
    assert capsys.readouterr().err.startswith("make 3 lab hosts: make 3 lab hosts\n")


async def test_an_operation_gives_json_lines_when_asked_to(capsys):
    async with operation("make 3 lab hosts", "json") as progress:
        progress.progress("rootfs", 1, 2)
    kinds = [json.loads(line)["kind"] for line in capsys.readouterr().out.splitlines()]
    assert kinds == ["operation-started", "progress", "operation-ended"]


async def test_an_operation_that_fails_marks_its_error_as_told(capsys):
    with pytest.raises(Unreachable) as caught:
        async with operation("make 3 lab hosts"):
            raise Unreachable("n1 is silent")
    assert caught.value.reported
    assert "n1 is silent" in capsys.readouterr().err
