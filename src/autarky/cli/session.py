"""Between a click command and the engine: the event loop, signals, renderers, the cluster's lock and journal.

Contract: the first SIGINT, SIGTERM or SIGHUP cancels the work, which stops cleanly and can be resumed; the
process exits with 128 + the signal's number. A second signal of the same kind ends it at once, which is
just as safe (rule 5). A dry run takes no lock and writes no journal.

Imports of the engine and the renderers are inside the functions: commands that need none of them, and
`--help`, stay fast.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from autarky.cli.say import say
from autarky.errors import AutarkyError

if TYPE_CHECKING:
    from autarky.engine.events import Event, Subscriber
    from autarky.engine.phase import Phase
    from autarky.engine.runner import Result
    from autarky.ports import Progress
    from autarky.ui.renderer import Renderer

C = TypeVar("C")
T = TypeVar("T")

LOCK = "lock"
JOURNAL = "journal.jsonl"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TICK = 0.125
"""Seconds between two frames of a live display."""


# --- the event loop ----------------------------------------------------------------------------------


def run_async(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run the coroutine that `work` makes, to its end. Raises SystemExit (128 + signal) when it was stopped."""
    received: list[signal.Signals] = []
    try:
        with asyncio.Runner() as runner:
            return runner.run(_cancelled_by_signals(work, received))
    except asyncio.CancelledError:
        if not received:
            raise
        raise SystemExit(128 + received[0]) from None


async def _cancelled_by_signals(work: Callable[[], Coroutine[Any, Any, T]], received: list[signal.Signals]) -> T:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None  # noqa: S101 # for mypy: a coroutine that runs is in a task

    def stop(number: signal.Signals) -> None:
        received.append(number)
        loop.remove_signal_handler(number)
        task.cancel()

    # What was ignored stays ignored: `nohup autarky up` outlives its terminal.
    handled = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in handled:
        loop.add_signal_handler(number, stop, number)
    try:
        return await work()
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


# --- operations --------------------------------------------------------------------------------------


@asynccontextmanager
async def operation(title: str, output: str = "auto") -> AsyncIterator[Progress]:
    """An operation that is not a list of phases: the block gets a Progress that is shown as `output` says.

    `title` says what is done ("get the components of v1.36.4"). Its name is that of the click command.
    """
    from autarky.clock import SystemClock
    from autarky.engine.progress import narrated

    async with (
        _shown(output) as events,
        narrated(_command_name(title), title, events=events, clock=SystemClock()) as progress,
    ):
        yield progress


async def run_phases(
    name: str,
    title: str,
    phases: Sequence[Phase[C]],
    context: C,
    *,
    directory: Path,
    output: str = "auto",
    dry_run: bool = False,
    skip: Collection[str] = (),
    hosts_locked: Callable[[str, Callable[[str], None]], AbstractAsyncContextManager[None]],
) -> Result:
    """Run an operation on the cluster whose directory this is, and show it.

    Not in a dry run: the directory's lock and those on the hosts (ports.Machines.locked) are held, and the journal
    written. A dry run prints its plan on standard output.
    Raises Conflict when another command works on this cluster, and what `run_operation` raises.
    """
    from autarky.clock import SystemClock
    from autarky.engine.journal import Journal
    from autarky.engine.lock import exclusive
    from autarky.engine.runner import run_operation

    clock = SystemClock()
    async with AsyncExitStack() as held:
        journal = None
        if not dry_run:
            held.enter_context(exclusive(directory / LOCK, f"autarky {name}", now=clock.time()))
            await held.enter_async_context(hosts_locked(f"autarky {name}", _tell))
            journal = held.enter_context(Journal(directory / JOURNAL))
        async with _shown(output, dry_run=dry_run) as events:
            return await run_operation(
                name,
                title,
                phases,
                context,
                clock=clock,
                events=events,
                journal=journal,
                dry_run=dry_run,
                skip=skip,
            )


def _tell(sentence: str) -> None:
    say(sentence, err=True)


def _shown(output: str, *, dry_run: bool = False) -> AbstractAsyncContextManager[list[Subscriber]]:
    from autarky.ui.choose import choose

    renderer = choose(output, stdout=sys.stdout, stderr=sys.stderr, environ=os.environ, verbose=_verbose())
    return _Shown(renderer, with_plan=dry_run and output != "json")


@dataclass(slots=True)
class _Shown(AbstractAsyncContextManager["list[Subscriber]"]):
    """Keeps a renderer on the screen for the block, and marks errors whose text it has shown: with the end of the
    operation, which what is refused before its begin does not have."""

    renderer: Renderer
    with_plan: bool
    ticker: asyncio.Task[None] | None = None
    has_ended: bool = False

    async def __aenter__(self) -> list[Subscriber]:
        self.ticker = asyncio.create_task(_tick(self.renderer), name="renderer")
        return [self._handle, *(self._plan() if self.with_plan else [])]

    def _handle(self, event: Event) -> None:
        self.renderer.handle(event)
        self.has_ended |= event.kind == "operation-ended"

    def _plan(self) -> list[Subscriber]:
        from autarky.ui.plan import PlanOutput
        from autarky.ui.stream import LastingStream

        return [PlanOutput(LastingStream(sys.stdout)).handle]

    async def __aexit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if self.ticker is not None:
            self.ticker.cancel()
        self.renderer.close()
        if isinstance(error, AutarkyError):
            error.reported = self.has_ended and self.renderer.tells_errors


async def _tick(renderer: Renderer) -> None:
    while True:
        await asyncio.sleep(TICK)
        renderer.tick()


# --- the command line as it was given ------------------------------------------------------------------


def _command_name(default: str) -> str:
    """ "payload get" for `autarky payload get`."""
    context = click.get_current_context(silent=True)
    return context.command_path.partition(" ")[2] if context is not None and context.parent is not None else default


def _verbose() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.find_root().params.get("verbose"))
