"""When a control node withdraws its API servers because its clock is ahead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.clocks.decide.ahead import AHEAD_SECONDS, BACK_SECONDS, judge

NAMES = st.sampled_from(["n2", "n3", "n4", "n5"])


@given(st.dictionaries(NAMES, st.floats(-1e6, AHEAD_SECONDS)))
def test_a_clock_that_is_ahead_of_nobody_by_the_limit_is_not_newly_withdrawn(found):
    assert not judge(found, withdrawn=False).withdrawn


@given(st.dictionaries(NAMES, st.floats(AHEAD_SECONDS, 1e6, exclude_min=True), min_size=1))
def test_a_clock_that_is_ahead_of_all_others_by_the_limit_is_withdrawn(found):
    assert judge(found, withdrawn=False).withdrawn


@given(st.booleans())
def test_when_nobody_tells_the_time_everything_stays_as_it_was(withdrawn):
    """Rule 2."""
    assert judge({}, withdrawn=withdrawn).withdrawn == withdrawn


def test_of_three_the_one_that_differs_is_wrong_and_not_the_two_that_agree():
    assert not judge({"n2": 0.2, "n3": 90.0}, withdrawn=False).withdrawn
    assert judge({"n2": 90.0, "n3": 90.2}, withdrawn=False).withdrawn


def test_of_two_that_differ_the_one_that_is_ahead_is_withdrawn():
    assert judge({"n2": 61.0}, withdrawn=False).withdrawn
    assert not judge({"n2": -61.0}, withdrawn=False).withdrawn


def test_a_clock_that_is_behind_withdraws_nothing():
    assert not judge({"n2": -90.0, "n3": -90.0}, withdrawn=False).withdrawn


@pytest.mark.parametrize("between", [BACK_SECONDS + 1, AHEAD_SECONDS - 1])
def test_a_clock_near_the_limit_does_not_flap(between):
    assert judge({"n2": between}, withdrawn=True).withdrawn
    assert not judge({"n2": between}, withdrawn=False).withdrawn
    assert not judge({"n2": BACK_SECONDS - 1}, withdrawn=True).withdrawn
