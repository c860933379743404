"""What the scenarios' watches let pass, on logs as the workload's clients write them, and on looks at minors."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest

from e2e.watching import (
    AFTERWARDS,
    ANSWERED,
    BEHIND,
    LEAST_SHARE,
    LONGEST_GAP,
    SERVERS,
    SLOW_ETCD,
    TURNED_AWAY,
    WITH_STANDBY,
    Looks,
    component_and_minor,
    new_connections_were_answered,
    silences,
    the_api_answered,
    too_long,
    tries_went_on,
    violations,
)

NOON, MIDNIGHT = (datetime(2026, 11, day, hour, tzinfo=UTC).timestamp() for day, hour in ((28, 12), (29, 0)))
EVERY_SECOND = range(40)


# --- silence ---


def test_each_silence_counts_and_so_does_the_last_one_before_the_end():
    assert silences([1, 2, 5], 12) == [(1, 2), (2, 5), (5, 12)]


def test_what_is_seen_until_after_the_end_leaves_no_silence_there():
    assert silences([1, 2, 13], 12) == [(1, 2), (2, 13), (13, 13)]


def test_a_watch_that_has_seen_nothing_shows_nothing():
    with pytest.raises(AssertionError, match="nothing was seen"):
        silences([], 12)


def test_only_what_is_longer_than_the_limit_is_too_long():
    assert too_long([(0, 10), (10, 20.5), (20.5, 21)], 10) == [10.5]


@pytest.mark.parametrize(
    ("span", "excused"),
    [
        ((80, 99), False),
        ((80, 101), True),
        ((105, 120), True),
        ((110 + AFTERWARDS - 1, 130 + AFTERWARDS), True),
        ((110 + AFTERWARDS + 1, 130 + AFTERWARDS), False),
        ((50, 300), False),
    ],
)
def test_a_longer_silence_is_excused_at_an_announced_cut_and_nowhere_else(span, excused):
    assert (too_long([span], 10, announced=[(100, 110)], at_a_cut=200) == []) is excused
    assert too_long([span], 10, announced=[(100, 110)]) != []


def test_what_nobody_has_ended_is_announced_until_the_end():
    assert too_long([(500, 550)], 10, announced=[(100, math.inf)], at_a_cut=60) == []


def test_tries_that_have_stopped_in_between_show_nothing():
    with pytest.raises(AssertionError, match=r"n1: nothing was tried for so many seconds: \[600\]"):
        tries_went_on("n1", [0, 600], began=0, ended=600, every=600, longest=5)


@pytest.mark.parametrize(
    "tried",
    [
        pytest.param((20, 60), id="the first ones are missing"),
        pytest.param((0, 54), id="the last ones are missing"),
    ],
)
def test_tries_go_on_from_the_beginning_to_the_end(tried):
    moments = [number / 10 for number in range(600)]
    tries_went_on("n1", moments, began=0, ended=60, every=0.1, longest=5)
    with pytest.raises(AssertionError, match="nothing was tried"):
        tries_went_on(
            "n1", [at for at in moments if tried[0] <= at < tried[1]], began=0, ended=60, every=0.1, longest=5
        )


def test_tries_that_are_few_show_nothing_though_none_is_late():
    few = [number * 0.1 / LEAST_SHARE for number in range(300)]
    tries_went_on("n1", few, began=0, ended=60, every=0.1, longest=5)
    with pytest.raises(AssertionError, match="200 tries of 600"):
        tries_went_on("n1", [at * 1.5 for at in few[:200]], began=0, ended=60, every=0.1, longest=5)


# --- version skew ---


@pytest.mark.parametrize(
    ("image", "found"),
    [
        ("registry.k8s.io/kube-apiserver:v1.37.1", ("kube-apiserver", 37)),
        ("registry.k8s.io/etcd:3.6.5-0", None),
        ("autarky.dev/agent:1", None),
    ],
)
def test_the_minor_of_an_image(image, found):
    assert component_and_minor(image) == found


def all_of(minor, **others):
    return {name: {minor} for name in (SERVERS, *BEHIND)} | {name.replace("_", "-"): m for name, m in others.items()}


def standbys_of(minor, **others):
    return {name: minors for name, minors in all_of(minor, **others).items() if name in WITH_STANDBY}


def broken(running, standbys):
    looks = Looks(began=0.0)
    looks.saw(running, standbys, 1.0)
    assert looks.number == 1
    return looks.broken


@pytest.mark.parametrize(
    ("running", "standbys"),
    [
        (all_of(36), standbys_of(36)),
        (all_of(36, kube_apiserver={36, 37}), standbys_of(36)),
        (all_of(36, kube_apiserver={37}), standbys_of(36)),
        (all_of(37, kubelet={36}), standbys_of(37, kube_scheduler={36})),
        (all_of(37, kube_proxy={34}, kubelet={34}), standbys_of(37)),
    ],
    ids=["all alike", "servers side by side", "standbys to follow", "a scheduler's to follow", "three behind"],
)
def test_what_an_upgrade_goes_through_keeps_the_policy(running, standbys):
    assert broken(running, standbys) == []


@pytest.mark.parametrize(
    ("running", "standbys", "said"),
    [
        (all_of(36, kube_scheduler={37}), standbys_of(36), "kube-scheduler of 1.37 beside API servers of 1.36 to 1.36"),
        (all_of(37), standbys_of(37, kube_apiserver={36}), "kube-scheduler of 1.37 beside API servers of 1.36 to 1.37"),
        (all_of(36), standbys_of(36, kube_scheduler={37}), "kube-scheduler of 1.37 beside API servers of 1.36 to 1.36"),
        (all_of(37), standbys_of(37, kube_scheduler={35}), "kube-scheduler of 1.35 beside API servers of 1.37 to 1.37"),
        (all_of(37), standbys_of(37, kube_apiserver={35}), "API servers of 1.35 and 1.37"),
        (all_of(36, kubelet={36, 37}), standbys_of(36), "kubelet of 1.37 beside API servers of 1.36 to 1.36"),
    ],
    ids=["what runs", "server's standby late", "standby early", "standby two behind", "servers two apart", "kubelet"],
)
def test_a_standby_counts_as_if_it_ran(running, standbys, said):
    assert any(one.startswith(said) for one in broken(running, standbys)), broken(running, standbys)


def test_what_runs_may_break_the_policy_alone():
    assert list(violations({SERVERS: {35, 37}})) == ["API servers of 1.35 and 1.37"]


@pytest.mark.parametrize("lacks", WITH_STANDBY)
def test_a_look_that_has_not_found_each_standby_is_none(lacks):
    looks = Looks(began=0.0)
    looks.saw(all_of(36), {name: minors for name, minors in standbys_of(36).items() if name != lacks}, 1.0)
    looks.saw({name: minors for name, minors in all_of(36).items() if name != SERVERS}, standbys_of(36), 2.0)
    assert looks.number == 0
    looks.saw(all_of(36), standbys_of(36), 7.0)
    looks.saw(all_of(36), standbys_of(36), 9.0)
    assert (looks.number, looks.gap) == (2, 7.0)


@pytest.mark.parametrize("lacks", WITH_STANDBY)
def test_what_runs_is_judged_whatever_standbys_can_be_read(lacks):
    """At a power cut, when versions may run beside each other that may not, they cannot be."""
    looks = Looks(began=0.0)
    standbys = {name: minors for name, minors in standbys_of(36).items() if name != lacks}
    looks.saw(all_of(36, kube_proxy={37}), standbys, 1.0)
    assert (looks.number, len(looks.broken)) == (0, 1)


def test_which_minors_ran_side_by_side_is_said_of_what_ran():
    looks = Looks(began=0.0)
    looks.saw(all_of(37, kube_apiserver={36, 37}), standbys_of(36), 1.0)
    looks.saw(all_of(37), standbys_of(37, kube_apiserver={36}), 2.0)
    assert looks.sets[SERVERS] == {(36, 37), (37,)}


# --- the logs of a workload ---


def klog(at, said):
    return f"I{datetime.fromtimestamp(at, UTC):%m%d %H:%M:%S.%f}       1 main.go:60] {said}\n"


def question(at, *, attempts=1):
    return klog(at, "calling /healthz") + "".join(klog(at, 'GET authz_header="Bearer" 200') for _ in range(attempts))


def questions(*, begin=NOON, seconds=EVERY_SECOND):
    return "".join(question(begin + one) for one in seconds)


def judged(log, *, least=30, ended=NOON + 40, read=NOON + 43):
    the_api_answered(log, least=least, ended=ended, read=read)


def test_a_question_in_each_second_passes():
    judged(questions())
    judged(questions(), ended=NOON + 39 + LONGEST_GAP)
    judged(questions(seconds=range(43)))


def test_a_log_over_midnight_is_one_of_a_minute():
    judged(questions(begin=MIDNIGHT - 20), ended=MIDNIGHT + 20, read=MIDNIGHT + 22)


@pytest.mark.parametrize("begin", [NOON, MIDNIGHT - 20])
def test_that_nothing_was_asked_at_the_end_is_a_gap(begin):
    with pytest.raises(AssertionError, match=r"nothing was asked for so many seconds: \[7\.0"):
        judged(questions(begin=begin), ended=begin + 46, read=begin + 47)


def test_that_nothing_was_asked_in_the_middle_is_a_gap():
    with pytest.raises(AssertionError, match="nothing was asked for so many seconds"):
        judged(questions(seconds=[*range(20), *range(27, 40)]))


@pytest.mark.parametrize("hours", [-2, -1, 1, 2])
def test_a_log_by_another_clock_shows_nothing(hours):
    with pytest.raises(AssertionError, match="nothing was asked for so many seconds"):
        judged(questions(begin=NOON + hours * 3600))


def test_few_questions_show_nothing():
    with pytest.raises(AssertionError):
        judged(questions(), least=41)


def test_a_question_without_an_answer_fails():
    with pytest.raises(AssertionError, match="connection refused"):
        judged(questions() + klog(NOON + 39.5, "error checking /healthz: Get: connection refused"))


@pytest.mark.parametrize(("times", "passes"), [(SLOW_ETCD, True), (SLOW_ETCD + 1, False)])
def test_an_etcd_that_is_slow_is_excused_a_few_times(times, passes):
    log = questions() + times * klog(NOON + 39.5, "error checking /healthz: 500: [+]ping ok [-]etcd failed: withheld")
    if passes:
        judged(log)
    else:
        with pytest.raises(AssertionError):
            judged(log)


@pytest.mark.parametrize(("again", "passes"), [(TURNED_AWAY, True), (TURNED_AWAY + 1, False)])
def test_each_attempt_counts(again, passes):
    log = questions() + question(NOON + 39.5, attempts=1 + again)
    if passes:
        judged(log)
    else:
        with pytest.raises(AssertionError, match=f"{again} of 41 questions were asked again"):
            judged(log)


def connections(*, seconds=EVERY_SECOND, fails=()):
    said = {one: "TimeoutError('timed out')" if one in fails else ANSWERED for one in seconds}
    return "".join(f"{NOON + one:.3f} {what}\n" for one, what in said.items())


def connected(log, *, least=30, ended=NOON + 40):
    new_connections_were_answered(log, least=least, began=NOON + 5, ended=ended)


def test_a_new_connection_in_each_second_passes():
    connected(connections())
    connected(connections(seconds=range(44)))


def test_one_that_failed_fails_but_not_before_the_watch():
    connected(connections(fails=[0, 4]))
    for second in (5, 39):
        with pytest.raises(AssertionError, match="timed out"):
            connected(connections(fails=[second]))


def test_what_the_client_says_of_itself_when_it_dies_fails():
    with pytest.raises(ValueError, match="Traceback"):
        connected(connections() + "Traceback (most recent call last):\n")


@pytest.mark.parametrize(
    ("seconds", "ended"), [(EVERY_SECOND, NOON + 46), ([*range(20), *range(27, 40)], NOON + 40)], ids=["end", "middle"]
)
def test_that_no_connection_was_tried_is_a_gap(seconds, ended):
    with pytest.raises(AssertionError, match=r"no connection was tried for so many seconds: \[[78]\.0"):
        connected(connections(seconds=seconds), ended=ended)


def test_few_connections_show_nothing():
    with pytest.raises(AssertionError):
        connected(connections(), least=41)
