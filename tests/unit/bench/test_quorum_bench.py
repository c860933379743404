"""The benchmark of a lost quorum: what of its figures is limited."""

from __future__ import annotations

import pytest
from quorum import RETURNED, WRITES, Measured, figures

THEIRS = [Measured(90.0, 120.0)] * 3


@pytest.mark.parametrize(
    ("writes", "missed"),
    [((59.0, 60.0, 61.0), []), ((60.1, 60.1, 20.0), [WRITES])],
)
def test_the_api_takes_writes_again_within_a_minute_by_the_median_of_all_rounds(writes, missed):
    found = figures([Measured(seconds, 300.0) for seconds in writes], THEIRS)
    assert [one.name for one in found] == [WRITES, RETURNED]
    assert [one.name for one in found if not one.kept] == missed


def test_each_figure_is_of_what_it_says():
    writes, returned = figures([Measured(40.0, 50.0)], THEIRS[:1])
    assert (writes.ours, writes.theirs, returned.ours, returned.theirs) == ((40.0,), (90.0,), (50.0,), (120.0,))
