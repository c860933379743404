"""`autarky etcd migrate`: etcd moves into the cluster, or out of it, while the API serves.

It is `up` with the file that has etcd in the new place, and with phases more: before anything is rolled the members of
the new place join, and after everything is rolled those of the old place leave. Where members cannot join, etcd is
copied before, with a pause; the other control nodes join the copy. A copy that was cut before its decision is undone
first, whichever way etcd is to go now.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autarky.engine.phase import Phase
from autarky.phases.context import Context
from autarky.phases.migration.copying import CopyEtcd
from autarky.phases.migration.inwards import JoinInside, LeaveOutside
from autarky.phases.migration.judging import JudgeMigration
from autarky.phases.migration.looking import Migration
from autarky.phases.migration.opening import FinishCopy
from autarky.phases.migration.outwards import JoinOutside, LeaveInside
from autarky.phases.migration.returning import ReturnEtcd
from autarky.workflows.up import PHASES

JOINS_AFTER = "issue-certificates"
LEAVES_AFTER = "retire-hosted"
"""The API servers are rolled then; what comes later waits for all nodes, and a worker must not be able to keep members
in both places."""
_NOT_OUTWARDS = "prepare-external-etcd"
"""It would start another etcd there."""


def inwards(migration: Migration, *, copies: bool = False) -> tuple[Phase[Context], ...]:
    copy: tuple[Phase[Context], ...] = (CopyEtcd(),) if copies else ()
    finish: tuple[Phase[Context], ...] = (FinishCopy(migration),) if copies else ()
    joining, leaving = (*copy, JoinInside(migration)), (*finish, LeaveOutside(migration))
    return tuple(_with(JudgeMigration(copies=copies), joining, leaving))


def outwards() -> tuple[Phase[Context], ...]:
    found = _with(JudgeMigration(), (JoinOutside(),), (LeaveInside(),))
    return tuple(phase for phase in found if phase.name != _NOT_OUTWARDS)


def _with(
    judge: Phase[Context], joining: Sequence[Phase[Context]], leaving: Sequence[Phase[Context]]
) -> Iterator[Phase[Context]]:
    yield from (ReturnEtcd(), judge)
    after = {JOINS_AFTER: joining, LEAVES_AFTER: leaving}
    for phase in PHASES:
        yield phase
        yield from after.get(phase.name, ())
