"""What `autarky etcd recover-quorum` and `autarky restore` have in common: a new etcd from old data."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from autarky.cli.options import confirm
from autarky.cli.session import run_async, run_phases

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from autarky.control.backup.decide.loss import Written
    from autarky.engine.phase import Phase
    from autarky.model.cluster import Cluster
    from autarky.phases.context import Context
    from autarky.phases.recovery.state import Recovery


def recover_quorum(
    file: Path | None, cluster: str | None, source: str | None, output: str, *, dry_run: bool, yes: bool
) -> None:
    from autarky.cli.wiring import load_cluster
    from autarky.phases.recovery.state import FromMember, Recovery

    found = load_cluster(file, cluster)
    if not dry_run:
        confirm(
            f"Make a new etcd for cluster {found.name}, from what is left? Machines that are off must stay off.",
            yes=yes,
        )
    recovery = Recovery(FromMember(source))
    run_async(lambda: recover("etcd recover-quorum", found, recovery, output, dry_run=dry_run))


def abandon(
    name: str, file: Path | None, cluster: str | None, named: str | None, output: str, *, dry_run: bool, yes: bool
) -> None:
    """Whatever kind of recovery it was. named: a node whose word counts, where no control node of the file is left."""
    from autarky.cli.wiring import load_cluster
    from autarky.phases.recovery.state import FromMember, Recovery
    from autarky.workflows.recovery import abandoning

    found = load_cluster(file, cluster)
    if not dry_run:
        confirm(f"Give up the recovery of cluster {found.name}'s etcd that was interrupted?", yes=yes)
    steps = abandoning(Recovery(FromMember(named)))
    run_async(lambda: run_steps(name, found, steps, output, dry_run=dry_run))


async def recover(
    name: str,
    found: Cluster,
    recovery: Recovery,
    output: str,
    *,
    dry_run: bool,
    after_look: Phase[Context] | None = None,
    then: Callable[[], Mapping[str, Written]] | None = None,
) -> None:
    from autarky.workflows.recovery import phases

    await run_steps(name, found, phases(recovery, after_look, then), output, dry_run=dry_run)


async def run_steps(name: str, found: Cluster, steps: Sequence[Phase[Context]], output: str, *, dry_run: bool) -> None:
    from autarky.cli.wiring import build_context

    context = build_context(found)
    try:
        await run_phases(
            name,
            f"etcd of cluster {found.name}",
            steps,
            context,
            output=output,
            dry_run=dry_run,
            directory=context.directory,
            hosts_locked=partial(context.machines.locked, minority=True),
        )
    finally:
        await context.close()
