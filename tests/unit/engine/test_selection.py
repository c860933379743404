from __future__ import annotations

import pytest

from autarky.engine.selection import Selection
from autarky.errors import Problems, UserError

NAMES = ["get-payload", "prepare-hosts", "pivot", "join-workers"]


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(), NAMES),
        (Selection(only=["pivot"]), ["pivot"]),
        (Selection(skip=["pivot"]), ["get-payload", "prepare-hosts", "join-workers"]),
        (Selection(start_from="pivot"), ["pivot", "join-workers"]),
        (Selection(start_from="pivot", skip=["pivot"]), ["join-workers"]),
        (Selection(only=["pivot", "get-payload"], start_from="prepare-hosts"), ["pivot"]),
        (Selection(only=["pivot"], skip=["pivot"]), []),
    ],
)
def test_the_selected_phases_are_those_asked_for_and_not_skipped(selection, expected):
    assert selection.apply("up", NAMES) == frozenset(expected)


def test_a_name_that_is_nearly_right_is_suggested():
    with pytest.raises(UserError) as caught:
        Selection(only=["prepare-host"]).apply("up", NAMES)
    assert str(caught.value) == "up has no phase prepare-host\n  fix: did you mean prepare-hosts?"


def test_a_name_like_no_other_brings_the_list_of_names():
    with pytest.raises(UserError, match="name one of get-payload, prepare-hosts, pivot, join-workers"):
        Selection(start_from="zzz").apply("up", NAMES)


def test_all_wrong_names_are_told_at_once():
    with pytest.raises(Problems) as caught:
        Selection(only=["pivott"], skip=["pivott", "zzz"]).apply("up", NAMES)
    assert len(caught.value.problems) == 2
