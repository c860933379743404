"""`autarky up` and `autarky plan`: bring the cluster up, or say what that would do."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autarky.cli.options import cluster_options, output_option
from autarky.cli.say import of_nodes, say
from autarky.cli.session import run_async, run_phases
from autarky.errors import Unreachable, UserError

if TYPE_CHECKING:
    from autarky.engine.phase import Phase
    from autarky.model.cluster import Cluster
    from autarky.model.own_add_ons import OwnAddOns
    from autarky.phases.context import Context

_WHEN_BACK = (
    "  fix: run `autarky up` again when that is fixed, or `autarky node remove NAME` (`--dead`: its machine is gone)"
)


class IgnoreOption(click.Option):
    """Its help names the checks. They are imported for that only, since it takes a third of a second."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:  # as click has it
        named = ", ".join(_checks())
        self.help = f"Only warn if this preflight check fails (repeatable; see docs/cluster-file.md): {named}."
        return super().get_help_record(ctx)


def _checks() -> Iterable[str]:
    from autarky.control.hosts.decide.preflight import CHECKS

    return CHECKS


def _known_checks(_context: click.Context, _parameter: click.Parameter, names: Sequence[str]) -> Sequence[str]:
    """Refuse others before anything is done: hosts may be checked much later, or not at all."""
    if not names:
        return names
    from autarky.control.hosts.decide.preflight import CHECKS, unknown_check

    for name in names:
        if name not in CHECKS:
            found = unknown_check(name)
            raise UserError(found.what, fix=found.remedy)
    return names


def _matching_checks(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in _checks() if name.startswith(incomplete)]


ignore_option = click.option(
    "--ignore",
    cls=IgnoreOption,
    multiple=True,
    metavar="CHECK",
    callback=_known_checks,
    shell_complete=_matching_checks,
)

skip_option = click.option(
    "--skip",
    multiple=True,
    metavar="PHASE",
    help="Skip this phase, by its name in docs/architecture.md or `plan -o json` (repeatable).",
)

take_ownership_option = click.option(
    "--take-ownership", is_flag=True, help="Overwrite changes that others made to the objects autarky applied."
)


@click.command()
@cluster_options
@output_option
@ignore_option
@skip_option
@take_ownership_option
@click.option("--dry-run", is_flag=True, help="Only show what would be done, as `autarky plan` does.")
def up(
    file: Path | None,
    cluster: str | None,
    output: str,
    ignore: Sequence[str],
    skip: Sequence[str],
    take_ownership: bool,
    dry_run: bool,
) -> None:
    """Bring a cluster up, from scratch or from wherever an earlier run stopped.

    Without a file or a known cluster, it brings up a single self-hosted node on a test host on this machine.
    It is safe to run at any time: it changes only what differs from the file. A field that others have edited
    keeps their value until the file gives it a new one.
    """
    wanted = _wanted(file, cluster)
    by_file = file is not None
    own = _own_add_ons(file)
    run_async(
        lambda: bring_up(
            wanted, output, ignore, skip, dry_run=dry_run, take_ownership=take_ownership, by_file=by_file, own=own
        )
    )


@click.command()
@cluster_options
@output_option
@ignore_option
@skip_option
@take_ownership_option
def plan(
    file: Path | None,
    cluster: str | None,
    output: str,
    ignore: Sequence[str],
    skip: Sequence[str],
    take_ownership: bool,
) -> None:
    """Show what `autarky up` would change, and which edits by others it would keep. Changes nothing."""
    wanted = _wanted(file, cluster)
    by_file = file is not None
    own = _own_add_ons(file)
    run_async(
        lambda: bring_up(
            wanted, output, ignore, skip, dry_run=True, take_ownership=take_ownership, by_file=by_file, own=own
        )
    )


def _wanted(file: Path | None, name: str | None) -> Cluster:
    """The cluster of the file, or the known one; by default one node on a test host."""
    from autarky.cli.wiring import known_clusters, load_cluster
    from autarky.config import default_cluster
    from autarky.payload import default_version, known_versions

    if file is None and name is None and not known_clusters():
        return default_cluster(default_version=default_version(), known_versions=known_versions())
    return load_cluster(file, name)


def _own_add_ons(file: Path | None) -> OwnAddOns | None:
    """What is beside the file; None where none is named, or it comes from standard input: then they stay."""
    from autarky.cli.wiring import STANDARD_INPUT
    from autarky.config.own_add_ons import read
    from autarky.model.own_add_ons import DIRECTORY

    return None if file is None or file == STANDARD_INPUT else read(file.absolute().parent / DIRECTORY)


async def bring_up(
    wanted: Cluster,
    output: str,
    ignore: Sequence[str],
    skip: Sequence[str],
    *,
    dry_run: bool,
    take_ownership: bool = False,
    by_file: bool,
    own: OwnAddOns | None = None,
    phases: Sequence[Phase[Context]] | None = None,
    command: str = "recover",
    initial_member: str | None = None,
    moves_etcd: bool = False,
    tell_absent: bool = True,
) -> Mapping[str, str]:
    """Run the workflow for this cluster, or only plan it. by_file: the cluster comes from a FILE that the user named,
    which replaces whatever was applied before, and not from the file that is kept here. own: the add-ons beside it.
    phases: others than those of `up`, of this command; initial_member: the only control node that the cluster begins
    with, where not all are. Returns the nodes that were left out, and why; tell_absent: raises Unreachable for them."""
    from autarky.cli.wiring import build_context, refuse_unfit_machine
    from autarky.config import dump
    from autarky.phases import kept_file
    from autarky.phases.members import remembered
    from autarky.render.values import pretty_json
    from autarky.workflows.up import PHASES

    if not dry_run:
        await refuse_unfit_machine(wanted)
    context = build_context(wanted, demoted=ignore, take_ownership=take_ownership)
    context.initial_member = initial_member
    context.upgrades = phases is None
    context.own_add_ons = own
    context.moves_etcd = moves_etcd
    context.document = dump(wanted)
    context.file_content = pretty_json(context.document)
    context.known = None if by_file else kept_file.known(context)
    try:
        result = await run_phases(
            ("plan" if dry_run else "up") if phases is None else command,
            f"cluster {wanted.name}",
            phases or PHASES,
            context,
            output=output,
            dry_run=dry_run,
            skip=skip,
            directory=context.directory,
            # What was begun must be ended with the hosts that are left: it may be what keeps the API away.
            hosts_locked=partial(
                context.machines.locked,
                minority=moves_etcd,
                # A new worker is not passed over: another cluster may be taking that machine just now.
                passes_workers=remembered(context.directory),
            ),
        )
    finally:
        await context.close()
    if not dry_run and not skip and not (moves_etcd and not context.all_seen):
        kept_file.settle(context.directory)
    if tell_absent:
        tell_of_absent(context.absent, dry_run=dry_run)
    if output != "json" and not dry_run:
        click.echo(_how_to_use(wanted.name, context.directory, changed=result.outcome != "unchanged"))
    return context.absent


def tell_of_absent(absent: Mapping[str, str], *, dry_run: bool) -> None:
    """Say which nodes were left out. After a run that is an error, since the cluster is not as wanted."""
    left_out = of_nodes(absent)
    if left_out and dry_run:
        say(f"planned without the nodes that do not answer: {left_out}", err=True)
    elif left_out:
        raise Unreachable(f"everything else is as wanted, but nodes were left out: {left_out}\n{_WHEN_BACK}")


def _how_to_use(name: str, directory: Path, *, changed: bool) -> str:
    head = f"cluster {name} is up" if changed else f"cluster {name} is as wanted: nothing was changed"
    program = _program()
    lines = [
        (f"{program} status", "layers, slots and health"),
        (f"{program} kubectl get pods -A", "the payload's kubectl on this cluster"),
        (f"{program} bench probe --duration 30s", "measure what a client notices while you try to break it"),
        (f"{program} down", "remove it again"),
        (f"export KUBECONFIG={directory / 'kubeconfig'}", "for a kubectl of your own"),
    ]
    width = max(len(command) for command, _ in lines[:-1])
    return "\n".join([head, "", *(f"  {command:<{width}}   {what}" for command, what in lines)])


def _program() -> str:
    """What the user may type: the name where a shell finds it, else the path that was called now."""
    return "autarky" if shutil.which("autarky") else sys.argv[0]
