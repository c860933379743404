from __future__ import annotations

import pytest

from autarky.engine.selection import refuse_unknown
from autarky.errors import Problems, UserError

NAMES = ["get-payload", "prepare-hosts", "pivot", "join-workers"]


@pytest.mark.parametrize("skip", [[], ["pivot"], NAMES, ["pivot", "pivot"]])
def test_phases_that_there_are_may_be_skipped(skip):
    refuse_unknown("up", NAMES, skip)


def test_a_name_that_is_nearly_right_is_suggested():
    with pytest.raises(UserError) as caught:
        refuse_unknown("up", NAMES, ["prepare-host"])
    assert str(caught.value) == "up has no phase prepare-host\n  fix: did you mean prepare-hosts?"


def test_a_name_like_no_other_brings_the_list_of_names():
    with pytest.raises(UserError, match="name one of get-payload, prepare-hosts, pivot, join-workers"):
        refuse_unknown("up", NAMES, ["zzz"])


def test_all_wrong_names_are_told_at_once():
    with pytest.raises(Problems) as caught:
        refuse_unknown("up", NAMES, ["pivott", "pivott", "zzz"])
    assert len(caught.value.problems) == 2
