"""`autarky etcd recover-quorum` and `autarky restore`: a new etcd from old data."""

from __future__ import annotations

from autarky.engine.phase import Phase
from autarky.phases.context import Context
from autarky.phases.recovery.fencing import FenceEtcd
from autarky.phases.recovery.joining import ReturnMembers
from autarky.phases.recovery.looking import LookForData
from autarky.phases.recovery.making import MakeData
from autarky.phases.recovery.starting import AwaitApi, StartEtcd
from autarky.phases.recovery.state import FromMember, Recovery


def phases(recovery: Recovery, after_look: Phase[Context] | None = None) -> tuple[Phase[Context], ...]:
    """A member's data is at rest only when it is fenced. Other data is there before, and etcd serves until it is
    replaced. after_look: what else looks before anything is done."""
    fence, make = FenceEtcd(recovery), MakeData(recovery)
    first = (fence, make) if isinstance(recovery.source, FromMember) else (make, fence)
    return (
        LookForData(recovery),
        *([] if after_look is None else [after_look]),
        *first,
        StartEtcd(recovery),
        AwaitApi(recovery),
        ReturnMembers(recovery),
    )
