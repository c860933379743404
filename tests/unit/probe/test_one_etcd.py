"""What the scenarios of a recovery take for two clusters at once."""

from __future__ import annotations

from e2e.two_clusters import Read, two_at_once

OLD, NEW = 1, 2


def test_one_after_the_other_is_one_at_a_time():
    assert two_at_once([Read(OLD, 0, 1), Read(OLD, 1, 2), Read(NEW, 3, 4), Read(NEW, 4, 5)]) == set()


def test_an_old_one_that_is_read_after_the_new_one_has_answered_is_not():
    assert two_at_once([Read(OLD, 0, 1), Read(NEW, 2, 3), Read(OLD, 4, 5)]) == {(OLD, NEW)}


def test_an_answer_that_was_on_its_way_shows_nothing():
    """It may be of the moment at which it was asked for."""
    assert two_at_once([Read(OLD, 0, 1), Read(OLD, 2, 9), Read(NEW, 3, 4)]) == set()
