"""Who floods holds up nobody else."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from autarky.control.common.turns import in_turn

ASKED = st.lists(st.tuples(st.sampled_from("abcde"), st.integers())).map(
    lambda found: [(who, number) for number, (who, _) in enumerate(found)]
)


@given(asked=ASKED, most=st.integers(0, 30))
def test_as_many_as_may_be_and_of_nobody_two_more_than_of_one_who_waits(
    asked: list[tuple[str, int]], most: int
) -> None:
    taken = in_turn(asked, lambda one: one[0], most)
    assert len(taken) == min(most, len(asked))
    assert set(taken) <= set(asked)
    assert len(set(taken)) == len(taken)
    counted, left = Counter(who for who, _ in taken), Counter(who for who, _ in asked)
    for who in left:
        mine = [one for one in asked if one[0] == who]
        assert [one for one in taken if one[0] == who] == mine[: counted[who]]
        if counted[who] < left[who]:
            assert max(counted.values(), default=0) <= counted[who] + 1


def test_one_in_a_flood_is_among_the_first() -> None:
    flood = [("w1", number) for number in range(5000)]
    assert in_turn([*flood, ("n2", 1)], lambda one: one[0], 20)[:2] == [("w1", 0), ("n2", 1)]
