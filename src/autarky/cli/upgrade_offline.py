"""`autarky upgrade rollback` where no API server serves: by the standbys on the control nodes' disks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from autarky.cli.options import confirm
from autarky.cli.say import say
from autarky.cli.session import operation, run_phases

if TYPE_CHECKING:
    from autarky.phases.context import Context


async def roll_back(context: Context, output: str, *, yes: bool, dry_run: bool, accepts_kubelets: bool) -> None:
    """Shows what every control node has, asks, and goes back. Nothing is changed where the API answers after all."""
    from autarky.phases.upgrade_offline import GoingBack, look_and_decide, phases, rows
    from autarky.ui.tables import columns

    going = GoingBack(accepts_kubelets)
    async with operation("look at the control nodes, since the API does not answer", output):
        decision = await look_and_decide(context, going)
    say("\n".join(columns(rows(going))), err=True)
    if not dry_run:
        confirm(f"Take the API servers back to {decision.to}, and then the control plane?", yes=yes)
    await run_phases(
        "upgrade rollback",
        f"the control plane of cluster {context.cluster.name} back to {decision.to}, without the API",
        phases(going),
        context,
        directory=context.directory,
        output=output,
        dry_run=dry_run,
        hosts_locked=partial(context.machines.locked, minority=True),
    )
    if not dry_run:
        say(f"the API answers, and the control plane goes back to {decision.to}: `autarky upgrade status --watch`")
