"""A loop that is cut into cases does in them all that it did as one, and each of them does something."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from e2e.parts import REST, names_of_parts, rounds_of, writes_in_parts

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
    whole = parts + more
    numbers = [number for part in range(parts) for number in rounds_of(part, parts, whole)]
    assert numbers == list(range(whole))


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
