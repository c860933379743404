"""`autarky version`."""

from __future__ import annotations

import click

from autarky import __version__


@click.command()
def version() -> None:
    """Print the version of autarky."""
    click.echo(f"autarky {__version__}")
