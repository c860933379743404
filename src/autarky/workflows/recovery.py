"""`autarky etcd recover-quorum` and `autarky restore`: a new etcd from old data."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autarky.control.backup.decide.loss import Written
from autarky.engine.phase import Phase
from autarky.phases.context import Context
from autarky.phases.recovery.abandoning import AbandonRecovery
from autarky.phases.recovery.again import AwaitQuorum, ReadLogsAgain
from autarky.phases.recovery.asking_again import AskAgain
from autarky.phases.recovery.decrypting import JudgeEncryption
from autarky.phases.recovery.fencing import FenceEtcd
from autarky.phases.recovery.joining import ReturnMembers
from autarky.phases.recovery.judging import JudgeVersions
from autarky.phases.recovery.looking import LookForData
from autarky.phases.recovery.making import MakeData
from autarky.phases.recovery.removed import ForgetRemoved, NoteMembers
from autarky.phases.recovery.starting import AwaitApi, StartEtcd
from autarky.phases.recovery.state import FromMember, Recovery


def abandoning(recovery: Recovery) -> tuple[Phase[Context], ...]:
    """Of one that was cut."""
    return (AbandonRecovery(recovery),)


def phases(
    recovery: Recovery,
    after_look: Phase[Context] | None = None,
    then: Callable[[], Mapping[str, Written]] | None = None,
) -> tuple[Phase[Context], ...]:
    """A member's data is at rest only when it is fenced. Other data is there before, and etcd serves until it is
    replaced: until then it says who is in the cluster. after_look: what else looks before anything is done. then: the
    keys of a backup."""
    fence, make, note = FenceEtcd(recovery), MakeData(recovery), NoteMembers(recovery)
    of_member = (AwaitQuorum(recovery), fence, ReadLogsAgain(recovery), make, note)
    first = of_member if isinstance(recovery.source, FromMember) else (make, note, fence)
    return (
        LookForData(recovery),
        JudgeVersions(recovery),
        JudgeEncryption(recovery),
        *([] if after_look is None else [after_look]),
        *first,
        StartEtcd(recovery),
        AwaitApi(recovery),
        ForgetRemoved(recovery, then),
        ReturnMembers(recovery),
        AskAgain(recovery),
    )
