"""Which renderer shows the events of an operation: by the user's option, else by the kind of standard error.

`auto` draws on a terminal and writes plain lines everywhere else. A terminal that cannot draw (TERM=dumb or
unset) and a CI system (CI is set) get plain lines. NO_COLOR takes the colours away, not the drawing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TextIO

from autarky.ui.jsonl import JsonLinesRenderer
from autarky.ui.plain import PlainRenderer
from autarky.ui.renderer import Renderer
from autarky.ui.stream import LastingStream

Output = Literal["auto", "plain", "json"]


def choose(
    output: str, *, stdout: TextIO | None, stderr: TextIO | None, environ: Mapping[str, str], verbose: bool = False
) -> Renderer:
    """`output` is one of `Output`. JSON Lines go to `stdout`, narration for people to `stderr`.

    `verbose` means plain lines with every event: log lines and a drawing would spoil each other.
    """
    if output == "json":
        return JsonLinesRenderer(LastingStream(stdout))
    stream = LastingStream(stderr)
    if output == "auto" and not verbose and _can_draw(stream, environ):
        from autarky.ui.tty import TtyRenderer, make_console

        return TtyRenderer(make_console(stream))
    return PlainRenderer(stream, verbose)


def _can_draw(stream: LastingStream, environ: Mapping[str, str]) -> bool:
    in_ci = environ.get("CI", "").lower() not in ("", "0", "false")
    return stream.isatty() and not in_ci and environ.get("TERM", "") not in ("", "dumb", "unknown")
