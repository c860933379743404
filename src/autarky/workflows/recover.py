"""`autarky recover --from FILE`: a cluster on new machines, with the CAs and the data of a backup.

It is `up` with six phases more: what the backup has takes the place of what `up` would make, and is refused where
there is a cluster already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from autarky.control.backup.decide.encryption import Encryption
from autarky.control.cluster_file.decide.records import Record
from autarky.engine.phase import Phase
from autarky.phases.context import Context
from autarky.phases.recovery.encryption import PutEncryption, TakeEncryption
from autarky.phases.recovery.machines import BeginEtcd, ForgetOldMachines, RefuseLiving, TakeRoots, begun_with
from autarky.phases.recovery.state import FromSnapshot, Recovery
from autarky.workflows.up import PHASES


def phases(
    recovery: Recovery,
    roots: Mapping[str, bytes],
    record: Record,
    former: int,
    encryption: Encryption | None = None,
) -> tuple[Phase[Context], ...]:
    """roots: CAs and service account key by their file names. record: the backup's, of the cluster file. former: the id
    of the backup's etcd. encryption: by which the API server reads what is in it."""
    revision = recovery.source.revision if isinstance(recovery.source, FromSnapshot) else 0
    begun = begun_with(former, revision)
    after: Mapping[str, Sequence[Phase[Context]]] = {
        "check-hosts": (TakeRoots(roots, record, begun), TakeEncryption(encryption)),
        "issue-certificates": (RefuseLiving(record),),
        "prepare-hosts": (PutEncryption(encryption), BeginEtcd(recovery, begun)),
        "start-control-plane": (ForgetOldMachines(recovery, former),),
    }
    return tuple(_with(after))


def _with(after: Mapping[str, Sequence[Phase[Context]]]) -> Iterator[Phase[Context]]:
    for phase in PHASES:
        yield phase
        yield from after.get(phase.name, ())
