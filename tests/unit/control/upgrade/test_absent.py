"""Which workers an upgrade does not wait for: whatever they do, they begin a clock once each."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autarky.control.upgrade.decide.absent import LAGS_SECONDS, Memory

PROXY, REVISION = "kube-proxy", "r1"
WORKERS = frozenset({"w1", "w2", "w3"})


def look(memory: Memory, lacking: set[str], now: float, revision: str = REVISION) -> Memory:
    return memory.with_lacking(PROXY, revision, frozenset(lacking), now)


def test_while_others_get_it_nobody_lags() -> None:
    memory, now = look(Memory(), {"w1", "w2", "w3"}, 0.0), 0.0
    for lacking in ({"w2", "w3"}, {"w3"}):
        now += LAGS_SECONDS - 1
        memory = look(memory, lacking, now)
        assert memory.lagging(PROXY, WORKERS, now) == set()
    assert memory.lagging(PROXY, WORKERS, now + LAGS_SECONDS) == {"w3"}


@given(st.lists(st.tuples(st.booleans(), st.floats(0.1, 40)), min_size=1, max_size=60))
def test_one_whose_pod_comes_and_goes_holds_up_nothing_for_longer(looks: list[tuple[bool, float]]) -> None:
    """Nor what waits for an honest one that lacks it forever."""
    memory, now = look(Memory(), {"w1", "w2"}, 0.0), 0.0
    for has_it, seconds in looks:
        now += seconds
        memory = look(memory, {"w2"} if has_it else {"w1", "w2"}, now)
        if now >= 2 * LAGS_SECONDS + 40:
            assert "w2" in memory.lagging(PROXY, WORKERS, now)
            assert has_it or "w1" in memory.lagging(PROXY, WORKERS, now)


def test_one_that_has_had_it_stops_nothing_when_all_had_it_for_long() -> None:
    memory = look(Memory(), {"w1"}, 0.0)
    memory = look(memory, set(), 5.0)
    memory = look(memory, {"w1"}, 6.0 + LAGS_SECONDS)
    assert memory.lagging(PROXY, WORKERS, 6.0 + LAGS_SECONDS) == {"w1"}


def test_another_revision_begins_again() -> None:
    memory = look(look(Memory(), {"w1"}, 0.0), {"w1"}, LAGS_SECONDS, revision="r2")
    assert memory.lagging(PROXY, WORKERS, LAGS_SECONDS) == set()
