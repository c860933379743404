"""How large the pages of a list are, against a server whose objects are as long as somebody likes."""

from __future__ import annotations

from itertools import count

from hypothesis import example, given
from hypothesis import strategies as st

from autarky.kube.paging import FIRST, LONGEST, MOST, following, is_too_long, most_bytes, smaller

LONG = 1_600_000
SIZES = st.lists(st.sampled_from([900, 9_000, 90_000, 900_000, LONG, 9_000_000]), max_size=400)


def read(sizes: list[int]) -> tuple[list[int], int, int]:
    """(the sizes of all objects that were read, requests, bytes of the longest answer that was parsed) of a list."""
    found, parsed, page = list[int](), 0, FIRST
    for requests in count(1):
        asked = sizes[len(found) : len(found) + page]
        most = most_bytes(page)
        length = sum(asked) if most is None else min(sum(asked), most)
        if is_too_long(page, length):
            page = smaller(page)
            continue
        assert length == sum(asked), "what is cut is not taken for complete"
        parsed = max(parsed, length if len(asked) > 1 else 0)
        found += asked
        if len(found) == len(sizes):
            return found, requests, parsed
        page = following(page, length)
        assert 1 <= page <= MOST
    raise AssertionError


@given(SIZES)
@example([LONG] * 50)
@example([900] * 90 + [LONG] * 200)
def test_every_object_is_read_once_and_several_only_as_long_as_they_are_short_together(sizes: list[int]) -> None:
    found, requests, parsed = read(sizes)
    assert found == sizes
    assert parsed <= LONGEST
    assert requests <= 5 + 2 * len(sizes)


def test_usual_objects_take_few_requests() -> None:
    assert read([9_000] * 100)[1] == 1
    assert read([9_000] * 400)[1] <= 4
    assert read([2_000] * 3_000)[1] <= 10


def test_one_long_object_does_not_make_the_pages_small_for_ever() -> None:
    assert read([LONG, LONG] + [2_000] * 3_000)[1] <= 25
