"""Whether a restarted kubelet is healthy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.hosts.decide.kubelet_restart import MOST_RESTARTS, Seen, judge

WELL = Seen(active=True, restarts=0, healthy=True, heartbeat=True, ready=True)
seen = st.builds(
    Seen,
    active=st.booleans(),
    restarts=st.integers(0, 5),
    healthy=st.sampled_from([True, False, None]),
    heartbeat=st.booleans(),
    ready=st.booleans(),
)


def test_one_that_runs_is_healthy_and_was_heard_of_is_well():
    assert judge(WELL, was_ready=True).well


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"active": False}, "it is not running"),
        ({"healthy": False}, "it does not report that it is healthy"),
        ({"heartbeat": False}, "the API has no heartbeat from it"),
        ({"ready": False}, "its Node is not Ready"),
    ],
)
def test_what_is_missing_is_said_and_waited_for(changes, missing):
    verdict = judge(replace(WELL, **changes), was_ready=True)
    assert (verdict.well, verdict.failed, verdict.missing) == (False, False, missing)


def test_a_node_that_was_not_ready_before_need_not_be_now():
    assert judge(replace(WELL, ready=False), was_ready=False).well


def test_health_that_nobody_may_ask_for_is_not_asked_for():
    assert judge(replace(WELL, healthy=None), was_ready=True).well


def test_one_that_ends_again_and_again_has_failed():
    assert judge(replace(WELL, restarts=MOST_RESTARTS), was_ready=True).failed


@given(seen=seen, was_ready=st.booleans())
def test_nothing_counts_as_well_without_a_heartbeat_after_the_restart_or_while_it_fails(seen, was_ready):
    verdict = judge(seen, was_ready=was_ready)
    assert not (verdict.well and verdict.failed)
    assert not verdict.well or (seen.heartbeat and seen.active and seen.healthy is not False)
    assert verdict.well or verdict.missing
