"""A loop that is cut into cases does in them all that it did as one, and each of them does something."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from e2e.parts import REST, Draw, Part, draw_of, every_write, names_of_parts, rounds_of, writes_in_parts

PATTERNS = {
    "manifests": r"(create|chmod) .*/manifests/",
    "files": r"fsync .*/(files|\.pod)",
    "fsync": "fsync ",
    "either": "chmod |symlink ",
}
VERBS = ("create", "chmod", "fsync", "symlink", "rename", "unlink", "rmdir")
PATHS = ("/etc/kubernetes/manifests/a.json", "/s/checkpoint-*/files/*", "/s/.pod.json.*", "/s", "/s/fsync current")


@given(st.integers(1, 12), st.integers(0, 60))
def test_every_round_is_in_one_part(parts: int, more: int) -> None:
    complete = parts + more
    numbers = [number for part in range(parts) for number in rounds_of(part, parts, complete)]
    assert numbers == list(range(complete))


@given(st.integers(0, 4), st.integers(-1, 60))
@example(0, 0)
def test_a_part_of_another_length_begins_with_the_same_round_and_makes_one_at_least(part: int, length: int) -> None:
    found = rounds_of(part, 5, 20, length)
    assert found[0] == 4 * part
    assert len(found) == max(1, length)


def test_no_part_is_without_a_round_even_where_there_are_fewer_rounds_than_parts() -> None:
    assert [len(rounds_of(part, 3, 2)) for part in range(3)] == [1, 1, 1]


@given(st.sampled_from(VERBS), st.sampled_from(PATHS))
def test_every_write_is_in_exactly_one_part(verb: str, path: str) -> None:
    parts = writes_in_parts(PATTERNS)
    assert len([part for part, pattern in parts.items() if re.match(pattern, f"{verb} {path}")]) == 1


def test_the_first_pattern_that_matches_has_the_write_and_the_rest_has_what_no_other_has() -> None:
    parts = writes_in_parts(PATTERNS)
    has = {
        "chmod /etc/kubernetes/manifests/a": "manifests",
        "chmod /s/a": "either",
        "fsync /s/files": "files",
        "fsync /s": "fsync",
        "rename /s/current": REST,
    }
    assert {write: [part for part in parts if re.match(parts[part], write)] for write in has} == {
        write: [part] for write, part in has.items()
    }


def test_parts_are_named_as_people_count_them() -> None:
    assert names_of_parts(3) == ["1of3", "2of3", "3of3"]


WRITES = [f"{verb} {path}" for verb in VERBS for path in PATHS]


def _drawn(draw: Draw) -> list[str]:
    """As a loop goes: after each cut all are made again, and the first that the draw takes is followed by the next."""
    taken: list[str] = []
    while (write := next((one for one in WRITES if draw.takes(one, taken)), None)) is not None:
        taken.append(write)
    return taken


@given(st.text(), st.integers(1, 50))
def test_a_draw_ends_and_has_one_of_each_kind(seed: str, one_of: int) -> None:
    kinds = ("create ", "rename .*current$", "rmdir ")
    draw = Draw(seed, one_of, kinds)
    taken = _drawn(draw)
    assert len(taken) == len(set(taken))
    assert draw.missing(taken) == []
    assert all(any(re.match(kind, write) for write in taken) for kind in kinds)


@given(st.text())
def test_one_of_one_is_every_write(seed: str) -> None:
    assert sorted(_drawn(Draw(seed, 1, ()))) == sorted(WRITES)


def test_a_third_is_about_a_third_and_another_one_with_each_seed() -> None:
    draws = [set(_drawn(Draw(str(seed), 3, ()))) for seed in range(60)]
    assert 0.25 < sum(map(len, draws)) / len(draws) / len(WRITES) < 0.42
    assert set.union(*draws) == set(WRITES)
    assert len(set(map(frozenset, draws))) == len(draws)


def test_a_kind_that_no_write_was_of_is_missing() -> None:
    assert Draw("", 3, ("link ", "create ")).missing(["create /s"]) == ["link "]


@given(st.text(), st.sets(st.sampled_from(WRITES), min_size=1))
def test_after_a_pass_without_any_that_was_drawn_one_of_its_writes_is(seed: str, passed: set[str]) -> None:
    draw = Draw(seed, 50, ()).one_of_these(passed)
    assert draw is not None
    (write,) = _drawn(draw)
    assert write in passed


def test_which_one_it_is_differs_with_the_seed_and_is_any_of_them() -> None:
    draws = [Draw(str(seed), 50, ()).one_of_these(WRITES) for seed in range(len(WRITES) * 12)]
    assert {write for draw in draws if draw is not None for write in _drawn(draw)} == set(WRITES)


def test_where_none_was_made_none_can_be_drawn() -> None:
    assert Draw("", 50, ()).one_of_these([]) is None


# --- every write, in parts by hand ---


def test_who_asks_for_every_write_gets_all_of_them_or_a_part() -> None:
    assert every_write("") is None
    assert every_write("1") == every_write("1/1") == Part(1, 1)
    assert every_write("2/5") == Part(2, 5)


@pytest.mark.parametrize("said", ["0", "2", "yes", "0/3", "4/3", "1/0", "-1/3", "1/2/3", "1/", "/2"])
def test_what_is_no_part_is_refused_with_what_may_be_said(said: str) -> None:
    """A run that took no part, or another one than is meant, would pass for one that has taken it."""
    with pytest.raises(ValueError, match="AUTARKY_EVERY_WRITE=2/5"):
        every_write(said)


@given(st.integers(1, 40), st.lists(st.text()))
def test_every_write_is_in_one_of_the_parts_whatever_the_seeds_of_their_runs(parts: int, seeds: list[str]) -> None:
    runs = [(seeds[number % len(seeds)] if seeds else "", Part(number + 1, parts)) for number in range(parts)]
    drawn = [write for seed, part in runs for write in _drawn(draw_of(seed, 6, ("create ",), part))]
    assert sorted(drawn) == sorted(WRITES)


@given(st.text(), st.integers(1, 50))
def test_who_asks_for_no_part_gets_the_draw_of_the_seed(seed: str, one_of: int) -> None:
    assert draw_of(seed, one_of, ("create ",), None) == Draw(seed, one_of, ("create ",))


def test_what_must_be_among_all_writes_is_asked_of_no_part() -> None:
    kinds = ("link ",)
    assert draw_of("", 3, kinds, Part(1, 1)).missing(WRITES) == ["link "]
    assert draw_of("", 3, kinds, Part(1, 2)).missing(WRITES) == []


def test_a_part_that_no_write_is_in_has_one_of_those_that_were_made() -> None:
    draw = draw_of("", 6, (), Part(7, 1000)).one_of_these(WRITES)
    assert draw is not None
    assert len(_drawn(draw)) == 1
