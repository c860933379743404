"""`autarky down`: remove a cluster and leave nothing of it on its machines."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autarky import places
from autarky.cli.options import cluster_options, confirm, output_option, yes_option
from autarky.cli.say import of_nodes, say
from autarky.cli.session import run_async, run_phases
from autarky.errors import Unreachable, UserError

if TYPE_CHECKING:
    from autarky.model.cluster import Cluster


@click.command()
@cluster_options
@output_option
@click.option("--purge", is_flag=True, help="Delete etcd data and CA keys instead of moving them aside.")
@click.option("--leave", multiple=True, metavar="NAME", help="Do not clean the host of this node (repeatable).")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@yes_option
def down(
    file: Path | None,
    cluster: str | None,
    output: str,
    purge: bool,
    leave: tuple[str, ...],
    dry_run: bool,
    yes: bool,
) -> None:
    """Remove the cluster from its machines: mounts, namespaces, units, rules. Lab hosts are deleted completely.

    On other hosts, etcd data and CA keys are moved aside with a time stamp unless --purge is given. Lists what will
    be removed and asks for confirmation; without a terminal it needs --yes.

    If a host does not answer, the others are cleaned and the silent one is reported. This machine keeps its state of
    the cluster until another `down` has cleaned that host, or --leave gives up on it.
    """
    left = frozenset(leave)
    run_async(lambda: _down(file, cluster, output, purge=purge, leave=left, dry_run=dry_run, yes=yes))


async def _down(
    file: Path | None,
    name: str | None,
    output: str,
    *,
    purge: bool,
    leave: frozenset[str],
    dry_run: bool,
    yes: bool,
) -> None:
    from autarky.cli.wiring import build_context, load_cluster
    from autarky.phases.members import with_remembered
    from autarky.phases.teardown import doomed
    from autarky.ui.text import sentence
    from autarky.workflows.down import phases

    found = load_cluster(file, name, any_release=True)
    complete = with_remembered(found, places.cluster_dir(found.name))
    refuse_what_cannot_be_left(complete, leave)
    context = build_context(complete, gone=sorted(leave))
    workers = [node.name for node in complete.workers]
    try:
        if not dry_run and not yes:
            goes = "".join(f"\n  - {sentence(line)}" for line in await doomed(context, purge=purge, leave=leave))
            confirm(f"Remove the cluster {context.cluster.name}?{goes or ' Nothing of it exists.'}\n", yes=False)
        await run_phases(
            "down",
            f"cluster {context.cluster.name}",
            phases(purge=purge, leave=leave),
            context,
            output=output,
            dry_run=dry_run,
            directory=context.directory,
            hosts_locked=partial(context.machines.locked, passes_workers=workers),
        )
    except Unreachable as error:
        if error.reported:
            raise
        raise Unreachable(f"{error}\n{_fix(())}") from error  # too few hosts answer to take the locks
    finally:
        await context.close()
    tell_of_silent(context.absent, found.name, dry_run=dry_run)
    if output != "json" and not dry_run:
        click.echo(f"cluster {context.cluster.name} is gone")


def refuse_what_cannot_be_left(cluster: Cluster, leave: Collection[str]) -> None:
    """UserError for an unknown node, and for a test host, which is removed with its lab."""
    hosts = {node.name: node.host for node in cluster.nodes}
    for name in sorted(leave):
        if name not in hosts:
            raise UserError(f"there is no node {name}", fix=f"the nodes are: {', '.join(hosts)}")
        if hosts[name].driver == "lab":
            raise UserError(f"node {name} is a test host, which is removed with its lab", fix="leave out --leave")


def tell_of_silent(absent: Mapping[str, str], cluster: str, *, dry_run: bool) -> None:
    """Say which hosts were not cleaned. After a run that is an error, since the cluster is not gone."""
    silent = of_nodes(absent)
    if silent and dry_run:
        say(f"planned without the hosts that do not answer: {silent}", err=True)
    elif silent:
        raise Unreachable(
            f"the rest of the cluster {cluster} is gone, but not all hosts answer: {silent}\n"
            f"{_fix(absent)}; until then {places.cluster_dir(cluster)} is kept, by which they are recognised"
        )


def _fix(names: Collection[str]) -> str:
    leave = " ".join(f"--leave {name}" for name in names) or "--leave NAME"
    return f"  fix: run `autarky down` again when they do, or `autarky down {leave}` to leave them as they are"
