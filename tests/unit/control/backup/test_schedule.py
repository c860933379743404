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
    free_name,
    from_the_future,
    last_complete,
    lateness,
    made_of,
    outlived,
    overdue,
    pause_after,
    seconds,
)
from autarky.control.backup.decide.step import Phase
from autarky.control.backup.manifests.definitions import MOST_NAME

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


@given(st.floats(0, NOW), st.sets(st.integers(0, 20), max_size=20))
def test_a_backup_has_a_name_that_none_has_and_that_is_no_longer_than_names_are(now, seconds_taken):
    schedule = "s" * (MOST_NAME - len("-20261126-030000"))
    taken = {free_name(schedule, now + second, ()) for second in seconds_taken}
    found = free_name(schedule, now, taken)
    assert found not in taken
    assert len(found) == MOST_NAME
    assert 0 not in seconds_taken or found > free_name(schedule, now, ())


def test_a_name_says_when_it_was_asked_for():
    assert free_name("nightly", NOW + 5.9, ()) == "nightly-19720927-000005"


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


@given(backups, st.floats(0, NOW + AHEAD_SECONDS), st.integers(1, 5), st.none() | st.integers(1, 5))
def test_without_revisions_the_newest_complete_one_that_is_not_from_the_future_is_always_kept(others, at, count, days):
    found = [*others, Made("complete", at, Phase.COMPLETE, kept=True)]
    complete = [one for one in found if one.phase is Phase.COMPLETE and one.kept]
    given_up = outlived(Schedule(DAY, count, days), found, NOW)
    past = [one for one in complete if one.at <= NOW + AHEAD_SECONDS]
    assert max(past, key=lambda one: (one.at, one.name)).name not in given_up
    assert len([one for one in complete if one.name not in given_up]) <= count
    assert set(given_up) <= {one.name for one in found if one.kept and one.phase in (Phase.COMPLETE, Phase.FAILED)}


@given(backups)
def test_a_backup_is_never_due_later_than_an_interval(found):
    due = due_in(DAILY, found, NOW)
    assert due is None or 0 <= due <= DAY + AHEAD_SECONDS


def numbered(*ages):
    """In the order in which they were made, by etcd's revision."""
    return [
        Made(f"{number}-of-{age}", NOW - age, Phase.COMPLETE, revision=number) for number, age in enumerate(ages, 1)
    ]


@pytest.mark.parametrize("odd", [-365 * DAY, NOW], ids=["a year ahead", "in 1970"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_wrong_stamp_neither_keeps_its_backup_nor_costs_another_one(odd, count):
    """The order is that of the cluster."""
    before = [days * DAY for days in range(10, 1, -1)]
    last = numbered(*before, odd)
    kept = max(count, 2)  # the last one, and the one with the latest stamp of those that count
    assert outlived(Schedule(DAY, count), last, NOW) == [one.name for one in last[:-kept]]
    followed = numbered(*before, odd, 0)
    assert outlived(Schedule(DAY, 1), followed, NOW) == [one.name for one in followed[:-1]]


def test_without_a_revision_what_is_from_the_future_is_the_oldest():
    assert outlived(Schedule(DAY, 1), [made(-365 * DAY), made(0)], NOW) == [made(-365 * DAY).name]
    failures = [made(age, Phase.FAILED) for age in (0, 1, 2, -365 * DAY)]
    assert outlived(DAILY, failures, NOW) == [failures[-1].name]


@given(
    st.lists(st.tuples(st.floats(0, 2 * NOW), st.sampled_from(list(Phase)), st.booleans()), max_size=12),
    st.sampled_from([Phase.COMPLETE, Phase.FAILED]),
    st.floats(0, 2 * NOW),
    st.floats(0, 2 * NOW),
    st.integers(1, 5),
    st.none() | st.integers(1, 5),
    st.randoms(),
)
def test_the_backup_that_was_made_last_is_never_given_up_whatever_the_clocks_say(
    others, phase, at, now, count, days, order
):
    """Nor is the last one that was verified, where that is another one."""
    found = [
        Made(f"{number}", stamp, of, kept, revision=number)
        for number, (stamp, of, kept) in enumerate([*others, (at, phase, True)], 1)
    ]
    last, verified = found[-1], [one for one in found if one.phase is Phase.COMPLETE and one.kept]
    order.shuffle(found)
    given_up = outlived(Schedule(DAY, count, days), found, now)
    assert last.name not in given_up
    assert not verified or verified[-1].name not in given_up
    assert len([one for one in verified if one.name not in given_up]) <= count + 1


@pytest.mark.parametrize("days", [None, 1])
@pytest.mark.parametrize("since", [1, 2, 5])
def test_after_a_restore_by_hand_whose_revisions_are_lower_the_new_backups_are_kept_too(since, days):
    """Upstream's etcdctl restores without raising them. Each new one was removed when it was complete."""
    before = [Made(f"before-{age}", NOW - age * DAY, Phase.COMPLETE, revision=10**6 - age) for age in (12, 11, 10)]
    later = [Made(f"later-{one}", NOW - DAY / 2 + one, Phase.COMPLETE, revision=500 + one) for one in range(since)]
    given_up = outlived(Schedule(DAY, 3, days), [*before, *later], NOW)
    assert later[-1].name not in given_up
    assert before[-1].name not in given_up, "nor that of the highest revision: a clock may be behind"
    assert set(given_up) >= {one.name for one in later[:-1]}


def test_one_from_the_future_is_no_latest_one():
    found = numbered(-365 * DAY, 3 * DAY, 2 * DAY, DAY)
    assert outlived(Schedule(DAY, 1), found, NOW) == [one.name for one in found[:-1]]


def test_by_age_none_goes_whose_stamp_is_older_than_that_of_one_made_before():
    """The clock was at 1970 when it was made. What a clock that was ahead has stamped keeps none of the others."""
    found = numbered(70 * DAY, 2 * DAY, NOW, DAY, 0)
    assert outlived(Schedule(DAY, 10, days=60), found, NOW) == [found[0].name]
    found = numbered(-365 * DAY, 70 * DAY, 2 * DAY, 0)
    assert outlived(Schedule(DAY, 10, days=60), found, NOW) == [found[1].name]


def test_one_backup_of_a_clock_that_is_ahead_makes_none_old():
    """Both clocks are that of the only node. The second one says that time has passed."""
    found = numbered(3 * DAY, 2 * DAY, DAY, -365 * DAY)
    assert outlived(Schedule(DAY, 10, days=60), found, NOW + 365 * DAY) == []
    found = numbered(3 * DAY, 2 * DAY, DAY, -365 * DAY, -366 * DAY)
    assert len(outlived(Schedule(DAY, 10, days=60), found, NOW + 366 * DAY)) == 3


def test_the_last_one_is_that_of_the_highest_revision_which_is_not_from_the_future():
    def name(found, now=NOW):
        last = last_complete(found, now)
        return None if last is None else last.name

    found = numbered(0, 2 * DAY, -365 * DAY)
    assert name(found) == found[1].name
    assert name([*found, made(0, Phase.FAILED)]) == found[1].name
    assert name(found, NOW + 365 * DAY) == found[2].name
    assert name(numbered(-365 * DAY)) is None


def test_a_stamp_of_the_future_says_nothing_of_the_pause_after_a_failure():
    """It was a day instead of ten minutes."""
    found = [made(DAY), made(-365 * DAY), made(600, Phase.FAILED)]
    assert pause_after(DAILY, found, NOW) == RETRY_SECONDS
    assert pause_after(DAILY, found[:2], NOW) == DAY


def test_where_the_own_clock_is_behind_a_failure_counts_all_the_same():
    assert pause_after(DAILY, [made(DAY), made(0, Phase.FAILED)], NOW - HOUR) == RETRY_SECONDS
    assert pause_after(DAILY, [made(DAY), made(0)], NOW - HOUR) == DAY


@given(st.floats(AHEAD_SECONDS + 1, 2 * NOW), st.floats(-NOW, NOW))
def test_a_backup_from_the_future_never_says_that_none_is_overdue(ahead, age):
    late = overdue(DAILY, None, NOW - age, NOW)
    assert overdue(DAILY, NOW + ahead, NOW - age, NOW) == late
    assert late == (age > 2 * DAY + HOUR or age < -AHEAD_SECONDS), "a schedule from the future is no excuse, either"


def test_what_is_late_is_said_with_the_last_one_and_what_does_not_count():
    good = numbered(DAY)
    assert (lateness(DAILY, good, 0, NOW), from_the_future(good, NOW)) == ("", "")
    ahead = numbered(4 * DAY, -365 * DAY, -364 * DAY)
    assert lateness(DAILY, ahead, 0, NOW) == f"backups are overdue: the last one is {ahead[0].name}"
    assert from_the_future(ahead[:2], NOW).startswith(f"{ahead[1].name} is from the future")
    assert from_the_future(ahead, NOW).startswith(f"{ahead[2].name} and 1 more are from the future")
    assert lateness(DAILY, ahead[1:], 0, NOW) == "backups are overdue: there is no complete backup"
    assert lateness(Schedule(DAY, 3, paused=True), ahead, 0, NOW) == ""


def test_the_revision_of_a_backup_is_that_in_it_and_of_one_without_an_archive_that_of_its_object():
    def read(**status):
        meta = {"name": "b", "creationTimestamp": "2026-11-26T10:00:00Z", "resourceVersion": "71"}
        return made_of({"metadata": meta, "spec": {}, "status": status}).revision

    assert read(phase="Complete", revision=70) == 70
    assert read(phase="NotRemoved", revision=70) == 70
    assert read(phase="Failed") == 71
    assert read() == 71
    assert read(phase="Complete") == 0, "somebody may have written it, at any time"


def test_overdue():
    assert not overdue(DAILY, NOW - 2 * DAY, 0, NOW)
    assert overdue(DAILY, NOW - 2 * DAY - HOUR - 1, 0, NOW)
    assert not overdue(DAILY, None, NOW - DAY, NOW)
    assert overdue(DAILY, None, NOW - 3 * DAY, NOW)
