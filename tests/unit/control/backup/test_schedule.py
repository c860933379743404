"""When the next backup is due, and which ones have outlived their use."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.backup.decide.schedule import (
    AHEAD_SECONDS,
    KEPT_FAILURES,
    RETRY_SECONDS,
    Made,
    Schedule,
    due_in,
    outlived,
    overdue,
    seconds,
)
from autarky.control.backup.decide.step import Phase

HOUR, DAY = 3600.0, 86400.0
NOW = 1_000 * DAY
DAILY = Schedule(every=DAY, count=3)
backups = st.lists(
    st.builds(Made, st.uuids().map(str), st.floats(0, NOW + DAY), st.sampled_from(list(Phase)), kept=st.booleans()),
    max_size=12,
)


def made(age, phase=Phase.COMPLETE, *, kept=True):
    return Made(f"of-{age}", NOW - age, phase, kept)


@pytest.mark.parametrize(("text", "wanted"), [("30m", 1800), ("6h", 6 * HOUR), ("1d", DAY), ("0h", None), ("1w", None)])
def test_intervals(text, wanted):
    assert seconds(text) == wanted


def test_when_the_next_one_is_due():
    assert due_in(DAILY, [], NOW) == 0
    assert due_in(DAILY, [made(DAY)], NOW) == 0
    assert due_in(DAILY, [made(HOUR)], NOW) == DAY - HOUR
    assert due_in(DAILY, [made(2 * DAY), made(HOUR)], NOW) == DAY - HOUR


def test_none_is_due_while_one_is_under_way_or_it_is_paused():
    for phase in (Phase.PENDING, Phase.RUNNING):
        assert due_in(DAILY, [made(2 * DAY, phase)], NOW) is None
    assert due_in(Schedule(DAY, 3, paused=True), [], NOW) is None


def test_after_a_failure_it_is_asked_for_soon_again():
    assert due_in(DAILY, [made(60, Phase.FAILED)], NOW) == RETRY_SECONDS - 60
    assert due_in(Schedule(60, 3), [made(30, Phase.FAILED)], NOW) == 30


def test_a_clock_that_was_ahead_does_not_stop_backups():
    """Otherwise the next one would be due when that time has come, in a year."""
    assert due_in(DAILY, [made(-365 * DAY)], NOW) == 0
    assert due_in(DAILY, [made(-AHEAD_SECONDS)], NOW) == DAY + AHEAD_SECONDS


def test_a_clock_that_is_ahead_makes_none_old():
    """By what it says all of them would be; they are compared with the newest one."""
    found = [made(days * DAY) for days in range(5)]
    assert sorted(outlived(Schedule(DAY, 10, days=60), found, NOW + 61 * DAY)) == []


def test_by_count_and_by_age():
    found = [made(days * DAY) for days in range(5)]
    assert sorted(outlived(DAILY, found, NOW)) == sorted(one.name for one in found[3:])
    assert sorted(outlived(Schedule(DAY, 10, days=2), found, NOW)) == sorted(one.name for one in found[3:])


def test_old_failures_are_forgotten():
    failures = [made(days * DAY, Phase.FAILED) for days in range(5)]
    assert sorted(outlived(DAILY, failures, NOW)) == sorted(one.name for one in failures[KEPT_FAILURES:])


@given(backups, st.floats(0, NOW + DAY), st.integers(1, 5), st.none() | st.integers(1, 5))
def test_the_newest_complete_one_is_always_kept(others, at, count, days):
    found = [*others, Made("complete", at, Phase.COMPLETE, kept=True)]
    complete = [one for one in found if one.phase is Phase.COMPLETE and one.kept]
    given_up = outlived(Schedule(DAY, count, days), found, NOW)
    assert max(complete, key=lambda one: one.at).name not in given_up
    assert len([one for one in complete if one.name not in given_up]) <= count
    assert set(given_up) <= {one.name for one in found if one.kept and one.phase in (Phase.COMPLETE, Phase.FAILED)}


@given(backups)
def test_a_backup_is_never_due_later_than_an_interval(found):
    due = due_in(DAILY, found, NOW)
    assert due is None or 0 <= due <= DAY + AHEAD_SECONDS


def test_overdue():
    assert not overdue(DAILY, NOW - 2 * DAY, 0, NOW)
    assert overdue(DAILY, NOW - 2 * DAY - HOUR - 1, 0, NOW)
    assert not overdue(DAILY, None, NOW - DAY, NOW)
    assert overdue(DAILY, None, NOW - 3 * DAY, NOW)
