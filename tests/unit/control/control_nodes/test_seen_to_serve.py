from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from autarky.control.control_nodes.decide.serving import LATELY_SECONDS, STEADY_SECONDS, Sight, observed, obstacle


def after(*looks: tuple[float, str | None]) -> Sight | None:
    """(when, what stood against it) of each look."""
    sight = None
    for when, trouble in looks:
        sight = observed(sight, trouble, when)
    return sight


def test_what_was_not_asked_does_not_serve() -> None:
    assert obstacle(None, 0) == "its API servers have not been asked"


def test_it_serves_when_it_was_seen_to_for_a_while() -> None:
    early = after((0, None), (5, None))
    assert "has not been seen to" in str(obstacle(early, 5))
    assert obstacle(after((0, None), (5, None), (10, None)), 11) is None


def test_a_single_answer_is_not_a_while_however_long_ago() -> None:
    assert obstacle(after((0, None)), 9) is not None
    assert obstacle(after((0, None), (30, None)), 30) is not None


def test_a_look_that_failed_starts_it_again_and_is_what_is_said() -> None:
    sight = after((0, None), (9, None), (10, "connection refused"))
    assert obstacle(sight, 10) == "connection refused"
    assert obstacle(observed(sight, None, 12), 12) is not None


def test_what_was_seen_long_ago_is_not_lately() -> None:
    sight = after((0, None), (6, None), (12, None))
    assert obstacle(sight, 12) is None
    assert obstacle(sight, 12 + LATELY_SECONDS + 1) is not None


@given(st.lists(st.tuples(st.floats(0.1, 30), st.none() | st.just("no answer")), min_size=1, max_size=12))
def test_whoever_serves_has_answered_every_look_of_the_last_while(looks: list[tuple[float, str | None]]) -> None:
    now, times = 0.0, []
    for pause, trouble in looks:
        now += pause
        times.append((now, trouble))
    if obstacle(after(*times), now) is not None:
        return
    within = [(when, trouble) for when, trouble in times if when >= now - STEADY_SECONDS]
    assert all(trouble is None for _, trouble in within)
    assert any(when <= now - STEADY_SECONDS and trouble is None for when, trouble in times)
    moments = [when for when, _ in times]
    assert all(b - a <= LATELY_SECONDS for a, b in itertools.pairwise(moments) if b > now - STEADY_SECONDS)
