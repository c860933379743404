"""The live display: the list of phases, redrawn in place, with what the running phase waits for.

Contract: `draw` turns a board into text and nothing else; the renderer keeps it on the screen. The last
frame stays when the operation ends. Quoted text is shown as it is: no markup is interpreted.

Dangers: rich is imported here and nowhere else, since it costs more than the rest of a short command. The
display is redrawn from the event loop (`tick`), not by a thread: what it shows is never half an event.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, cast

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from autarky.engine.events import Drifted, Event, Noted, OperationEnded, Warned
from autarky.ui.board import Board, PhaseLine, Wait, Work
from autarky.ui.stream import LastingStream
from autarky.ui.text import count, drift, duration, one_line, operation_end, percent, printable, sentence

BAR = 24
"""Characters of a progress bar."""
FRAMES_PER_SECOND = 8
WORD = len("interrupted")
"""Width of the column that says how a phase ended."""
STYLES = {"changed": "green", "planned": "cyan", "failed": "bold red", "interrupted": "yellow", "skipped": "dim"}


@dataclass(frozen=True, slots=True)
class Marks:
    """One character per state of a phase, and the frames of the running one."""

    done: str
    failed: str
    open: str
    full: str
    empty: str
    frames: str

    def of(self, line: PhaseLine, now: float) -> str:
        if line.running:
            return self.frames[int(now * FRAMES_PER_SECOND) % len(self.frames)]
        if line.outcome in ("failed", "interrupted"):
            return self.failed
        return self.done if line.outcome in ("changed", "unchanged", "planned") else self.open


UNICODE = Marks("✓", "✗", "·", "━", "╌", "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
ASCII = Marks("+", "x", ".", "=", "-", "|/-\\")


def make_console(stream: LastingStream) -> Console:
    """A console on the terminal behind `stream`; rich detects its size and colours (NO_COLOR included)."""
    return Console(file=cast(IO[str], stream), force_terminal=True, highlight=False)


class TtyRenderer:
    """Implements Renderer."""

    def __init__(self, console: Console, *, now: Callable[[], float] = time.time) -> None:
        self._console = console
        self._now = now
        self._marks = UNICODE if console.encoding.startswith("utf") else ASCII
        self._board = Board()
        self._final = False
        self._live = Live(
            console=console,
            auto_refresh=False,
            redirect_stdout=False,  # results may go to a different place than the narration
            get_renderable=self._picture,
        )

    @property
    def tells_errors(self) -> bool:
        stream = self._console.file
        return not isinstance(stream, LastingStream) or stream.alive

    def handle(self, event: Event) -> None:
        self._board.follow(event)
        if isinstance(event, Noted) and not self._board.current:
            self._console.print(Text(sentence(event.sentence)))
        if isinstance(event, Drifted):
            self._console.print(Text(sentence(drift(event))))
        if isinstance(event, Warned):
            self._console.print(Text(f"warning: {sentence(event.sentence)}", "yellow"))
        if isinstance(event, OperationEnded):
            self.close()
        elif not self._live.is_started:
            self._live.start(refresh=True)

    def tick(self) -> None:
        if self._live.is_started:
            self._live.refresh()

    def close(self) -> None:
        self._final = True
        self._live.stop()  # draws the last frame, and restores the cursor

    def _picture(self) -> Group:
        height = None if self._final else self._console.size.height - 1
        return Group(*draw(self._board, self._now(), self._marks, height=height))


def draw(board: Board, now: float, marks: Marks, *, height: int | None) -> list[Text]:
    """The lines of the display; `height` is the most there may be, or None when all must be shown."""
    head, busy, ending = _headline(board, now), _busy(board, now, marks), _ending(board)
    width = max((len(line.title) for line in board.phases.values()), default=0)
    rows = [(line, _phase(line, now, marks, width)) for line in board.phases.values()]
    before = [row for line, row in rows if line.outcome]
    running = [row for line, row in rows if line.running] + busy
    after = [row for line, row in rows if line.started is None]
    if height is not None and 1 + len(before) + len(running) + len(after) > height:
        before, after = _fold(before, after, height - len(running) - 3, marks)
    return [head, *before, *running, *after, *ending]


def _fold(before: list[Text], after: list[Text], room: int, marks: Marks) -> tuple[list[Text], list[Text]]:
    """As many phases around the running one as there is room for; one line for the rest on each side."""
    coming = max(0, min(len(after), room // 2))
    ended = max(0, min(len(before), room - coming))
    folded = len(before) - ended
    if folded:
        before = [Text(f"{marks.done} {count(folded, 'phase')} before", "dim"), *before[folded:]]
    if coming < len(after):
        after = [*after[:coming], Text(f"{marks.open} {count(len(after) - coming, 'phase')} to come", "dim")]
    return before, after


def _headline(board: Board, now: float) -> Text:
    line = _line((board.operation, "bold"), f": {board.title}  ")
    if board.end is not None:
        return line.append(operation_end(board.end), STYLES.get(board.end.outcome, ""))
    return line.append(duration(now - board.started), "dim")


def _phase(line: PhaseLine, now: float, marks: Marks, width: int) -> Text:
    mark, style = marks.of(line, now), STYLES.get(line.outcome, "")
    if line.started is None:
        return _line((f"{mark} {line.title}", "dim"))
    if line.running:
        return _line((f"{mark} ", "cyan"), (f"{line.title:<{width}}  ", "bold"), duration(now - line.started))
    row = _line((f"{mark} ", style), f"{line.title:<{width}}  ", (f"{line.outcome:<{WORD}}", style))
    if line.outcome != "skipped":
        row.append(f"  {duration(line.seconds)}", "dim")
    if line.changes:
        row.append(f"  {count(line.changes, 'change')}", "dim")
    return row


def _busy(board: Board, now: float, marks: Marks) -> list[Text]:
    """What the running phase did last, how far its work is, and what it waits for."""
    rows = [_line((f"    {sentence}", "dim")) for sentence in board.recent]
    rows += [_work(what, work, marks) for what, work in board.works.items()]
    for what, wait in board.waits.items():
        rows += _wait(what, wait, now)
    return rows


def _work(what: str, work: Work, marks: Marks) -> Text:
    done = round(BAR * min(1.0, work.done / work.total)) if work.total > 0 else 0
    bar = (marks.full * done, "cyan"), (marks.empty * (BAR - done), "dim")
    return _line("    ", *bar, f" {percent(work.done, work.total):>5}  {one_line(what)}")


def _wait(what: str, wait: Wait, now: float) -> list[Text]:
    left = max(0.0, wait.until - now)
    return [
        _line(f"    waiting: {one_line(what)} ", (f"({left:.0f} s left)", "dim")),
        _line((f"      {wait.last}", "yellow")),
    ]


def _ending(board: Board) -> list[Text]:
    """The complete text of the error, with its fix."""
    if board.end is None or not board.end.detail:
        return []
    return [Text(printable(board.end.detail), STYLES.get(board.end.outcome, ""))]


def _line(*parts: str | tuple[str, str]) -> Text:
    """One line that is cut at the edge of the terminal, not wrapped."""
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")
