"""Options that several commands share, so that they look and complete the same everywhere."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from autarky.errors import UserError

F = TypeVar("F", bound=Callable[..., Any])
_DURATION = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>|ms|s|m|h)")
_UNITS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def cluster_options(command: F) -> F:
    """-f FILE and --cluster NAME; the command gets `file: Path | None` and `cluster: str | None`.

    With neither, the command uses the only cluster there is.
    """
    return file_option(cluster_option(command))


def _not_both(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Refuse the second of -f and --cluster. Options are handled in the order in which they were given."""
    other = {"file": "cluster", "cluster": "file"}[str(parameter.name)]
    if value is not None and context.params.get(other) is not None:
        raise click.UsageError("-f FILE and --cluster NAME exclude each other.", context)
    return value


def _known_clusters(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from autarky.cli.wiring import known_clusters

    return [name for name in known_clusters() if name.startswith(incomplete)]


file_option = click.option(
    "-f",
    "--file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    callback=_not_both,
    help="The cluster file; - is standard input.",
)
cluster_option = click.option(
    "--cluster",
    metavar="NAME",
    callback=_not_both,
    shell_complete=_known_clusters,
    help="The name of a known cluster; default: the only one there is.",
)
output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["auto", "plain", "json"]),
    default="auto",
    show_default=True,
    help="json: events as JSON Lines on standard output; plain: one line per event.",
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would be done.")
abandon_option = click.option(
    "--abandon",
    is_flag=True,
    help="Give up a recovery that was interrupted, while its data is not in its place: what it has fenced runs again.",
)
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")

HOST_FORMS = (
    "lab (a test host named as the node), lab:NAME (a test host of that name), local (this machine) or"
    " ssh://[USER@]HOST[:PORT]"
)
"""What `--host` takes, as `config.syntax` has it."""


class Duration(click.ParamType[float]):
    """A length of time: "30s", "5m", "1h", "250ms"; a plain number is seconds."""

    name = "duration"

    def __init__(self, *, or_none: bool = False) -> None:
        """or_none: 0 is a length of time, too."""
        self.or_none = or_none

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # as click has it
        if isinstance(value, float):
            return value
        match = _DURATION.fullmatch(str(value))
        seconds = float(match["number"]) * _UNITS[match["unit"]] if match else 0.0
        if seconds <= 0 and not (self.or_none and match):
            self.fail(f"{value!r} is not a length of time such as 30s, 5m or 1h", param, ctx)
        return seconds


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something that cannot be undone; `yes` answers it. Raises UserError without a terminal."""
    if yes:
        return
    from autarky.ui.text import printable

    if not sys.stdin.isatty():
        raise UserError(f"cannot ask without a terminal: {question}", fix="say --yes")
    click.confirm(printable(question), abort=True, err=True)
