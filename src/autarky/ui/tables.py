"""All tables of the command line: aligned columns only, so that people and programs can read them.

Contract: the content of a cell stays on its line, and is cut to a readable length. A row is one line, however narrow
the terminal.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from autarky.ui.text import LONGEST_CELL, cut, one_line

_BETWEEN = 2


def columns(rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> list[str]:
    """A line for each row; there is at least the row of headings. right: the columns of numbers, from 0.

    Rich measures the cells. Its Table is not used: it needs a second for 600 rows, a large cluster's `status`.
    """
    from rich.cells import cell_len  # late: not every command has a table

    shown = [[cut(one_line(cell), LONGEST_CELL) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*shown, strict=True)]
    lines = []
    for row in shown:
        cells = []
        for number, (cell, width) in enumerate(zip(row, widths, strict=True)):
            blank = " " * (width - cell_len(cell))
            cells.append(f"{blank}{cell}" if number in right else f"{cell}{blank}")
        lines.append((" " * _BETWEEN).join(cells).rstrip())
    return lines
