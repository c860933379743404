"""`autarky pivot` and `autarky unpivot`: change at run time which levels are hosted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from autarky.cli.options import cluster_options, dry_run_option, output_option
from autarky.cli.session import run_async
from autarky.model.levels import TEXTS, HostedLevels


@click.command()
@cluster_options
@click.option("--to", "levels", type=click.Choice(TEXTS), required=True, help="The levels to host from now on.")
@output_option
@dry_run_option
def pivot(file: Path | None, cluster: str | None, levels: str, output: str, dry_run: bool) -> None:
    """Move levels between hosted pods and static pods while the cluster keeps serving.

    The same as `autarky up` with a different `spec.selfHosted`. If you keep a cluster file, change it too:
    the next `up -f FILE` goes back to what it says.
    """
    _change(file, cluster, levels, output, dry_run=dry_run)


@click.command()
@cluster_options
@output_option
@dry_run_option
def unpivot(file: Path | None, cluster: str | None, output: str, dry_run: bool) -> None:
    """Move all of the control plane back to static pods: `pivot --to 4`."""
    _change(file, cluster, "4", output, dry_run=dry_run)


def _change(file: Path | None, cluster: str | None, levels: str, output: str, *, dry_run: bool) -> None:
    from autarky.cli.up import bring_up
    from autarky.cli.wiring import load_cluster

    found = load_cluster(file, cluster)
    asked = HostedLevels.parse(levels)
    wanted = replace(found, self_hosted=asked.lowest, hosts_kubelet=asked.kubelet)
    run_async(lambda: bring_up(wanted, output, (), (), dry_run=dry_run, by_file=file is not None))
    if file is not None and found.self_hosted_text != wanted.self_hosted_text:
        click.echo(
            f"{file} still says selfHosted: {found.self_hosted_text!r}; the next `up -f` goes back to it", err=True
        )
