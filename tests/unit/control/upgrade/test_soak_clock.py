"""The clock of a soak: another operator, or a clock that somebody sets, makes it longer at most."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autarky.control.upgrade.decide import reported
from autarky.control.upgrade.decide.reported import Soaking
from autarky.control.upgrade.decide.soak import PARTS, SoakClock
from autarky.model.versions import Version

NEW, NEWER = Version(1, 37, 1), Version(1, 37, 2)
SECONDS = 3600.0


def written(found: Soaking | None) -> Soaking | None:
    """As the next operator reads it."""
    part = reported.status(None, (NEW,), "1.36", found)
    return reported.soaking({"status": {"upgrade": part}})


EVENTS = st.lists(
    st.tuples(st.sampled_from(("looks", "away", "leads", "wall")), st.floats(0, 900, allow_nan=False)), max_size=60
)


@given(EVENTS)
def test_it_never_counts_more_than_was_looked_at(events: list[tuple[str, float]]) -> None:
    clock, now, wall, seen = SoakClock(), 100.0, 1e9, 0.0
    status, looked = written(clock.count(NEW, SECONDS, now, wall)), True
    for what, seconds in events:
        match what:
            case "looks":
                now, wall, seen = now + seconds, wall + seconds, seen + seconds * looked
                clock.take_over(status, NEW)
                status, looked = written(clock.count(NEW, SECONDS, now, wall)), True
            case "away":
                now, wall, looked = now + seconds, wall + seconds, False
                clock.stand_still()
            case "leads":
                clock, looked = SoakClock(), False
                now = 7.0 + seconds  # of another machine
                clock.take_over(status, NEW)
            case "wall":
                wall += (seconds - 450) * 1e5
        assert clock.soaked(NEW, now) <= seen + 1e-6
        assert clock.soaked(NEWER, now) == 0.0


def test_a_new_operator_repeats_a_small_part_at_most() -> None:
    clock, status = SoakClock(), None
    for second in range(int(SECONDS) // 2):
        status = written(clock.count(NEW, SECONDS, float(second), 1e9 + second))
    another = SoakClock()
    another.take_over(status, NEW)
    assert SECONDS / 2 - SECONDS / PARTS - 2 <= another.soaked(NEW, 0.0) <= SECONDS / 2


def test_what_is_over_is_over_for_the_next_one_too() -> None:
    clock = SoakClock()
    for second in (0.0, 59.0):
        clock.count(NEW, 60.0, second, 1e9 + second)
    clock.ends(NEW, 61.0)
    clock.stand_still()
    another = SoakClock()
    another.take_over(written(clock.of_status), NEW)
    assert another.soaked(NEW, 0.0) >= 60.0


def test_a_soak_of_another_version_begins_at_nothing() -> None:
    clock = SoakClock()
    for second in (0.0, 3000.0):
        clock.count(NEW, SECONDS, second, 1e9 + second)
    before = written(clock.of_status)
    clock.take_over(before, NEWER)
    assert (clock.soaked(NEWER, 3001.0), clock.of_status) == (0.0, None)


def test_its_status_is_written_no_more_often_than_it_says_something_new() -> None:
    clock, said = SoakClock(), set[str]()
    for second in range(0, 86400, 10):
        said.add(str(reported.status(None, (NEW,), "1.36", clock.count(NEW, 86400.0, float(second), 1e9 + second))))
    assert len(said) <= 86400 / 300 + 1


def test_what_is_malformed_counts_for_nothing() -> None:
    good = reported.status(None, (NEW,), "1.36", Soaking(NEW, 1e9, 2e9, 77.0))
    assert reported.soaking({"status": {"upgrade": good}}) == Soaking(NEW, 1e9, 2e9, 77.0)
    for odd in ({"seconds": True}, {"seconds": -1}, {"since": "yesterday"}, {"until": "2026-01-01T00:00:00"}):
        part = {**good, "soaking": {**good["soaking"], **odd}}
        assert reported.soaking({"status": {"upgrade": part}}) is None
    for odd_minor in ("1.36,1.37", "kube=1.36", "", None, 1.36):
        assert reported.emulated({"status": {"upgrade": {"emulates": odd_minor}}}) == ""
