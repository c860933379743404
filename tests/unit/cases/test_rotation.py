"""The rotation: what it takes fits, nobody waits forever, and what a change touches goes first."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases.listing import Case
from cases.pieces import Piece, pieces_of
from cases.records import Record
from cases.rotation import (
    RESERVE_SECONDS,
    SLOWER,
    WHOLE_SECONDS,
    Candidate,
    Pick,
    as_candidate,
    cost,
    first_group,
    grown_old,
    in_turn,
    longer_than_a_share,
    pick,
    seconds_left,
    turn,
)

BUILDS = {"kubernetes v1.37.1": 300.0, "virtual machine": 180.0}
SETUPS = {"one": 60.0, "two": 90.0, "three": 0.0}
ONE = "tests/e2e/test_one.py::test_a"


def a_piece(position: int, place: str = "one", seconds: float = 100.0) -> Piece:
    case = Case(f"tests/e2e/test_{place}.py::test_{position}", place, rotation=True)
    return Piece((case,), seconds, SETUPS[place], position)


@st.composite
def candidates(draw: st.DrawFn) -> list[Candidate]:
    found = []
    for position in range(draw(st.integers(0, 12))):
        touched = draw(st.booleans())
        piece = a_piece(position, draw(st.sampled_from(sorted(SETUPS))), draw(st.floats(0, 600)))
        found.append(
            Candidate(
                piece,
                waits_since=draw(st.integers(0, 5)),
                touched=touched,
                unproven=touched and draw(st.booleans()),
                never_passed=draw(st.booleans()),
                passed_here=draw(st.booleans()),
                builds=draw(st.frozensets(st.sampled_from(sorted(BUILDS)))),
            )
        )
    return found


TIMES = st.floats(-100, 4000)
TREES = st.sampled_from(["0a", "0b", "0c"])


@given(candidates(), TIMES, TREES)
def test_what_is_taken_fits_into_the_time_with_its_setups_and_builds(
    found: list[Candidate], left: float, tree: str
) -> None:
    taken = pick(found, left, BUILDS, tree).taken
    places = {one.piece.place for one in taken}
    builds = {build for one in taken for build in one.builds}
    tests = sum(one.piece.seconds for one in taken) + sum(SETUPS[place] for place in places)
    assert not taken or SLOWER * tests + sum(BUILDS[build] for build in builds) <= left + 1e-6


@given(candidates(), TIMES, TREES)
def test_everybody_is_taken_or_told(found: list[Candidate], left: float, tree: str) -> None:
    picked = pick(found, left, BUILDS, tree)
    reported = [*picked.taken, *picked.too_long]
    assert len(reported) == len(set(reported))
    assert set(reported) == set(found)


@given(candidates(), TIMES, TREES)
def test_whoever_waits_longer_is_passed_over_only_when_it_does_not_fit_beside_those_before_it(
    found: list[Candidate], left: float, tree: str
) -> None:
    picked = pick(found, left, BUILDS, tree)
    order = in_turn(found, tree)
    for late in picked.too_long:
        before = [one for one in picked.taken if order.index(one) < order.index(late)]
        assert cost([*before, late], BUILDS) > left


@given(candidates(), TREES)
def test_the_order_is_touched_then_never_passed_then_other_trees_then_waiting_longest(
    found: list[Candidate], tree: str
) -> None:
    keys = [
        (not one.unproven, not one.touched, not one.never_passed, one.passed_here, one.waits_since)
        for one in in_turn(found, tree)
    ]
    assert keys == sorted(keys)


@given(candidates(), TIMES, TREES)
def test_where_no_pass_is_recorded_nothing_is_tried_that_has_never_passed_unless_it_is_touched(
    found: list[Candidate], left: float, tree: str
) -> None:
    looked_at = [one for one in found if one.touched or not one.never_passed]
    picked = pick(found, left, BUILDS, tree, records=False)
    assert {*picked.taken, *picked.too_long} == {*looked_at}
    assert picked == pick(looked_at, left, BUILDS, tree, records=False)


@given(candidates(), TREES)
def test_where_no_pass_is_recorded_the_order_is_touched_then_other_trees(found: list[Candidate], tree: str) -> None:
    order = in_turn(found, tree, records=False)
    keys = [(not one.unproven, not one.touched, one.passed_here) for one in order]
    assert keys == sorted(keys)
    assert sorted(order, key=found.index) == found


def test_where_no_pass_is_recorded_everybody_has_a_turn_and_who_waits_longer_has_more() -> None:
    """While the records stand still, as those of CI do, whoever has waited longest would be all that is ever taken."""
    found = [Candidate(a_piece(number), waits_since=0 if number < 10 else 119 - number) for number in range(60)]
    turns = Counter[Candidate]()
    for number in range(200):
        turns.update(pick(found, SLOWER * 660, BUILDS, f"tree {number}", records=False).taken)
    assert turns.keys() == {*found}
    waiting = sum(turns[one] for one in found[:10]) / 10
    others = sum(turns[one] for one in found[10:]) / 50
    assert waiting > 2 * others


@given(candidates(), TIMES, TREES, st.randoms())
def test_a_repeated_run_of_a_tree_takes_the_same_wherever_its_list_begins(
    found: list[Candidate], left: float, tree: str, random: Random
) -> None:
    shuffled = list(found)
    random.shuffle(shuffled)
    assert pick(shuffled, left, BUILDS, tree) == pick(found, left, BUILDS, tree)


def test_among_those_that_have_waited_equally_long_each_tree_begins_with_others() -> None:
    """No run of CI records anything: without that each would take the same ones until somebody does by hand."""
    found = [Candidate(a_piece(number)) for number in range(20)]
    firsts = {in_turn(found, f"tree {number}")[0] for number in range(40)}
    assert len(firsts) > 5


@given(st.lists(st.tuples(st.sampled_from(sorted(SETUPS)), st.floats(1, 600)), min_size=1, max_size=12))
def test_in_recorded_runs_nobody_waits_for_more_runs_than_there_are_cases(each: list[tuple[str, float]]) -> None:
    """Every one fits alone; each run takes at least one, and who was taken goes to the end."""
    found = [Candidate(a_piece(number, place, seconds)) for number, (place, seconds) in enumerate(each)]
    runs = 0
    while any(one.waits_since == 0 for one in found):
        runs += 1
        taken = pick(found, SLOWER * 700, BUILDS, f"tree {runs}").taken
        found = [replace(one, waits_since=runs) if one in taken else one for one in found]
    assert runs <= len(found)


@given(candidates(), TIMES, TREES)
def test_the_first_group_is_all_that_was_taken_of_one_place_in_the_order_of_its_module(
    found: list[Candidate], left: float, tree: str
) -> None:
    picked = pick(found, left, BUILDS, tree)
    group = first_group(picked)
    assert bool(group) == bool(picked.taken)
    if group:
        assert set(group) == {one for one in picked.taken if one.piece.place == picked.taken[0].piece.place}
        assert list(group) == sorted(group, key=lambda one: one.piece.position)


def test_setup_and_build_are_paid_once_by_those_that_share_them() -> None:
    first, second = (Candidate(a_piece(n), builds=frozenset({"virtual machine"})) for n in (1, 2))
    alone = SLOWER * (100 + 60 + 180)
    assert cost([first], BUILDS) == pytest.approx(alone)
    assert cost([first, second], BUILDS) == pytest.approx(alone + SLOWER * 100)


def test_what_is_left_is_that_of_75_minutes_since_the_start_and_a_little_less() -> None:
    assert (WHOLE_SECONDS, RESERVE_SECONDS) == (4500, 120)
    assert seconds_left(1000.0, 1000.0 + 55 * 60) == 20 * 60 - 120
    assert seconds_left(1000.0, 1000.0 + 80 * 60) < 0
    assert pick([Candidate(a_piece(1))], seconds_left(0.0, 80 * 60), BUILDS, "tree") == Pick(
        (), (Candidate(a_piece(1)),)
    )


# --- a case as the rotation sees it -------------------------------------------------------------------

NOW = {ONE: "as it is"}
PASSED = Record(seconds=60.0, tree="this tree", scenario="as it is", date="2026-11-24", run=4)


def seen(record: Record, *, changed: set[str] | None = None) -> Candidate:
    piece = Piece((Case(ONE, "test_one", rotation=True),), 60.0, 0.0)
    return as_candidate(piece, {ONE: record}, tree="this tree", scenarios=NOW, changed=changed or set())


def test_what_has_passed_as_it_is_is_not_touched() -> None:
    found = seen(replace(PASSED, tree="another tree"))
    assert (found.touched, found.unproven, found.never_passed, found.passed_here) == (False, False, False, False)
    assert found.waits_since == 4
    assert seen(PASSED).passed_here


def test_what_is_other_than_what_passed_is_touched_and_has_to_pass() -> None:
    found = seen(replace(PASSED, scenario="as it was"))
    assert (found.touched, found.unproven) == (True, True)


def test_what_the_change_touches_runs_although_it_has_passed_by_hand_but_ci_does_not_fail_for_it() -> None:
    found = seen(PASSED, changed={ONE})
    assert (found.touched, found.unproven, found.passed_here) == (True, False, True)
    assert in_turn([seen(replace(PASSED, tree="another tree", run=1)), found], "tree")[0] == found


def test_what_the_change_adds_is_touched_and_has_to_pass() -> None:
    found = seen(Record(run=4), changed={ONE})
    assert (found.touched, found.unproven, found.never_passed) == (True, True, True)


def test_what_has_never_passed_goes_early_but_is_not_touched_by_that() -> None:
    found = seen(Record(run=4))
    assert (found.touched, found.unproven, found.never_passed) == (False, False, True)


OTHER = "tests/e2e/test_one.py::test_b"


@pytest.mark.parametrize(("changed", "touched"), [(set(), False), ({ONE}, True), ({OTHER}, True)])
def test_a_chain_of_which_some_have_passed_is_like_any_other_until_the_change_touches_it(
    changed: set[str], touched: bool
) -> None:
    """Then all of it has to pass: its cases build on each other."""
    chain = Piece(tuple(Case(case, "test_one", True, "") for case in (ONE, OTHER)), 60.0, 0.0)
    records, scenarios = {ONE: PASSED, OTHER: Record(run=2)}, {**NOW, OTHER: "as it is"}
    found = as_candidate(chain, records, tree="this tree", scenarios=scenarios, changed=changed)
    assert found == Candidate(chain, waits_since=2, touched=touched, unproven=touched)


def test_of_a_chain_the_cases_that_ci_runs_each_time_say_nothing_of_its_turn() -> None:
    short, long = Case("tests/e2e/test_one.py::test_short", "test_one", chain=""), Case(ONE, "test_one", True, "")
    scenarios = {**NOW, short.id: "as it is"}
    records = {ONE: PASSED, short.id: Record(run=0)}
    chain = Piece((short, long), 60.0, 0.0)
    found = as_candidate(chain, records, tree="this tree", scenarios=scenarios, changed={short.id})
    assert found == Candidate(chain, waits_since=4, passed_here=True)


# --- turns --------------------------------------------------------------------------------------------


def a_list(count: int, seconds: float) -> tuple[list[Piece], dict[str, Record]]:
    cases = [Case(f"tests/e2e/test_m.py::test_{number}", "test_m", rotation=True) for number in range(count)]
    records = {case.id: Record(seconds=seconds, setup=0.0, run=1) for case in cases}
    return pieces_of(cases, records), records


def test_a_turn_is_as_many_runs_as_all_of_the_rotation_needs() -> None:
    pieces, _ = a_list(20, 450.0)
    assert turn(pieces) == 13, "20 x 450 s, a third longer, by 15 minutes"
    assert turn([]) == 1


def test_what_is_longer_than_the_share_of_a_run_of_ci_is_told() -> None:
    """With its setup, a third longer; what each run of CI has anyway is no matter of its share."""
    lengths = {"fits": 630.0, "with its setup": 640.0, "short": 900.0}
    cases = [Case(f"tests/e2e/test_m.py::{name}", "test_m", rotation=name != "short") for name in lengths]
    records = {case.id: Record(seconds=lengths[case.id.split("::")[1]], setup=60.0) for case in cases}
    [found] = longer_than_a_share(pieces_of(cases, records))
    assert found.cases == (cases[1],)


def test_grown_old_is_what_has_passed_two_weeks_before_the_latest_pass_whatever_the_runs_are_called() -> None:
    """Runs by hand have the number of the latest one: while there are only these, nobody is passed over by it."""
    pieces, records = a_list(3, 450.0)
    old, fresh, never = (piece.ids[0] for piece in pieces)
    dates = {old: "2026-11-10", fresh: "2026-11-24", never: None}
    dated = {case: replace(records[case], date=date) for case, date in dates.items()}
    assert grown_old(pieces, dated) == {}
    later = {**dated, fresh: replace(dated[fresh], date="2026-11-25")}
    assert grown_old(pieces, later) == {old: "2026-11-10"}
    assert grown_old(pieces, later, 15) == {}
    assert grown_old(pieces, {never: dated[never]}) == {}


def test_a_case_that_every_run_of_ci_has_never_grows_old() -> None:
    cases = [Case("tests/e2e/test_m.py::test_short", "test_m"), Case(ONE, "test_one", rotation=True)]
    dated = {ONE: Record(seconds=1.0, date="2026-11-30"), cases[0].id: Record(seconds=1.0, date="2026-10-01")}
    assert grown_old(pieces_of(cases, dated), dated) == {}
