"""`autarky recover --from FILE`: a cluster on new machines, with the CAs and the data of a backup.

It is `up` with four phases more: what the backup has takes the place of what `up` would make, and is refused where
there is a cluster already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from autarky.control.cluster_file.decide.records import Record
from autarky.engine.phase import Phase
from autarky.phases.context import Context
from autarky.phases.recovery.machines import BeginEtcd, ForgetOldMachines, RefuseLiving, TakeRoots, begun_with
from autarky.phases.recovery.state import FromSnapshot, Recovery
from autarky.workflows.up import PHASES


def phases(recovery: Recovery, roots: Mapping[str, bytes], record: Record, former: int) -> tuple[Phase[Context], ...]:
    """roots: CAs and service account key by their file names. record: the backup's, of the cluster file. former: the id
    of the backup's etcd."""
    revision = recovery.source.revision if isinstance(recovery.source, FromSnapshot) else 0
    begun = begun_with(former, revision)
    after: Mapping[str, Phase[Context]] = {
        "check-hosts": TakeRoots(roots, record, begun),
        "issue-certificates": RefuseLiving(record),
        "prepare-hosts": BeginEtcd(recovery, begun),
        "start-control-plane": ForgetOldMachines(recovery, former),
    }
    return tuple(_with(after))


def _with(after: Mapping[str, Phase[Context]]) -> Iterator[Phase[Context]]:
    for phase in PHASES:
        yield phase
        if phase.name in after:
            yield after[phase.name]
