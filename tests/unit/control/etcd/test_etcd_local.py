"""One node's own etcd member: started, stopped, or found without its data."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autarky.control.etcd.decide.local import (
    JUDGED_SECONDS,
    LOST_SECONDS,
    Action,
    Data,
    Listed,
    Manifest,
    Memory,
    Seen,
    decide,
)

CLUSTER, MINE, OLD = 7, 33, 3
HEALTHY = Seen(
    api=True,
    cluster=CLUSTER,
    ids=frozenset({1, 2, MINE}),
    mine=Listed(MINE, started=True),
    data=Data(MINE, CLUSTER, anything=True),
    manifests=(Manifest(MINE),),
    running=True,
    pod=True,
    certificates=True,
)
ADMITTED = replace(HEALTHY, mine=Listed(MINE, started=False), data=Data(), manifests=(), running=False, pod=False)
REMOVED = replace(HEALTHY, ids=frozenset({1, 2}), mine=None)


def action(seen: Seen, memory: Memory | None = None, now: float = 0.0) -> Action:
    return decide(seen, memory or Memory(), now).action


def test_a_member_that_is_as_it_should_be_is_left_alone() -> None:
    decision = decide(HEALTHY, Memory(), 0.0)
    assert decision.action is Action.NOTHING
    assert decision.settled


@pytest.mark.parametrize("sight", [HEALTHY, ADMITTED, REMOVED])
@pytest.mark.parametrize(
    "unknown", [{"api": False}, {"cluster": None}, {"data": None}, {"manifests": None}], ids=lambda u: next(iter(u))
)
def test_rule_2_what_is_unknown_changes_nothing(sight: Seen, unknown: dict[str, object]) -> None:
    assert action(replace(sight, **unknown)) is Action.NOTHING  # type: ignore[arg-type]


@pytest.mark.parametrize("sight", [HEALTHY, ADMITTED, REMOVED, replace(HEALTHY, data=Data(), running=False, pod=False)])
def test_while_a_recovery_has_fenced_this_node_nothing_is_done(sight: Seen) -> None:
    """Its data may be what a new etcd is made of; and time without it says nothing."""
    memory = Memory((MINE, 0.0))
    decision = decide(replace(sight, fenced=True), memory, 2 * LOST_SECONDS)
    assert (decision.action, decision.settled) == (Action.NOTHING, False)
    assert "recovery" in decision.sentence
    released = decide(replace(sight, fenced=False), decision.memory, 2 * LOST_SECONDS)
    assert released.action is not Action.CLAIM_LOST


def test_a_node_that_etcd_has_admitted_starts_its_member() -> None:
    assert action(ADMITTED) is Action.START


def test_nothing_starts_before_its_certificates_are_there() -> None:
    assert action(replace(ADMITTED, certificates=False)) is Action.NOTHING


def test_what_is_left_of_an_earlier_member_goes_first_in_safe_order() -> None:
    left = replace(ADMITTED, data=Data(OLD, CLUSTER, anything=True), manifests=(Manifest(OLD),), running=True)
    assert action(left) is Action.STOP
    assert action(replace(left, manifests=())) is Action.NOTHING  # its process has not ended
    assert action(replace(left, manifests=(), running=None, pod=None)) is Action.NOTHING  # nobody knows
    assert action(replace(left, manifests=(), running=False, pod=False)) is Action.MOVE_ASIDE
    assert action(replace(left, manifests=(), running=False, pod=False, data=Data())) is Action.START


def test_data_is_not_moved_while_the_kubelet_may_start_the_process_again() -> None:
    left = replace(ADMITTED, data=Data(OLD, CLUSTER, anything=True), pod=True)
    assert action(left) is Action.NOTHING
    assert action(replace(REMOVED, manifests=(), running=False, pod=True)) is Action.NOTHING


def test_a_member_without_data_that_ends_again_and_again_is_found_out() -> None:
    """Its pod stays, and its process runs for a moment now and then, ever more rarely."""
    lost = replace(HEALTHY, data=Data(), running=False)
    memory, now = Memory(), 0.0
    for pause in (10, 20, 40):
        memory = decide(replace(lost, running=True), memory, now).memory
        memory = decide(lost, memory, now + 1).memory
        now += pause
        claimed = action(lost, memory, now)
        assert (claimed is Action.CLAIM_LOST) == (pause > LOST_SECONDS)


def test_a_member_that_runs_with_a_disk_that_its_agent_does_not_see_is_not_lost_when_it_ends_for_once() -> None:
    """The disk came when the agent's container was there already: for days it looks as if there were no data."""
    lost = replace(HEALTHY, data=Data())
    memory = decide(lost, Memory(), 0.0).memory
    memory = decide(lost, memory, 1e6).memory
    assert action(replace(lost, running=False), memory, 1e6 + 1) is Action.NOTHING


def test_the_static_pod_that_up_wrote_is_that_of_an_earlier_member() -> None:
    assert action(replace(ADMITTED, manifests=(Manifest(None),))) is Action.STOP


def test_rule_5_an_agent_killed_between_two_steps_goes_on() -> None:
    assert action(replace(ADMITTED, data=Data(anything=True), manifests=(Manifest(MINE),))) is Action.NOTHING
    assert action(replace(HEALTHY, manifests=())) is Action.START


def test_rule_3_a_member_that_has_run_is_never_started_without_its_data() -> None:
    lost = replace(HEALTHY, data=Data(), manifests=(), running=False, pod=False)
    first = decide(lost, Memory(), 0.0)
    assert first.action is Action.NOTHING
    assert decide(lost, first.memory, LOST_SECONDS).action is Action.CLAIM_LOST


def test_data_is_not_held_for_gone_while_a_process_runs_or_nobody_knows() -> None:
    lost = replace(HEALTHY, data=Data())
    for running in (True, None):
        first = decide(replace(lost, running=running), Memory(), 0.0)
        assert decide(replace(lost, running=running), first.memory, 1e6).action is Action.NOTHING


UNUSABLE = replace(HEALTHY, running=False, unusable="etcd cannot read it")


def test_data_that_is_there_and_of_no_use_counts_as_gone_and_the_sentence_says_why() -> None:
    decision = decide(UNUSABLE, Memory(), 0.0)
    assert decision.action is Action.CLAIM_LOST
    assert "etcd cannot read it" in decision.sentence


@pytest.mark.parametrize("unknown", [{"api": False}, {"cluster": None}, {"fenced": True}, {"changing": True}], ids=str)
def test_rule_2_nor_is_it_given_up_without_the_others_or_in_the_middle_of_something(unknown: dict[str, object]) -> None:
    assert action(replace(UNUSABLE, **unknown)) is Action.NOTHING  # type: ignore[arg-type]


def test_it_is_taken_back_once_the_member_runs_for_a_while() -> None:
    """Not when it is started again only to end again: what is reported would come and go."""
    memory = decide(UNUSABLE, Memory(), 0.0).memory
    again = decide(HEALTHY, memory, JUDGED_SECONDS - 1)
    assert (again.action, again.settled) == (Action.NOTHING, False)
    assert decide(UNUSABLE, again.memory, JUDGED_SECONDS - 0.5).action is Action.CLAIM_LOST
    assert decide(HEALTHY, again.memory, JUDGED_SECONDS).settled


def test_a_disk_that_is_mounted_late_starts_the_wait_again() -> None:
    lost = replace(HEALTHY, data=Data(), manifests=(), running=False, pod=False)
    memory = decide(lost, Memory(), 0.0).memory
    memory = decide(HEALTHY, memory, LOST_SECONDS - 1).memory
    assert decide(lost, memory, LOST_SECONDS).action is Action.NOTHING


def test_rule_3_a_removed_member_ends_and_its_data_is_moved_aside() -> None:
    assert action(REMOVED) is Action.STOP
    assert action(replace(REMOVED, manifests=())) is Action.NOTHING
    assert action(replace(REMOVED, manifests=(), running=False, pod=False)) is Action.MOVE_ASIDE
    assert decide(replace(REMOVED, manifests=(), running=False, pod=False, data=Data()), Memory(), 0.0).settled


def test_rule_10_a_member_that_etcd_has_is_not_ended_whatever_its_address() -> None:
    assert action(replace(HEALTHY, mine=None)) is Action.NOTHING


def test_rule_3_the_data_of_a_member_is_never_moved_for_another_one_on_the_same_node() -> None:
    twice = replace(HEALTHY, ids=frozenset({1, 2, OLD, MINE}), mine=Listed(MINE, started=False))
    assert action(replace(twice, data=Data(OLD, CLUSTER, anything=True))) is Action.NOTHING


def test_data_of_another_cluster_is_not_ours_to_move() -> None:
    foreign = replace(REMOVED, data=Data(OLD, 99, anything=True))
    assert action(foreign) is Action.NOTHING
