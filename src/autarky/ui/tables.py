"""All tables of the command line: aligned columns only, so that people and programs can read them.

Contract: the content of a cell stays on its line, and is cut to a readable length. A row is one line, however narrow
the terminal.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Sequence

from autarky.ui.text import LONGEST_CELL, cut, one_line

_BETWEEN = 2


def columns(rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> list[str]:
    """A line for each row; there is at least the row of headings. right: the columns of numbers, from 0."""
    from rich.console import Console  # late: it takes a tenth of a second, and not every command has a table
    from rich.table import Table
    from rich.text import Text

    shown = [[Text(cut(one_line(cell), LONGEST_CELL)) for cell in row] for row in rows]
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, _BETWEEN, 0, 0))
    for number in range(len(rows[0])):
        table.add_column(no_wrap=True, overflow="crop", justify="right" if number in right else "left")
    for row in shown:
        table.add_row(*row)
    widest = [max(cell.cell_len for cell in column) + _BETWEEN for column in zip(*shown, strict=True)]
    text = io.StringIO()
    console = Console(file=text, width=max(sum(widest), 1), height=1, force_terminal=False, color_system=None)
    console.print(table)
    return [line.rstrip() for line in text.getvalue().splitlines()]
