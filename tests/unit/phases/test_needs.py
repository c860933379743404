"""What phases of `up` need of one another."""

from __future__ import annotations

import pytest

from autarky.engine.phase import needs_of
from autarky.phases.migration.looking import Migration
from autarky.workflows.migrate import inwards, outwards
from autarky.workflows.up import PHASES

NAMES = [phase.name for phase in PHASES]


@pytest.mark.parametrize("phase", PHASES, ids=NAMES)
def test_a_phase_needs_only_phases_before_it(phase):
    assert set(needs_of(phase)) <= set(NAMES[: NAMES.index(phase.name)])


NEEDS = {
    "write-kubeconfig": {"issue-certificates"},
    # Both refuse what a host's notes would make true: another cluster's file, versions out of their order.
    "prepare-hosts": {"check-file", "upgrade-control-plane", "get-payload", "issue-certificates"},
    "check-external-etcd": {"prepare-external-etcd"},
    "start-control-plane": {"prepare-hosts"},
    "start-joining": {"prepare-hosts", "start-control-plane"},
    # What is applied is noted before, so that it can be deleted later.
    "record-applied": {"start-control-plane"},
    "apply-objects": {"upgrade-control-plane", "start-control-plane", "record-applied"},
    "join-nodes": {"apply-objects", "start-joining"},
    "start-agents": {"prepare-hosts", "apply-objects"},
    "pivot": {"apply-objects", "start-agents", "join-nodes"},
    # Its objects are the sign that a cluster has pivoted (`standbys.has_pivoted`).
    "apply-agents": {"prepare-hosts", "apply-objects", "pivot"},
    "retire-hosted": {"start-agents", "apply-agents"},  # which are waited for
    "make-control-nodes": {"join-nodes", "apply-agents"},  # the same
    "await-workloads": {"apply-objects", "join-nodes", "apply-agents"},
    "apply-add-ons": {"record-applied", "apply-objects", "join-nodes"},
    "prune-objects": {"record-applied", "apply-objects", "apply-agents", "await-workloads", "apply-add-ons"},
}
"""Without which phases one would fail, wait in vain, or do harm. The others need none: what they look at may be there
by other means."""


def test_what_each_phase_needs():
    assert {phase.name: set(needs_of(phase)) for phase in PHASES if needs_of(phase)} == NEEDS


@pytest.mark.parametrize("phases", [outwards(), inwards(Migration(lambda: None))], ids=["out", "in"])
def test_members_leave_the_old_place_of_etcd_before_anything_waits_for_all_nodes(phases):
    """A worker that is not Ready would keep voters in both places."""
    names = [phase.name for phase in phases]
    [leave] = [number for number, name in enumerate(names) if name.startswith("leave-")]
    assert names.index("apply-objects") < leave < names.index("make-control-nodes") < names.index("await-workloads")


@pytest.mark.parametrize("copies", [False, True])
def test_a_move_of_etcd_is_judged_before_anything_else_but_what_undoes_a_copy(copies):
    for phases in (outwards(), inwards(Migration(lambda: None), copies=copies)):
        assert [phase.name for phase in phases][:2] == ["return-etcd", "judge-migration"]
