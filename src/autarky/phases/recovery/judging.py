"""Whether the cluster can read the data that a new etcd is to be made of.

Contract: it only looks, before anything is touched. Which etcd the hosts have is asked of them: an edit of the
ControlPlane may have brought a newer one than that of the release, which no file here names. So is which version of
Kubernetes they have: an upgrade through the API changes neither the file nor the hosts' markers, but the standbys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autarky.control.backup.decide.fitting import refuse_another_kubernetes, refuse_newer_etcd
from autarky.control.backup.decide.written_by import STANDBY_POD, of_standby
from autarky.engine.phase import Change, Warn
from autarky.errors import AutarkyError
from autarky.model.versions import Version
from autarky.phases.context import Context
from autarky.phases.recovery.programs import newest_etcd
from autarky.phases.recovery.state import FromKept, FromSnapshot, Recovery, said_by_nodes, seat_of
from autarky.phases.recovery.versions import how_it_begins
from autarky.ports import Host, Progress


@dataclass(frozen=True, slots=True)
class JudgeVersions:
    recovery: Recovery
    name: str = "judge-versions"
    title: str = "Compare the versions"
    timeout: float = 60

    async def plan(self, context: Context) -> Sequence[Change | Warn]:
        recovery, source = self.recovery, self.recovery.source
        if recovery.made:
            return []  # it was judged before
        etcd = kubernetes = ""
        if isinstance(source, FromSnapshot):
            etcd, kubernetes = source.etcd, source.kubernetes
        recovered = recovery.found[recovery.seat].recovered
        if isinstance(source, FromKept) and recovered is not None:
            etcd, kubernetes = recovered.etcd, recovered.kubernetes
        if kubernetes:
            refuse_another_kubernetes(kubernetes, *map(str, await api_servers(context, recovery)))
        if etcd:
            refuse_newer_etcd(etcd, await newest_etcd(context, seat_of(context, recovery)))
        newer = (await how_it_begins(context, recovery)).newer
        return [Warn(newer)] if newer else []

    async def run(self, context: Context, progress: Progress) -> None:
        """It has no changes to make."""


async def api_servers(context: Context, recovery: Recovery) -> list[Version]:
    """The versions that the standbys on the control nodes' disks have, the earliest first: each is made of what has
    served there. Without any, the version of the file."""
    said = await said_by_nodes(context, recovery, _standby_on)
    return sorted(set(said.values())) or [context.cluster.kubernetes_version]


async def _standby_on(host: Host) -> Version | None:
    try:
        return of_standby(await host.read(STANDBY_POD))
    except AutarkyError:
        return None
