"""How long a pause is announced for, and which copies may take the place of what was copied."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.etcd.decide.recovery import BUMP
from autarky.phases.migration import pausing

GOOD = pausing.Compared(fenced=100, snapshot=102, keys=7, made=BUMP + 102, its_keys=7)


@given(st.integers(0, 2**40), st.integers(0, 2**40))
def test_a_bigger_database_takes_no_less_and_the_bound_is_far_above_the_estimate(one: int, other: int) -> None:
    small, big = sorted((one, other))
    assert pausing.estimate(small) <= pausing.estimate(big)
    assert pausing.bound(small) <= pausing.bound(big)
    assert 5 * pausing.estimate(big) < pausing.bound(big)


def test_a_copy_that_lacks_anything_is_none() -> None:
    assert pausing.differs(GOOD) is None
    assert pausing.differs(replace(GOOD, made=BUMP + 110)) is None  # leases have ended
    assert "ends at revision 99" in str(pausing.differs(replace(GOOD, snapshot=99)))
    assert "6 keys, and the former one 7" in str(pausing.differs(replace(GOOD, its_keys=6)))
    assert "before" in str(pausing.differs(replace(GOOD, made=102)))


@pytest.mark.parametrize(
    ("theirs", "ours", "fits"),
    [
        *[("3.6.16", "3.6.16", True), ("3.6.99", "3.6.16", True), ("3.5.35", "3.6.16", True), ("3.6.1", "3.7.3", True)],
        *[("3.7.0", "3.6.16", False), ("3.4.0", "3.6.16", False), ("4.0.0", "3.6.16", False), ("", "3.6.16", False)],
    ],
)
def test_an_etcd_starts_from_data_of_its_own_minor_or_the_one_before(theirs: str, ours: str, fits: bool) -> None:
    assert (pausing.why_not_that_version(theirs, ours) is None) is fits
