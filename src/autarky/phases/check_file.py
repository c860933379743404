"""The cluster file against the cluster that is there: what cannot become of it is refused before anything is written,
here, in the cluster's directory, and on the hosts.

Contract: looks at hosts and API, as far as they answer. Hosts that do not run yet are looked at when they do, by
`hosts.CheckHosts`, which refuses the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from autarky.engine.phase import Change
from autarky.phases import hosts, kept_file
from autarky.phases.context import Context, external_etcd_files
from autarky.ports import Progress


@dataclass(frozen=True, slots=True)
class CheckFile:
    """Refuses what the file says and the cluster cannot become, then keeps the file."""

    name: str = "check-file"
    title: str = "Check the file against the cluster"
    timeout: float = 60

    async def plan(self, context: Context) -> Sequence[Change]:
        refuse_unusable_credentials(context)
        await hosts.look(context)
        context.file_waits = bool(context.absent)
        return kept_file.changes(context, all_seen=not context.absent)

    async def run(self, context: Context, progress: Progress) -> None:
        kept_file.keep(context, all_seen=not context.absent)


def refuse_unusable_credentials(context: Context) -> None:
    """UserError where the user's own CAs, those that are kept, or an external etcd's certificates are of no use."""
    external = context.cluster.external_etcd
    external_etcd_files(context.cluster)
    context.pki.refuse_unusable(
        context.cluster.certificates, datetime.now(UTC), etcd=external is None or external.lab_host is not None
    )
