"""`autarky down`: take a cluster away, leaving nothing of it on its machines."""

from __future__ import annotations

from pathlib import Path

import click

from autarky import places
from autarky.cli.options import cluster_options, confirm, output_option, yes_option
from autarky.cli.session import run_async, run_phases


@click.command()
@cluster_options
@output_option
@click.option("--purge", is_flag=True, help="Also delete etcd data and CA keys, on hosts that are not lab hosts.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@yes_option
def down(file: Path | None, cluster: str | None, output: str, purge: bool, dry_run: bool, yes: bool) -> None:
    """Take the cluster away: mounts, namespaces, units, rules. Lab hosts are removed whole.

    On hosts that are not lab hosts, etcd data and CA keys are moved aside with a time stamp unless
    --purge is given. Says what goes, and asks; without a terminal it needs --yes.
    """
    run_async(lambda: _down(file, cluster, output, purge=purge, dry_run=dry_run, yes=yes))


async def _down(file: Path | None, name: str | None, output: str, *, purge: bool, dry_run: bool, yes: bool) -> None:
    from autarky.cli.wiring import build_context, load_cluster
    from autarky.phases.members import with_remembered
    from autarky.phases.teardown import doomed
    from autarky.workflows.down import phases

    found = load_cluster(file, name)
    context = build_context(with_remembered(found, places.cluster_dir(found.name)))
    try:
        if not dry_run and not yes:
            goes = "".join(f"\n  - {line}" for line in await doomed(context, purge=purge))
            confirm(f"Take the cluster {context.cluster.name} away?{goes or ' Nothing of it is there.'}\n", yes=False)
        await run_phases(
            "down",
            f"cluster {context.cluster.name}",
            phases(purge=purge),
            context,
            output=output,
            dry_run=dry_run,
            directory=context.directory,
            hosts_locked=context.machines.locked,
        )
    finally:
        await context.close()
    if output != "json" and not dry_run:
        click.echo(f"cluster {context.cluster.name} is gone")
