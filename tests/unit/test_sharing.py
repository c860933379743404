"""Modules that share a cluster run together, and none is taken down by the failure of another."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.sharing import Shared, together

ORDER = {"one": ("b", "a"), "two": ("d",)}
tests_of_modules = st.lists(st.tuples(st.sampled_from(["one", "two", None]), st.sampled_from("abcde"), st.integers()))


def arranged(tests):
    return together(tests, lambda test: test[0], lambda test: test[1], ORDER)


def test_those_of_a_place_stand_where_its_first_stood_in_the_order_of_their_modules():
    tests = [(None, "c", 1), ("one", "a", 1), (None, "b", 1), ("one", "c", 1), ("one", "b", 2), ("one", "b", 1)]
    assert arranged(tests) == [
        (None, "c", 1),
        *[("one", "b", 2), ("one", "b", 1), ("one", "a", 1), ("one", "c", 1)],
        (None, "b", 1),
    ]


@given(tests_of_modules)
def test_whatever_runs_every_place_is_in_one_piece_and_no_test_is_lost(tests):
    found = arranged(tests)
    assert sorted(found, key=repr) == sorted(tests, key=repr)
    places = [place for place, *_ in found]
    changes = [place for before, place in zip([None, *places], places, strict=False) if place not in {before, None}]
    assert len(changes) == len(set(changes))
    assert [test for test in found if test[0] is None] == [test for test in tests if test[0] is None]
    assert arranged(found) == found


# --- one cluster -----------------------------------------------------------------------------------------


@dataclass
class Cluster:
    """What is done to it, in order. well: whether it settles; same: whether its members have the same keys;
    can_be_made: whether `up` works."""

    well: bool = True
    same: bool = True
    can_be_made: bool = True
    done: list[str] = field(default_factory=list)

    def make(self):
        self.done.append("made")
        assert self.can_be_made, "up ended with 1"
        self.well = True

    def settle(self):
        assert self.well, "it does not settle"

    def agree(self):
        assert self.same, "other keys"

    def remove(self):
        self.done.append("removed")

    @property
    def shared(self):
        return Shared(self.make, self.settle, self.remove, self.agree)


@pytest.fixture
def cluster():
    return Cluster()


def test_it_is_made_once_for_all_modules_and_removed_at_the_end(cluster):
    shared = cluster.shared
    for module in ("a", "a", "b"):
        shared.begin(module)
    shared.module_ended()
    shared.end()
    shared.end()
    assert cluster.done == ["made", "removed"]


def test_after_a_failure_the_next_module_has_another_one_though_this_one_settles(cluster):
    shared = cluster.shared
    shared.begin("a")
    shared.test_failed()
    shared.begin("a")
    shared.module_ended()
    shared.begin("b")
    shared.begin("b")
    shared.begin("c")
    assert cluster.done == ["made", "removed", "made"]


@pytest.mark.parametrize(("well", "done"), [(True, ["made"]), (False, ["made", "removed", "made"])])
def test_after_a_failure_its_own_module_goes_on_with_it_if_it_settles(cluster, well, done):
    shared = cluster.shared
    shared.begin("a")
    shared.test_failed()
    cluster.well = well
    shared.begin("a")
    shared.begin("a")
    assert cluster.done == done


def test_a_module_that_leaves_it_unsettled_though_all_has_passed_fails_itself(cluster):
    shared = cluster.shared
    shared.begin("a")
    cluster.well = False
    with pytest.raises(AssertionError, match="does not settle"):
        shared.module_ended()
    shared.test_failed()  # what pytest makes of that
    shared.begin("b")
    assert cluster.done == ["made", "removed", "made"]


def test_a_module_that_leaves_members_with_other_keys_fails_itself_wherever_it_stands(cluster):
    shared = cluster.shared
    shared.begin("a")
    cluster.same = False
    with pytest.raises(AssertionError, match="other keys"):
        shared.module_ended()
    with pytest.raises(AssertionError, match="other keys"):
        shared.last_module_ended()
    assert cluster.done == ["made", "removed"]


def test_after_a_failure_members_with_other_keys_are_told_beside_it(cluster):
    """They may be why it failed. That it is not settled is no news then."""
    shared = cluster.shared
    shared.begin("a")
    shared.test_failed()
    cluster.same = cluster.well = False
    with pytest.raises(AssertionError, match="other keys"):
        shared.module_ended()
    with pytest.raises(AssertionError, match="other keys"):
        shared.last_module_ended()
    assert cluster.done == ["made", "removed"]


def test_of_one_that_could_not_be_made_no_member_is_asked(cluster):
    cluster.can_be_made = cluster.same = False
    shared = cluster.shared
    with pytest.raises(AssertionError, match="up ended"):
        shared.begin("a")
    shared.module_ended()
    shared.last_module_ended()
    assert cluster.done == ["made", "removed"]


def test_one_that_cannot_be_made_is_tried_once_by_each_module_and_what_is_there_of_it_is_removed(cluster):
    cluster.can_be_made = False
    shared = cluster.shared
    for module, said in (("a", "up ended"), ("a", "could not be made"), ("b", "up ended"), ("b", "could not be made")):
        with pytest.raises(AssertionError, match=said):
            shared.begin(module)
    shared.end()
    assert cluster.done == ["made", "made", "removed"]


def test_who_brings_it_up_begins_with_nothing_and_the_next_module_goes_on_with_it(cluster):
    shared = cluster.shared
    shared.begin("a", up=False)
    shared.begin("b")
    assert cluster.done == ["removed"]
    shared.begin("a", up=False)
    assert cluster.done == ["removed", "removed", "removed"]


def test_what_was_never_asked_for_is_not_touched(cluster):
    cluster.shared.end()
    assert cluster.done == []
