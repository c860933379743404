"""`autarky etcd recover-quorum`: a new etcd from the data of a member that is left."""

from __future__ import annotations

from autarky.engine.phase import Phase
from autarky.phases.context import Context
from autarky.phases.recovery.fencing import FenceEtcd
from autarky.phases.recovery.looking import LookForData
from autarky.phases.recovery.making import MakeData
from autarky.phases.recovery.starting import AwaitApi, AwaitMembers, StartEtcd
from autarky.phases.recovery.state import Recovery


def phases(recovery: Recovery) -> tuple[Phase[Context], ...]:
    return (
        LookForData(recovery),
        FenceEtcd(recovery),
        MakeData(recovery),
        StartEtcd(recovery),
        AwaitApi(recovery),
        AwaitMembers(recovery),
    )
