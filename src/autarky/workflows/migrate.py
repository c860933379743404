"""`autarky etcd migrate`: etcd moves into the cluster, or out of it, while the API serves.

It is `up` with the file that has etcd in the new place, and with phases more: before anything is rolled the members of
the new place join, and after everything is rolled those of the old place leave.
"""

from __future__ import annotations

from collections.abc import Iterator

from autarky.engine.phase import Phase
from autarky.phases.context import Context
from autarky.phases.migration.inwards import JoinInside, LeaveOutside
from autarky.phases.migration.judging import JudgeMigration
from autarky.phases.migration.looking import Migration
from autarky.phases.migration.outwards import JoinOutside, LeaveInside
from autarky.workflows.up import PHASES

JOINS_AFTER = "issue-certificates"
LEAVES_AFTER = "retire-hosted"
"""The API servers are rolled then; what comes later waits for all nodes, and a worker must not be able to keep members
in both places."""
_NOT_OUTWARDS = "prepare-external-etcd"
"""It would start another etcd there."""


def inwards(migration: Migration) -> tuple[Phase[Context], ...]:
    return tuple(_with(JoinInside(migration), LeaveOutside(migration)))


def outwards() -> tuple[Phase[Context], ...]:
    found = _with(JoinOutside(), LeaveInside())
    return tuple(phase for phase in found if phase.name != _NOT_OUTWARDS)


def _with(join: Phase[Context], leave: Phase[Context]) -> Iterator[Phase[Context]]:
    yield JudgeMigration()
    after = {JOINS_AFTER: join, LEAVES_AFTER: leave}
    for phase in PHASES:
        yield phase
        if phase.name in after:
            yield after[phase.name]
