"""Pieces and shards: every case runs once, chains stay complete, and no shard is much longer than the others."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases.listing import Case
from cases.pieces import UNKNOWN_SECONDS, UNKNOWN_SETUP, Piece, pieces_of, seconds_of
from cases.records import Record
from cases.shards import at_most, parse_shard, shard

PLACES = ("test_a", "test_b", "test_c", "shared")


@st.composite
def lists(draw: st.DrawFn) -> tuple[list[Case], dict[str, Record]]:
    cases, records = [], {}
    for number in range(draw(st.integers(0, 25))):
        module = draw(st.sampled_from(["test_a", "test_b", "test_c", "test_d"]))
        place = "shared" if module == "test_d" else module
        link = draw(st.sampled_from([None, None, "", "x"]))
        case = Case(
            f"tests/e2e/{module}.py::test_{number}", place, draw(st.booleans()), link, timeout=draw(st.integers(1, 900))
        )
        cases.append(case)
        passed = Record(seconds=draw(st.floats(0, 600)), setup=draw(st.none() | st.floats(0, 300)))
        records[case.id] = draw(st.sampled_from([Record(), passed]))
    return cases, records


def ids(pieces: Iterable[Piece]) -> list[str]:
    return [case for piece in pieces for case in piece.ids]


@given(lists())
def test_every_case_is_in_one_piece_and_a_chain_is_one_in_its_order(
    listed: tuple[list[Case], dict[str, Record]],
) -> None:
    cases, records = listed
    pieces = pieces_of(cases, records)
    assert sorted(ids(pieces)) == sorted(case.id for case in cases)
    for piece in pieces:
        own = [case.id for case in cases if case in piece.cases]
        assert list(piece.ids) == own
        first = piece.cases[0]
        linked = [
            case.id
            for case in cases
            if first.chain is not None
            and case.chain == first.chain
            and case.id.split("::")[0] == first.id.split("::")[0]
        ]
        assert own == (linked if first.chain is not None else [first.id])


@given(lists(), st.integers(1, 6))
def test_every_piece_is_in_one_shard(listed: tuple[list[Case], dict[str, Record]], of: int) -> None:
    pieces = pieces_of(*listed)
    shards = [shard(pieces, number, of) for number in range(1, of + 1)]
    dealt = [piece for groups in shards for group in groups for piece in group]
    assert sorted(dealt, key=lambda one: one.position) == pieces
    for group in chain.from_iterable(shards):
        assert len({piece.place for piece in group}) == 1
        assert group == sorted(group, key=lambda piece: piece.position)


@given(lists(), lists(), st.integers(1, 6))
def test_what_is_recorded_meanwhile_moves_no_case_to_another_shard(
    listed: tuple[list[Case], dict[str, Record]], later: tuple[list[Case], dict[str, Record]], of: int
) -> None:
    cases, records = listed
    before, after = (pieces_of(cases, found) for found in (records, {**records, **later[1]}))
    for number in range(1, of + 1):
        assert [ids(group) for group in shard(before, number, of)] == [ids(group) for group in shard(after, number, of)]


@given(lists(), st.integers(1, 6))
def test_no_shard_is_longer_than_a_fair_share_and_the_longest_group(
    listed: tuple[list[Case], dict[str, Record]], of: int
) -> None:
    pieces = pieces_of(*listed)
    shards = [shard(pieces, number, of) for number in range(1, of + 1)]
    longest = max(map(at_most, chain.from_iterable(shards)), default=0.0)
    for one in shards:
        assert sum(map(at_most, one)) <= at_most(pieces) / of + longest + 1e-6


def test_the_longest_go_first_so_that_the_short_ones_fill_up() -> None:
    lengths = {"a": 100, "b": 100, "c": 100, "d": 300}
    cases = [Case(f"tests/e2e/test_{name}.py::test_x", f"test_{name}", timeout=lengths[name]) for name in lengths]
    pieces = pieces_of(cases, {})
    assert [sum(map(at_most, shard(pieces, number, 2))) for number in (1, 2)] == [300, 300]


@given(lists())
def test_one_shard_sets_each_place_up_once(listed: tuple[list[Case], dict[str, Record]]) -> None:
    groups = shard(pieces_of(*listed), 1, 1)
    places = [group[0].place for group in groups]
    assert len(places) == len(set(places))


def test_a_case_that_nobody_has_timed_counts_five_minutes() -> None:
    case = Case("tests/e2e/test_a.py::test_new", "test_a")
    [piece] = pieces_of([case], {case.id: Record(run=7)})
    assert (piece.seconds, piece.setup) == (UNKNOWN_SECONDS, UNKNOWN_SETUP) == (300, 60)


def test_the_setup_of_a_place_is_that_of_whichever_case_was_the_first_on_it() -> None:
    one, two = (Case(f"tests/e2e/test_{name}.py::test_x", "shared") for name in "ab")
    records = {one.id: Record(seconds=10.0), two.id: Record(seconds=20.0, setup=55.0)}
    assert [piece.setup for piece in pieces_of([one, two], records)] == [55.0, 55.0]
    assert seconds_of(pieces_of([one, two], records)) == 85.0


def test_a_shard_is_said_as_one_of_so_many() -> None:
    assert parse_shard("2/4") == (2, 4)


@pytest.mark.parametrize("text", ["0/4", "5/4", "2", "2/0", "two/4", "-1/4", ""])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no shard: I/N"):
        parse_shard(text)
